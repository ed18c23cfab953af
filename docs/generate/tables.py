"""Markdown tables, and the fields of a schema as their rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from reconciler.documents.schema.fields import Field, Schema


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


def default(field: Field) -> str:
    """The default, ``required``, or nothing."""
    if field.required:
        return "**required**"
    if "default" not in field.schema:
        return ""
    return f"`{json.dumps(field.schema['default'])}`"
