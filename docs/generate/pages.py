"""Which pages there are, and where."""

from __future__ import annotations

from pathlib import Path

from docs.generate import (
    commands,
    convert,
    host,
    http,
    kubernetes,
    manifests,
    metrics,
    notifications,
    platform_command,
    rules,
    schemas,
    settings,
    signatures,
    status,
)

DOCS = Path(__file__).parents[2] / "docs"
NOTE = "<!-- Written by `python -m docs.generate`; a change made here is lost. -->\n\n"
MAKERS = {
    "commands.md": commands.page,
    "convert.md": convert.page,
    "host.md": host.page,
    "http.md": http.page,
    "kubernetes.md": kubernetes.page,
    "manifests.md": manifests.page,
    "metrics.md": metrics.page,
    "notifications.md": notifications.page,
    "platform-command.md": platform_command.page,
    "rules.md": rules.page,
    "schemas.md": schemas.page,
    "settings.md": settings.page,
    "signatures.md": signatures.page,
    "status.md": status.page,
}

GUIDES = frozenset(
    {
        "benchmarks.md",
        "containers.md",
        "forges.md",
        "index.md",
        "install.md",
        "logs.md",
        "operations.md",
        "other-tools.md",
        "page.md",
        "quickstart.md",
        "review.md",
        "secrets.md",
    }
)
"""Pages for users that people write; ``test_guides.py`` runs what they show."""

COMING_FROM = frozenset(
    f"coming-from/{name}.md" for name in ("argo-cd", "compose", "coolify", "flux", "kamal", "terraform")
)
"""Pages for people who come from one other tool."""

TUTORIALS = frozenset(f"tutorials/{name}.md" for name in ("first-workload", "https", "secret"))
"""Pages of which ``test_tutorials.py`` runs every command, and compares what it prints."""

BY_HAND = GUIDES | {"architecture.md", "glossary.md"}
"""Pages that people write; ``tests/project`` holds the other two against the code."""


def pages() -> dict[str, str]:
    """File name → text of every reference page."""
    return {name: NOTE + make() for name, make in MAKERS.items()}
