"""One JSON Schema for both validators: corrects where jsonschema differs from jsonschema-rs.

Some errors have more details than those of jsonschema: the message of a missing or unknown field is its name, and the
path of an error about a field's name includes the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """``pattern`` of a schema, compiled so that both validators agree."""
    # Python's ``$`` also matches before a closing newline, ECMA's and Rust's do not.
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


def _check_pattern(_: Validator, pattern: str, instance: object, schema: Any) -> Iterator[ValidationError]:
    # For a text that is too long, the length is reported; a pattern of Python would need memory in proportion.
    if not isinstance(instance, str) or len(instance) > schema.get("maxLength", len(instance)):
        return
    if not compile_pattern(pattern).search(instance):
        yield ValidationError(pattern)


def _check_required(_: Validator, names: list[str], instance: object, __: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        yield from (ValidationError(name) for name in names if name not in instance)


def _check_additional_properties(
    validator: Validator, rest: Any, instance: object, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    properties = schema.get("properties", {})
    for name in instance:
        if name in properties:
            continue
        if rest is False:
            yield ValidationError(name, path=(name,))
        else:
            yield from validator.descend(instance[name], rest, path=name)  # type: ignore[attr-defined]


def _property_names(validator: Validator, names: Any, instance: object, _: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for name in instance:
            yield from validator.descend(name, names, path=name)  # type: ignore[attr-defined]


SchemaValidator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        "pattern": _check_pattern,
        "required": _check_required,
        "additionalProperties": _check_additional_properties,
        "propertyNames": _property_names,
    },
)
"""The validator class that finds every error, slowly."""


def _accepts_value(schema: Any, value: Any) -> bool:
    """Whether jsonschema-rs accepts ``value``; ``schema`` is part of a cached one."""
    quick = _QUICK.get(id(schema))
    if quick is None:
        import jsonschema_rs

        quick = _QUICK[id(schema)] = jsonschema_rs.Draft202012Validator(schema)
    return bool(quick.is_valid(value))


_QUICK: dict[int, Any] = {}


def _check_properties(
    validator: Any, properties: dict[str, Any], instance: object, _: Any
) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for name, schema in properties.items():
            if name in instance and not _accepts_value(schema, instance[name]):
                yield from validator.descend(instance[name], schema, path=name, schema_path=name)


def _check_items(validator: Any, items: Any, instance: object, _: Any) -> Iterator[ValidationError]:
    if isinstance(instance, list):
        for index, item in enumerate(instance):
            if not _accepts_value(items, item):
                yield from validator.descend(item, items, path=index)


def _sparing_additional(validator: Validator, rest: Any, instance: object, schema: Any) -> Iterator[ValidationError]:
    if rest is False or not isinstance(instance, dict):
        yield from _check_additional_properties(validator, rest, instance, schema)
        return
    properties = schema.get("properties", {})
    wrong = {
        name: value for name, value in instance.items() if name not in properties and not _accepts_value(rest, value)
    }
    yield from _check_additional_properties(validator, rest, wrong, schema)


def _sparing_names(validator: Validator, names: Any, instance: object, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        yield from _property_names(
            validator, names, {name: None for name in instance if not _accepts_value(names, name)}, schema
        )


Sparing = extend(  # type: ignore[no-untyped-call]
    SchemaValidator,
    {
        "properties": _check_properties,
        "items": _check_items,
        "additionalProperties": _sparing_additional,
        "propertyNames": _sparing_names,
    },
)
"""A ``SchemaValidator`` that skips what jsonschema-rs accepts: only faulty parts of a document cost time."""


class SchemaError(NamedTuple):
    """One breach of a schema by a document.

    ``keyword`` of ``schema`` requires ``asked``, and ``value``, at ``path``, does not match. ``field`` is the missing
    or unknown field; ``naming``: the breach is in the name of a field. ``written`` is the text of a number or boolean,
    if known; ``required``: the mapping around it must have the field.
    """

    keyword: str
    asked: Any
    value: Any
    schema: dict[str, Any]
    path: tuple[str | int, ...]
    field: str
    naming: bool
    written: str | None = None
    required: bool = False


def list_breaches(validator: Validator, value: Any) -> Iterator[SchemaError]:
    """All breaches by ``value`` of the schema of ``validator`` (``SchemaValidator`` or ``Sparing``)."""
    for error in validator.iter_errors(value):
        where: Any = error
        yield SchemaError(
            str(error.validator),
            where.validator_value,
            where.instance,
            where.schema,
            tuple(error.absolute_path),
            error.message,
            "propertyNames" in error.absolute_schema_path,
        )


def schemas_at(schema: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[dict[str, Any]]:
    """``schema`` and the schema of each step of ``path``, as far as they exist."""
    here: Any = schema
    yield here
    for part in path:
        rest = here.get("additionalProperties")
        here = here.get("properties", {}).get(part, rest) if isinstance(part, str) else here.get("items")
        if not isinstance(here, dict):
            return
        yield here
