"""A rule: a requirement on manifests, with its reason and the page that describes it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.model.finding import Severity

PAGE = "docs/rules.md"
"""The reference page with a section on every rule, relative to the project's root."""


class Rule(msgspec.Struct, frozen=True):
    """One requirement with a stable id.

    ``what`` is the requirement in a sentence, ``why`` its reason. ``source`` is the page and anchor
    that describes it (``docs/platform/workload.md#probes``), or the address of another standard.
    """

    id: str
    severity: Severity
    what: str
    why: str
    source: str

    @property
    def page(self) -> str:
        """The section of the reference page about it."""
        return get_page_section(self.id)


def error_rule(name: str, what: str, why: str, source: str) -> Rule:
    """A rule whose breach is an error, as most are."""
    return Rule(name, Severity.ERROR, what, why, source)


def get_page_section(rule: str) -> str:
    """The section of the reference page about the rule with the id ``rule``."""
    return f"{PAGE}#{rule}"


def build_rulebook(rules: Iterable[Rule]) -> dict[str, Rule]:
    """``rules`` by id. Raises ValueError if two have the same id."""
    book: dict[str, Rule] = {}
    for rule in rules:
        if rule.id in book:
            raise ValueError(f"two rules are called {rule.id}")
        book[rule.id] = rule
    return book
