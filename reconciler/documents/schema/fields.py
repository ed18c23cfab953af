"""Fields of manifests, from their schemas: which there are, what they take, and what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
}

Schema = dict[str, Any]


class Field(NamedTuple):
    """One field of a schema: its path, its values, and the class of its changes."""

    path: str
    schema: Schema
    required: bool
    change: str


def describe_values(schema: Schema) -> str:
    """The values that a field takes: its type, what is allowed, and the bounds."""
    if "x-host" in schema:
        return "text, or its place on the host"
    parts = [_describe_type(schema), *_list_bounds(schema), *_list_choices(schema)]
    if "deprecated" in schema:
        parts.append("deprecated")
    return "; ".join(parts)


def describe_meaning(schema: Schema) -> str:
    """The description of a field, and the values that it refuses."""
    refused = schema.get("not", {}).get("description", "")
    description: str = schema["description"]
    unmodelled = schema.get("x-unmodelled", "")
    without = f" Has no effect here; the platform {unmodelled}." if unmodelled else ""
    for each, does in schema.get("x-unmodelled-values", {}).items():
        if each in schema.get("enum", ()):
            without += f" `{each}` has no effect here; the platform {does}."
    return description + (f" Refused: {refused}." if refused else "") + without


def list_fields(field: Field) -> list[Field]:
    """The fields right below ``field``: of a list, those of its entries."""
    holder = get_entry_schema(field.schema)
    required = holder.get("required", ())
    return [
        Field(f"{field.path}.{name}", child, name in required, child.get("x-change", field.change))
        for name, child in holder.get("properties", {}).items()
    ]


def get_entry_schema(schema: Schema) -> Schema:
    """The schema of the mapping that ``schema`` holds: of a list, that of an entry; of any key, that of its value."""
    while "properties" not in schema:
        inner = schema.get("items") or schema.get("additionalProperties")
        if not isinstance(inner, dict):
            return schema
        schema = inner
    return schema


def _describe_type(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "x-link" in schema:
        return f"link to {_name_kinds(schema)}"
    declared = schema.get("type", "object")
    text = " or ".join(TYPES[name] for name in ([declared] if isinstance(declared, str) else declared))
    items = schema.get("items", {})
    if "x-link" in items:
        return f"{text} of links to {_name_kinds(items)}"
    return f"{text} of {_describe_type(items)}" if items and not items.get("properties") else text


def _name_kinds(schema: Schema) -> str:
    return "anything" if schema["x-link"] == ["*"] else f"a {' or '.join(schema['x-link'])}"


def _list_bounds(schema: Schema) -> Iterator[str]:
    if "x-pattern-words" in schema:
        yield schema["x-pattern-words"]
    for low, high, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
        ("minProperties", "maxProperties", " entries"),
    ):
        least, most = schema.get(low), schema.get(high)
        if least is not None and most is not None:
            yield f"{least} to {most}{unit}"
        elif least == 1 and unit:
            yield "not empty"
        elif most is not None:
            yield f"at most {most}{unit}"
        elif least not in (None, 0) or (least == 0 and not unit):
            yield f"at least {least}{unit}"


def _list_choices(schema: Schema) -> Iterator[str]:
    """Which fields go together; alternatives in a schema only name required fields."""
    for keyword, words in (("oneOf", "exactly one of"), ("anyOf", "at least one of")):
        names = [f"`{name}`" for part in schema.get(keyword, ()) for name in part.get("required", ())]
        if names:
            yield f"{words} {', '.join(names)}"
    for part in (schema, *schema.get("allOf", ())):
        names = [f"`{name}`" for name in part.get("not", {}).get("required", ())]
        if names:
            yield f"not both {' and '.join(names)}"
