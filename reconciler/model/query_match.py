"""Which resources a query object takes (docs/platform/fields.md#queries)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Body = Mapping[str, Any]


def matches(query: Body, body: Body) -> bool:
    """Whether ``body`` is among what a query object asks for."""
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


_COMPARE: dict[str, Callable[[str, str], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: _ordered(left, right) > 0,
    ">=": lambda left, right: _ordered(left, right) >= 0,
    "<": lambda left, right: _ordered(left, right) < 0,
    "<=": lambda left, right: _ordered(left, right) <= 0,
    "~": lambda left, right: (
        re.fullmatch(".*".join(map(re.escape, right.split("*"))), left) is not None or right in left
    ),
}
