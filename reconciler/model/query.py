"""A typed view of a query: which resources of a kind are meant (docs/platform/fields.md#queries)."""

from __future__ import annotations

from reconciler.model.kinds.base import View

UNARY = frozenset({"exists", "!exists"})
"""Operators that compare with nothing."""


class Term(View, frozen=True):
    """One condition on a property, a relation or a tag; ``value`` is None where it is left out."""

    property: str = ""
    rel: str = ""
    tag: str = ""
    op: str = "="
    value: str | float | bool | None = None


class Conditions(View, frozen=True):
    """The terms, and how many of them must hold: all, any or none."""

    match: str = "all"
    terms: tuple[Term, ...] = ()


class Query(View, frozen=True):
    """A choice among the resources of ``kind``, which is "" where the holder decides."""

    kind: str = ""
    spec: Conditions = Conditions()
