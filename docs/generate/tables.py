"""Markdown tables, and the fields of a schema as their rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
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


def table(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = list(heading)
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def fields(schema: Schema, path: str = "", change: str = "in-place") -> Iterator[Field]:
    """Every field below ``schema``, parents first; entries of lists under ``[]``, values under any key under ``.*``."""
    change = schema.get("x-change", change)
    if "x-host" in schema:
        return
    for name, child in schema.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        own = child.get("x-change", change)
        yield Field(where, child, name in schema.get("required", ()), own)
        yield from fields(child, where, own)
    for keyword, mark in (("items", "[]"), ("additionalProperties", ".*")):
        child = schema.get(keyword)
        if isinstance(child, dict):
            own = child.get("x-change", change)
            if not child.get("properties"):
                yield Field(path + mark, child, False, own)
            yield from fields(child, path + mark, own)


def takes(schema: Schema) -> str:
    """The values that a field takes: its type, what is allowed, and the bounds."""
    if "x-host" in schema:
        return "text, or its place on the host"
    parts = [_type(schema), *_bounds(schema), *_choices(schema)]
    if "deprecated" in schema:
        parts.append("deprecated")
    return "; ".join(parts)


def default(field: Field) -> str:
    """The default, ``required``, or nothing."""
    if field.required:
        return "**required**"
    if "default" not in field.schema:
        return ""
    return f"`{json.dumps(field.schema['default'])}`"


def meaning(schema: Schema) -> str:
    """The description of a field, and the values that it refuses."""
    refused = schema.get("not", {}).get("description", "")
    description: str = schema["description"]
    unmodelled = schema.get("x-unmodelled", "")
    without = f" Has no effect here; the platform {unmodelled}." if unmodelled else ""
    for each, does in schema.get("x-unmodelled-values", {}).items():
        if each in schema.get("enum", ()):
            without += f" `{each}` has no effect here; the platform {does}."
    return description + (f" Refused: {refused}." if refused else "") + without


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "x-link" in schema:
        return f"link to {_kinds(schema)}"
    declared = schema.get("type", "object")
    text = " or ".join(TYPES[name] for name in ([declared] if isinstance(declared, str) else declared))
    items = schema.get("items", {})
    if "x-link" in items:
        return f"{text} of links to {_kinds(items)}"
    return f"{text} of {_type(items)}" if items and not items.get("properties") else text


def _kinds(schema: Schema) -> str:
    return "anything" if schema["x-link"] == ["*"] else f"a {' or '.join(schema['x-link'])}"


def _bounds(schema: Schema) -> Iterator[str]:
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


def _choices(schema: Schema) -> Iterator[str]:
    """Which fields go together; alternatives in a schema only name required fields."""
    for keyword, words in (("oneOf", "exactly one of"), ("anyOf", "at least one of")):
        names = [f"`{name}`" for part in schema.get(keyword, ()) for name in part.get("required", ())]
        if names:
            yield f"{words} {', '.join(names)}"
    for part in (schema, *schema.get("allOf", ())):
        names = [f"`{name}`" for name in part.get("not", {}).get("required", ())]
        if names:
            yield f"not both {' and '.join(names)}"
