"""Breaches of a schema as faults for people: what is wrong, what is allowed, and the probable correction."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from reconciler.documents.positions import Pointer, Positions
from reconciler.documents.schema.dialect import SchemaError, schemas_at
from reconciler.documents.schema.loader import field_names
from reconciler.documents.schema.suggestions import suggest_fix
from reconciler.model.finding import Fault
from reconciler.model.suggest import find_closest_word
from reconciler.printable import make_visible_text

QUOTED = 60
_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_SIZES = {
    "minLength": ("characters", "at least"),
    "maxLength": ("characters", "at most"),
    "minItems": ("entries", "at least"),
    "maxItems": ("entries", "at most"),
    "maxProperties": ("entries", "at most"),
}
_AMOUNT = re.compile("([0-9]+) *(?:s|secs?|seconds?|g|gb|gi|gib)", re.IGNORECASE | re.ASCII)
"""Whole numbers with a unit: seconds or gigabytes."""
_FIELDS_OF_OTHERS = frozenset({"gvc", "spec", "metadata", "apiVersion"})
"""Fields of other manifests that secrets do not have."""


class Advice(NamedTuple):
    """The rule, what is wrong, and a way out."""

    rule: str
    message: str
    suggestion: str = ""


def to_faults(breaches: Iterable[SchemaError], schema: dict[str, Any], places: Positions) -> list[Fault]:
    """Breaches of ``schema`` as faults, sorted by place.

    No value below ``x-secret`` is quoted, nor one that may belong there.
    """
    chosen = _without_echoes(breaches)
    slippery = any(field.get("x-secret") for field in schema.get("properties", {}).values())
    hidden = (
        (schema_error, _is_secret_value(schema, schema_error.path) or (slippery and _may_be_secret(schema_error)))
        for schema_error in chosen
    )
    faults = {_make_fault(_in_place(breach, schema, places), secret, places) for breach, secret in hidden}
    return sorted(faults, key=lambda fault: (fault.line, fault.column, fault.rule, fault.message, fault.suggestion))


def _without_echoes(breaches: Iterable[SchemaError]) -> list[SchemaError]:
    """For a wrong type or a text that is too long, report only that: other keywords would repeat it."""
    wrong: dict[Pointer, SchemaError] = {}
    rest: list[SchemaError] = []
    for breach in breaches:
        if breach.keyword != "type":
            rest.append(breach)
        elif breach.path not in wrong or len(_list_types(breach)) < len(_list_types(wrong[breach.path])):
            wrong[breach.path] = breach
    long = {(breach.path, breach.naming) for breach in rest if breach.keyword == "maxLength"}
    rest = [breach for breach in rest if breach.keyword == "maxLength" or (breach.path, breach.naming) not in long]
    return [*wrong.values(), *(breach for breach in rest if breach.naming or breach.path not in wrong)]


def _make_fault(breach: SchemaError, secret: bool, places: Positions) -> Fault:
    general, message, suggestion = _PHRASES[breach.keyword](breach, secret)
    if breach.keyword == "additionalProperties" or breach.naming:
        line, column = places.key(breach.path)
    elif general in ("exactly-one", "exclusive") and (present := _list_present_fields(breach)):
        line, column = places.key((*breach.path, present[-1]))
    else:
        line, column = places.value(breach.path)
    return Fault(
        _get_named_rule(breach) or general, message, line, column, suggestion or _get_annotation(breach, "x-hint")
    )


def _in_place(breach: SchemaError, schema: dict[str, Any], places: Positions) -> SchemaError:
    """``breach`` with facts from the file and from the whole ``schema``."""
    if breach.naming or not breach.path:
        return breach
    *around, name = breach.path
    holder = next(islice(schemas_at(schema, tuple(around)), len(around), None), None)
    required = name in holder.get("required", ()) if holder else False
    return breach._replace(written=places.written_text(breach.path), required=required)


def _get_named_rule(breach: SchemaError) -> str:
    """The rule that the schema names for a breach; "" if a general rule applies."""
    return "" if breach.keyword in _GENERAL else _get_annotation(breach, "x-rule")


def _get_annotation(breach: SchemaError, note: str) -> str:
    """The annotation ``note`` for a breach; in a `not`, that of the inner schema first."""
    inner = breach.asked.get(note) if breach.keyword == "not" else None
    text: str = inner or breach.schema.get(note, "")
    return text


def _describe_unknown_field(breach: SchemaError, secret: bool) -> Advice:
    fields = sorted(name for name, value in breach.schema.get("properties", {}).items() if not value.get("readOnly"))
    near = _find_nearest_name(breach.field, fields)
    missing = [name for name in fields if name not in breach.value]
    suggestion = _shorten_text(f"known here: {', '.join(missing)}", 200) if missing else ""
    if near:
        suggestion = f"did you mean `{near}`?"
    if meant := breach.schema.get("x-meant", {}).get(breach.field):
        suggestion = f"here it is `{meant}`"
    # A name in some schema is no secret, even after a lost indentation.
    named = not secret or breach.field in field_names()
    message = f"unknown field {_quote_value(breach.field)}" if named else "unknown field"
    return Advice("unknown-field", message, suggestion)


def _describe_missing_field(breach: SchemaError, _: bool) -> Advice:
    about = breach.schema.get("properties", {}).get(breach.field, {})
    example = next(iter(about.get("examples") or about.get("enum") or ()), None)
    suggestion = f"for example `{breach.field}: {_format_value(example)}`" if isinstance(example, str | int) else ""
    return Advice("missing-field", f"missing field `{breach.field}`", suggestion)


def _wrong_type(breach: SchemaError, secret: bool) -> Advice:
    value, types = breach.value, _list_types(breach)
    expected = " or ".join(_KINDS[name] for name in types)
    got = _kind_of(value)
    if not secret and isinstance(value, bool | int | float | str):
        got = f"{got} ({_as_written(breach)})"
    return Advice("wrong-type", f"expected {expected}, got {got}", _suggest_remedy(breach, types, secret))


def _suggest_remedy(breach: SchemaError, types: list[str], secret: bool) -> str:
    value = breach.value
    if value is None:
        empty = types == ["string"] and not {"pattern", "enum", "minLength"} & breach.schema.keys()
        if empty:
            return 'give it a value; an empty text is ""'
        if breach.path and isinstance(breach.path[-1], int):
            return "give it a value, or remove the entry"
        return "give it a value" if breach.required else "give it a value, or leave the field out"
    if "string" in types and isinstance(value, bool | int | float):
        return _as_text(breach, secret)
    if isinstance(value, str) and not secret and _would_fit_unquoted(value, types):
        return f"write {value.lower()} without quotes"
    if isinstance(value, str) and not secret and "integer" in types and (amount := _AMOUNT.fullmatch(value)):
        return f"write {amount[1]}"
    return "begin each entry with `- `" if types == ["array"] and "x-hint" not in breach.schema else ""


def _as_text(breach: SchemaError, secret: bool) -> str:
    """Advice for a number or boolean in a field for text."""
    if secret:
        return "put quotes around it"
    if breach.written is None and isinstance(breach.value, float):
        # The value of an alias: its text is where the anchor is.
        return "put quotes around it where it is written"
    text, schema = _as_written(breach), breach.schema
    if re.search(schema.get("pattern", ""), text):
        return f'put quotes around it: "{text}"'
    return f"write {suggest_fix(text, schema) or schema.get('x-pattern-words', 'text')}"


def _would_fit_unquoted(value: str, types: list[str]) -> bool:
    if "boolean" in types:
        return value.lower() in ("true", "false")
    number = r"-?[0-9]+(\.[0-9]+)?" if "number" in types else r"-?[0-9]+"
    return bool({"integer", "number"} & set(types)) and re.fullmatch(number, value) is not None


def _not_listed(breach: SchemaError, secret: bool) -> Advice:
    allowed = [str(item) for item in breach.asked]
    near = _find_nearest_name(str(breach.value), allowed)
    suggestion = f"did you mean `{near}`?" if near else ""
    if meant := breach.schema.get("x-meant", {}).get(str(breach.value)):
        suggestion = f"here it is `{meant}`"
    listed = ", ".join(f"`{item}`" for item in allowed)
    only = "only " if len(allowed) > 1 else "it must be "
    return Advice("not-allowed", f"{_describe_value(breach, secret)} is not allowed here, {only}{listed}", suggestion)


def _describe_bounds(breach: SchemaError, secret: bool) -> Advice:
    low, high = breach.schema.get("minimum"), breach.schema.get("maximum")
    if low is not None and high is not None:
        span = f"from {low} to {high}"
    else:
        span = f"at least {low}" if high is None else f"at most {high}"
    nearest = "" if secret else f"the nearest is {breach.asked}"
    return Advice("out-of-bounds", f"{_describe_value(breach, secret)} is out of bounds, allowed is {span}", nearest)


def _describe_size(breach: SchemaError, _: bool) -> Advice:
    unit, side = _SIZES[breach.keyword]
    count = len(breach.value)
    if count == 0:
        return Advice("out-of-bounds", "must not be empty")
    subject = "the field's name has" if breach.naming else "has"
    return Advice("out-of-bounds", f"{subject} {count} {unit}, allowed are {side} {breach.asked}")


def _describe_format(breach: SchemaError, secret: bool) -> Advice:
    words = breach.schema.get("x-pattern-words", breach.schema.get("description", "another form"))
    meant = "" if secret or breach.naming else suggest_fix(breach.value, breach.schema)
    return Advice(
        "bad-format", f"{_describe_value(breach, secret)} does not fit: expected {words}", meant and f"write {meant}"
    )


def _describe_refusal(breach: SchemaError, secret: bool) -> Advice:
    fields = breach.asked.get("required")
    if fields:
        return Advice("exclusive", f"`{fields[0]}` and `{fields[1]}` exclude each other", "keep one of them")
    return Advice("not-allowed", f"{_describe_value(breach, secret)} is refused: {breach.asked['description']}")


def _describe_choice(breach: SchemaError, _: bool) -> Advice:
    fields = [f"`{branch['required'][0]}`" for branch in breach.asked]
    amount = "exactly one" if breach.keyword == "oneOf" else "at least one"
    listed = ", ".join(fields[:-1]) + " and " + fields[-1]
    present = [f"`{name}`" for name in _list_present_fields(breach)]
    message = f"{amount} of {listed} must be given, here is {' and '.join(present) or 'none'}"
    return Advice("exactly-one", message, "keep one of them" if present else "")


_PHRASES: dict[str, Callable[[SchemaError, bool], Advice]] = {
    "additionalProperties": _describe_unknown_field,
    "required": _describe_missing_field,
    "type": _wrong_type,
    "enum": _not_listed,
    "minimum": _describe_bounds,
    "maximum": _describe_bounds,
    **dict.fromkeys(_SIZES, _describe_size),
    "pattern": _describe_format,
    "not": _describe_refusal,
    "oneOf": _describe_choice,
    "anyOf": _describe_choice,
}
_GENERAL = frozenset({"type", "required", "additionalProperties"})
PHRASED = frozenset(_PHRASES)
"""Keywords that have a message; a schema with another keyword needs one here."""


def _list_present_fields(breach: SchemaError) -> list[str]:
    """The present fields of a choice, in the order of the document."""
    asked = breach.asked
    names = asked["required"] if isinstance(asked, dict) else [branch["required"][0] for branch in asked]
    return [name for name in breach.value if name in names]


def _is_secret_value(schema: dict[str, Any], path: Pointer) -> bool:
    """Whether ``path`` leads to or below a value that the schema marks ``x-secret``."""
    return any(mapping.get("x-secret") for mapping in islice(schemas_at(schema, path), 1, None))


def _may_be_secret(breach: SchemaError) -> bool:
    """Whether a breach is about a field or a text that may be a secret's value after a lost indentation."""
    unknown = breach.keyword == "additionalProperties" and breach.field not in _FIELDS_OF_OTHERS
    return unknown or (isinstance(breach.value, str) and len(breach.value.split()) > 1)


def _find_nearest_name(word: str, among: list[str]) -> str:
    """The probable meaning of ``word``; "" if no name is similar."""
    # Comparing costs the square of the length.
    if len(word) > QUOTED:
        return ""
    same = [item for item in among if item.lower() == word.lower()]
    return same[0] if same else find_closest_word(word, among)


def _list_types(breach: SchemaError) -> list[str]:
    return [breach.asked] if isinstance(breach.asked, str) else list(breach.asked)


def _kind_of(value: Any) -> str:
    names = {type(None): "nothing", bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "a mapping")


def _describe_value(breach: SchemaError, secret: bool) -> str:
    if secret:
        return "the field's name" if breach.naming else "the value"
    return _quote_value(breach.value if breach.written is None else breach.written)


def _as_written(breach: SchemaError) -> str:
    """The written text of a number or boolean, to quote it in advice."""
    return _format_value(breach.value if breach.written is None else breach.written)


def _quote_value(value: Any) -> str:
    return f"`{_format_value(value)}`" if value != "" else "an empty text"


def _format_value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return make_visible_text(_shorten_text(text, QUOTED))


def _shorten_text(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
