"""docs/kubernetes.md and the rights in examples/kubernetes; the text of the page is in kubernetes.md.in."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from docs.generate.hosted import collect_texts
from docs.generate.tables import default, fields, table
from reconciler.documents.schema.fields import describe_meaning
from reconciler.documents.schema.loader import load_schema
from reconciler.engines.kubernetes.access import Right, list_rights, render_access
from reconciler.engines.kubernetes.engine import DISCOVERY_SECONDS
from reconciler.engines.kubernetes.mirror import LAST_RETRY, STALE_SECONDS
from reconciler.engines.kubernetes.reading.trial import MOST_ASKED, PATIENCE
from reconciler.engines.kubernetes.rendering.containers import DRAIN_SECONDS, TOTAL_SECONDS
from reconciler.reasons import Reason, Use
from tests.kubernetes.scenarios.differences import list_met_differences
from tests.project.tree import modules

TEMPLATE = Path(__file__).with_name("kubernetes.md.in")
ACCESS = Path(__file__).parents[2] / "examples" / "kubernetes" / "access.yaml"
RENDERING = "reconciler/engines/kubernetes/rendering"
REASONS = (
    Reason.CLUSTER_UNREACHABLE,
    Reason.CREDENTIALS_REFUSED,
    Reason.CLUSTER_FORBIDDEN,
    Reason.CLUSTER_BUSY,
    Reason.CLUSTER_FAILED,
    Reason.FIELD_CONFLICT,
    Reason.FOREIGN_OBJECT,
    Reason.QUOTA_EXCEEDED,
    Reason.ADMISSION_REFUSED,
    Reason.OBJECT_REFUSED,
    Reason.KIND_NOT_SERVED,
    Reason.TERMINATING,
)
"""Reasons of a cluster's refusals, and of waits for it."""
_WHOLE_FAULT = "A route of the domain … …."
"""The sentence that each fault of a route is the end of."""


def page() -> str:
    """The text of the page. Raises KeyError if the template names an unknown fact."""
    facts = {
        "discovery": f"{DISCOVERY_SECONDS:g}",
        "drain": str(DRAIN_SECONDS),
        "total": str(TOTAL_SECONDS),
        "stale": f"{STALE_SECONDS / 60:g}",
        "retry": f"{LAST_RETRY:g}",
        "trial": f"{PATIENCE:g}",
        "asked": str(MOST_ASKED),
        "reasons": table(("Reason", "Meaning", "What to do"), map(_describe_reason, REASONS)),
        "rights": table(("Kind", "Verbs", "Needed"), map(_describe_right, list_rights())),
        "settings": table(("Setting", "What it is", "Default"), _list_settings()),
        "differences": "\n".join(f"* {difference.text}" for difference in list_met_differences()),
        "sentences": table(("Sentence",), ([text] for text in list_sentences())),
    }
    text = TEMPLATE.read_text()
    assert facts.keys() == set(re.findall(r"@(\w+)@", text))
    return re.sub(r"@(\w+)@", lambda match: facts[match[1]], text)


def render_access_file() -> str:
    """The rights of the daemon as a file of manifests."""
    note = "# The rights of the daemon: what it does on a cluster, and no more. Written by `python -m docs.generate`.\n"
    return note + yaml.safe_dump_all(render_access("reconciler", "reconciler"), sort_keys=False)


def list_sentences() -> list[str]:
    """The sentences of the condition NotEnforced at a cluster; `…` depends on the workload."""
    texts = [
        *collect_texts("reconciler/engines/workload/environment.py", "unset_variables"),
        *collect_texts(f"{RENDERING}/limitations.py"),
        *collect_texts(f"{RENDERING}/routes.py", "list_route_faults"),
        *collect_texts(f"{RENDERING}/routes.py", "_describe_site"),
        *(f"A route of the domain … {fault}." for fault in _list_route_faults()),
    ]
    return [text for text in dict.fromkeys(texts) if " " in text and text != _WHOLE_FAULT]


def _list_route_faults() -> Iterator[str]:
    for top in modules()[f"{RENDERING}/routes.py"].body:
        if isinstance(top, ast.FunctionDef) and top.name == "_find_fault":
            for node in ast.walk(top):
                value = node.value if isinstance(node, ast.Return) else None
                if isinstance(value, ast.JoinedStr):
                    yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in value.values)
                elif isinstance(value, ast.Constant) and value.value:
                    yield str(value.value)


def _list_settings() -> Iterator[tuple[str, str, str]]:
    location = load_schema("settings")["properties"]["locations"]["additionalProperties"]
    for field in fields(location["properties"]["cluster"]):
        if not field.path.endswith("[]"):
            yield f"`{field.path}`", describe_meaning(field.schema), default(field)


def _describe_reason(reason: Reason) -> tuple[str, str, str]:
    text = reason.texts[Use.RESOURCE]
    return f"`{reason}`", text.meaning, text.advice


def _describe_right(right: Right) -> tuple[str, str, str]:
    return f"`{right}`", ", ".join(right.verbs), "where it is served or used" if right.optional else "always"
