"""The examples of rules: case files that come with the program, and what is printed of those that fail."""

from __future__ import annotations

from typing import NamedTuple

from reconciler.documents.schema.loader import shipped


class Examples(NamedTuple):
    """Manifests that break a rule, what `reconciler validate` prints of them, and ones that keep it."""

    failing: str
    printed: str
    passing: str


def examples_of(rule: str) -> Examples:
    """The examples of the rule with the id ``rule``. Raises FileNotFoundError where they do not come along."""
    folder = shipped("tests/cases/rules") / rule
    names = ("fails.yaml", "fails.txt", "passes.yaml")
    # Line by line, since some examples are about carriage returns and other breaks.
    return Examples(*((folder / name).read_bytes().decode("utf-8", "replace") for name in names))
