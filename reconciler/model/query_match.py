"""Matches resources against queries (docs/platform/fields.md#queries)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Body = Mapping[str, Any]

MOST_COMPARISONS = 200_000
"""The most comparisons of a term with a resource in the rules of one revision: a quarter of a second."""


class QueryBudget:
    """The remaining comparisons of terms with resources."""

    def __init__(self, left: int = MOST_COMPARISONS) -> None:
        self._left = left

    def take(self, query: Body, resources: int) -> bool:
        """Whether the budget is enough to compare ``query`` with so many resources; if so, reduces it."""
        count = len((query.get("spec") or {}).get("terms", ())) * resources
        if count > self._left:
            return False
        self._left -= count
        return True


def matches(query: Body, body: Body) -> bool:
    """Whether the query selects the resource ``body``."""
    spec = query.get("spec") or {}
    verdicts = [_holds(term, body) for term in spec.get("terms", ())]
    match = spec.get("match", "all")
    if match == "any":
        return any(verdicts)
    return not any(verdicts) if match == "none" else all(verdicts)


def _holds(term: Body, body: Body) -> bool:
    found = (body.get("tags") or {}).get(term["tag"]) if "tag" in term else _property(term.get("property", ""), body)
    op = term.get("op", "=")
    if op in ("exists", "!exists"):
        return (found is not None) is (op == "exists")
    if found is None:
        return bool(op == "!=")
    return bool(_COMPARE[op](_text(found), _text(term.get("value", ""))))


def _property(path: str, body: Any) -> Any:
    for part in path.split("."):
        body = body.get(part) if isinstance(body, Mapping) else None
    return body


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ordered(left: str, right: str) -> int:
    try:
        return (float(left) > float(right)) - (float(left) < float(right))
    except ValueError:
        return (left > right) - (left < right)


def _fits(text: str, parts: list[str]) -> bool:
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


_COMPARE: dict[str, Callable[[str, str], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: _ordered(left, right) > 0,
    ">=": lambda left, right: _ordered(left, right) >= 0,
    "<": lambda left, right: _ordered(left, right) < 0,
    "<=": lambda left, right: _ordered(left, right) <= 0,
    "~": lambda left, right: _fits(left, right.split("*")) or right in left,
}
