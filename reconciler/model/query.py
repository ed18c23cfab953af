"""A typed view of a query, which selects resources of a kind (docs/platform/fields.md#queries)."""

from __future__ import annotations

from reconciler.model.kinds.base import View

UNARY = frozenset({"exists", "!exists"})
"""Operators without a value."""


class Term(View, frozen=True):
    """One condition on a property, a relation or a tag; ``value`` is None if it is omitted."""

    property: str = ""
    rel: str = ""
    tag: str = ""
    op: str = "="
    value: str | float | bool | None = None


class QueryTerms(View, frozen=True):
    """The terms, and how many of them must hold: all, any or none."""

    match: str = "all"
    terms: tuple[Term, ...] = ()


class Query(View, frozen=True):
    """A selection among the resources of ``kind``; "" if the resource with the query implies the kind."""

    kind: str = ""
    spec: QueryTerms = QueryTerms()
