"""docs/rules.md: every rule that a finding can name, with its examples."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from docs.generate import manifests, settings
from docs.generate.examples import shown
from docs.generate.markdown import headings
from reconciler.model.rule import Rule
from reconciler.rulebook import load_sections

DOCS = Path(__file__).parents[2] / "docs"

HEAD = """\
# Rules

A finding names its rule, the file, line and column, the problem and a suggestion. All findings of a revision are
reported in one pass. An error refuses the whole revision, or with `onInvalid: skip` its file; a warning or a notice
refuses nothing. `reconciler validate` exits with 1 only if there are errors.

The comment `# reconciler: ignore RULE reason` silences a warning or a notice of that rule, on its line or in the
comment lines right above it. Errors cannot be silenced.

Each rule has an example that breaks it, with the output of `reconciler validate`, and one that follows it. In a
comment that names a rule, `←` points to its own line and `↓` to the next one. The examples are also tests of the
program. `reconciler explain RULE` shows the same in a terminal.
"""


def page() -> str:
    """The text of the page."""
    parts = [HEAD, _contents()]
    for title, rules in load_sections().items():
        parts.append(f"## {title}\n")
        parts += [_section(rule) for rule in sorted(rules, key=lambda rule: rule.id)]
    return "\n".join(parts)


def _contents() -> str:
    lines = []
    for title, rules in load_sections().items():
        links = ", ".join(f"[{rule.id}](#{rule.id})" for rule in sorted(rules, key=lambda rule: rule.id))
        lines.append(f"**{title}**: {links}\n")
    return "\n".join(lines)


def _section(rule: Rule) -> str:
    return "\n".join(
        [
            f"### {rule.id}\n",
            f"*{rule.severity}* · {_escaped(rule.what)}\n",
            f"{_escaped(rule.why)}\n",
            f"Source: {_citation(rule.source)}.\n",
            *shown(rule.id),
        ]
    )


def _citation(source: str) -> str:
    """A link to what ``source`` names: a page with its section, or another standard."""
    path, _, anchor = source.removeprefix("docs/").partition("#")
    if path == source:
        return f"<{source}>"
    found = _headings(path)
    title, section = next(iter(found.values())), found.get(anchor, anchor)
    return f"[{title if section == title else f'{title}, {section}'}]({'' if path == 'rules.md' else path}#{anchor})"


@cache
def _headings(path: str) -> dict[str, str]:
    """The headings of a page by anchor, as its generator writes it now where it has one."""
    generated = {"manifests.md": manifests.page, "settings.md": settings.page, "rules.md": lambda: HEAD}
    return headings(generated[path]() if path in generated else (DOCS / path).read_text())


def _escaped(text: str) -> str:
    """``text`` with what Markdown would take for something else written as itself; code stays code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts)
