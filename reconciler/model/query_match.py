"""Matches resources against queries (docs/platform/fields.md#queries)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reconciler.model.resource_links import resource_links

Body = Mapping[str, Any]

MOST_COMPARISONS = 200_000
"""The most comparisons of a term with a resource in the rules of one revision: a quarter of a second."""


class QueryBudget:
    """The remaining comparisons of terms with resources."""

    def __init__(self, left: int = MOST_COMPARISONS) -> None:
        self._left = left

    def take(self, terms: int, resources: int) -> bool:
        """Whether the budget is enough to compare so many terms with so many resources; if so, reduces it."""
        count = terms * resources
        if count > self._left:
            return False
        self._left -= count
        return True


Selector = Callable[[Body], bool]


def term_count(query: Body) -> int:
    """The number of terms of ``query``."""
    return len((query.get("spec") or {}).get("terms", ()))


def matches_query(query: Body, body: Body, org: str) -> bool:
    """Whether the query selects the resource ``body`` of ``org``."""
    return make_selector(query, org)(body)


def make_selector(query: Body, org: str) -> Selector:
    """Reads the query once, for comparisons with many resources of ``org``: returns whether it selects one.

    A body has the fields ``kind`` and ``name``, and ``gvc`` in a GVC. The links of a resource follow from them alone,
    so a term about a link tells nothing about another resource.
    """
    spec = query.get("spec") or {}
    match = spec.get("match", "all")
    terms = [_link_term(term, org) if term.get("rel") else _make_term_selector(term) for term in spec.get("terms", ())]
    if match == "any":
        return lambda body: any(holds(body) for holds in terms)
    if match == "none":
        return lambda body: not any(holds(body) for holds in terms)
    return terms[0] if len(terms) == 1 else lambda body: all(holds(body) for holds in terms)


def _make_term_selector(term: Body) -> Selector:
    read = _make_tag_reader(term["tag"]) if term.get("tag") else _make_property_reader(term.get("property", ""))
    op = term.get("op", "=")
    if op in ("exists", "!exists"):
        return lambda body: (read(body) is not None) is (op == "exists")
    compare = _COMPARE[op](_format_value(term.get("value", "")))

    def holds(body: Body) -> bool:
        value = read(body)
        return op == "!=" if value is None else compare(_format_value(value))

    return holds


def _link_term(term: Body, org: str) -> Selector:
    rel, op = term["rel"], term.get("op", "=")
    value = _format_value(term.get("value", ""))
    if value.startswith("//"):
        value = f"/org/{org}/{value[2:]}"
    compare = _COMPARE["=" if op in ("!=", "exists", "!exists") else op](value)

    def holds(body: Body) -> bool:
        kind, gvc, name = (str(body.get(field) or "") for field in ("kind", "gvc", "name"))
        texts = [link.href for link in resource_links(kind, gvc, name, org) if link.rel == rel]
        if op in ("exists", "!exists"):
            return bool(texts) is (op == "exists")
        return any(map(compare, texts)) is (op != "!=")

    return holds


def _make_tag_reader(name: str) -> Callable[[Body], Any]:
    return lambda body: (body.get("tags") or {}).get(name)


def _make_property_reader(path: str) -> Callable[[Body], Any]:
    first, *parts = path.split(".")
    if not parts:
        return lambda body: body.get(first)

    def read(body: Any) -> Any:
        for part in (first, *parts):
            body = body.get(part) if isinstance(body, Mapping) else None
        return body

    return read


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compare_values(left: str, right: str) -> int:
    try:
        return (float(left) > float(right)) - (float(left) < float(right))
    except ValueError:
        return (left > right) - (left < right)


def fits_parts(text: str, parts: list[str]) -> bool:
    """Whether ``text`` consists of ``parts`` with any text between them; the time is linear in both."""
    first, *between = parts
    if not between:
        return text == first
    last = between.pop()
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for part in between:
        # The first occurrence leaves the most text for the parts after it.
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def _make_pattern_matcher(pattern: str) -> Callable[[str], bool]:
    parts = pattern.split("*")
    return lambda text: fits_parts(text, parts) or pattern in text


_COMPARE: dict[str, Callable[[str], Callable[[str], bool]]] = {
    "=": lambda right: lambda left: left == right,
    "!=": lambda right: lambda left: left != right,
    ">": lambda right: lambda left: _compare_values(left, right) > 0,
    ">=": lambda right: lambda left: _compare_values(left, right) >= 0,
    "<": lambda right: lambda left: _compare_values(left, right) < 0,
    "<=": lambda right: lambda left: _compare_values(left, right) <= 0,
    "~": _make_pattern_matcher,
}
"""For each operator and value, the function that compares a text with it."""
