"""Checks one document by the rules of its kind; collects their questions about other resources."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from reconciler.manifests.normalize import whole_numbers
from reconciler.manifests.rules import rules_of
from reconciler.model.finding import Flaw, Lookup, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.base import Envelope
from reconciler.model.resource import LookupRequest, pointer_text
from reconciler.model.rule import Rule

if TYPE_CHECKING:
    from reconciler.documents.schema.dialect import SchemaError

MOST_FAULTS = 500
"""The maximum of faults of one file that are reported one by one."""

_EMPTY: dict[str, Any] = {"object": {}, "array": [], "string": "", "integer": 0, "number": 0, "boolean": False}

_TOO_LONG = {"maxLength": "string", "maxItems": "array", "maxProperties": "object"}
"""Keyword of a value that is too long for a rule to check → the type of the value."""


class InvalidValue(msgspec.Struct, frozen=True):
    """A value that does not match the schema; with ``types``, the expected ones, rules do not see it."""

    at: Pointer
    types: Sequence[str] = ()


class RuleResult(msgspec.Struct, frozen=True):
    """The faults that rules find in a document, and their questions."""

    flaws: list[tuple[Rule, Flaw]]
    questions: list[LookupRequest]


def check_rules(kind: Kind, value: dict[str, Any], torn: Sequence[InvalidValue] = ()) -> RuleResult:
    """Check ``value``, as written except the ``torn`` parts, by the rules of ``kind``.

    No fault depends on a torn value, and there are at most ``MOST_FAULTS``.
    """
    rules = rules_of(kind)
    view = _convert_to_view(value, rules.view)
    flaws: list[tuple[Rule, Flaw]] = []
    questions: list[LookupRequest] = []
    for rule, check in rules.entries if view is not None else ():
        for result in check(view):
            if torn and any(_overlaps_pointer(result, invalid_value.at) for invalid_value in torn):
                continue
            if isinstance(result, Lookup):
                questions.append(LookupRequest(rule.id, result.target, pointer_text(result.at), result.detail))
                continue
            flaws.append((rule, result))
            if len(flaws) > MOST_FAULTS:
                return RuleResult(flaws, questions)
    return RuleResult(flaws, questions)


def without_invalid(value: dict[str, Any], torn: Iterable[InvalidValue]) -> dict[str, Any]:
    """A copy of ``value`` in which what has the wrong type is left out, or in a list takes no room of its own."""
    whole: dict[str, Any] = _copy_value(value)
    for invalid_value in torn:
        if invalid_value.types and invalid_value.at:
            _omit_invalid_value(whole, invalid_value)
    return whole


def invalid_of(breach: SchemaError) -> InvalidValue:
    """The place that ``breach`` makes unusable: a value of the wrong type, or a missing field."""
    if breach.keyword == "type":
        return InvalidValue(breach.path, [breach.asked] if isinstance(breach.asked, str) else breach.asked)
    if breach.keyword in _TOO_LONG and not breach.naming:
        return InvalidValue(breach.path, (_TOO_LONG[breach.keyword],))
    return InvalidValue((*breach.path, breach.field) if breach.keyword == "required" else breach.path)


def list_missing_parts(places: Collection[Pointer]) -> list[InvalidValue]:
    """The parts to omit if the values at ``places`` are unknown: for an item of a list the whole list."""
    invalid_values = []
    for at in sorted(places, key=str):
        while at and isinstance(at[-1], int):
            at = at[:-1]
        invalid_values.append(InvalidValue(at, ("string",)))
    return invalid_values


def is_within_places(at: Pointer, places: Container[Pointer]) -> bool:
    """Whether ``at`` is at or below one of ``places``."""
    return any(at[:length] in places for length in range(len(at) + 1))


def _omit_invalid_value(whole: dict[str, Any], torn: InvalidValue) -> None:
    holder: Any = whole
    for step in torn.at[:-1]:
        holder = _get_member(holder, step)
    last = torn.at[-1]
    if isinstance(holder, dict):
        holder.pop(last, None)
    elif isinstance(holder, list):
        holder[int(last)] = _copy_value(_EMPTY[torn.types[0]])


def _get_member(holder: Any, step: str | int) -> Any:
    if isinstance(holder, dict):
        return holder.get(step)
    return holder[int(step)] if isinstance(holder, list) else None


def _copy_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy_value(member) for name, member in value.items()}
    return [_copy_value(item) for item in value] if isinstance(value, list) else value


def _convert_to_view(value: dict[str, Any], view: type[Envelope]) -> Envelope | None:
    try:
        return msgspec.convert(value, view)
    except msgspec.ValidationError:
        # 80.0 is a whole number for a schema and none for a view.
        try:
            return msgspec.convert(whole_numbers(value), view)
        except msgspec.ValidationError:
            return None


def _overlaps_pointer(result: Flaw | Lookup, torn: Pointer) -> bool:
    places = (result.at, *result.also) if isinstance(result, Flaw) else (result.at,)
    return any(at[: len(torn)] == torn[: len(at)] for at in places)
