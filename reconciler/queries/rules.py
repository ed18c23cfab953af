"""Rules: all by section, or one by its name, with examples read from its page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reconciler.convert import rules as conversions
from reconciler.documents.schema.loader import find_shipped_path
from reconciler.errors import NotFoundError
from reconciler.model.rule import PAGE, Rule
from reconciler.queries.existence import did_you_mean
from reconciler.render.rules import Paragraph
from reconciler.rulebook import load_rulebook, load_sections

CONVERSIONS = "docs/convert.md"
"""The page with the rules of `convert` and `import`, which have no examples of their own."""


class Explanation(NamedTuple):
    """A rule, the page that describes it, and its examples."""

    rule: Rule
    page: str
    examples: list[Paragraph]


def list_rules(severity: str | None) -> dict[str, list[Rule]]:
    """The rules of ``severity`` (None: any) by section, in order of their names."""
    return {
        title: sorted((rule for rule in rules if severity in (None, rule.severity)), key=lambda rule: rule.id)
        for title, rules in load_sections().items()
    }


def explain_rule(name: str) -> Explanation:
    """The rule ``name`` with its examples. Raises NotFoundError with the nearest name."""
    book = load_rulebook() | conversions.RULEBOOK
    if name not in book:
        hint = did_you_mean(name, book) or "; `reconciler rules` lists them"
        raise NotFoundError(f"there is no rule {name!r}{hint}")
    if name.startswith(("convert-", "import-")):
        return Explanation(book[name], CONVERSIONS, [])
    return Explanation(book[name], book[name].page, list(_examples_of(name)))


def _examples_of(rule: str) -> Iterator[Paragraph]:
    """Return the examples of the rule ``rule``: everything after its source. Raises FileNotFoundError."""
    _, _, section = find_shipped_path(PAGE).read_text().partition(f"\n### {rule}\n")
    _, _, examples = section.partition("\nSource: ")
    fence, block = "", list[str]()
    for line in examples.split("\n")[1:]:
        if fence and line == fence:
            yield Paragraph("\n".join(block), verbatim=True)
            fence, block = "", []
        elif fence:
            block.append(line)
        elif line.startswith("```"):
            fence = line.rstrip("abcdefghijklmnopqrstuvwxyz")
        elif line.startswith("#"):
            return
        elif line:
            yield Paragraph(line.replace("`", ""), verbatim=False)
