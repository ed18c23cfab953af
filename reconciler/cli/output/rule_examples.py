"""The examples of rules, read from their page, which is part of the package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reconciler.documents.schema.loader import shipped
from reconciler.model.rule import PAGE


class Paragraph(NamedTuple):
    """A line of text, or with ``verbatim`` the lines of a file or an output."""

    text: str
    verbatim: bool


def examples_of(rule: str) -> Iterator[Paragraph]:
    """Return the examples of the rule ``rule``: everything after its source. Raises FileNotFoundError."""
    _, _, section = shipped(PAGE).read_text().partition(f"\n### {rule}\n")
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
