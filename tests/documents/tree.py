"""Walking schemas and values, for the tests of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reconciler.documents.reader import parse_documents

CASES = Path(__file__).parent.parent / "cases" / "schemas"


def full(name: str) -> list[Any]:
    """The documents that together show every field of the schema ``name``."""
    reading = parse_documents((CASES / f"{name}-full.yaml").read_bytes())
    assert not reading.faults
    return [document.value for document in reading.documents]


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in ``schema``, itself first, with the fields and keywords that lead to it."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}/{name}")
    for keyword in ("items", "additionalProperties", "propertyNames", "not", "if", "then", "else"):
        if isinstance(schema.get(keyword), dict):
            yield from nodes(schema[keyword], f"{path}/{keyword}()")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, child in enumerate(schema.get(keyword, ())):
            yield from nodes(child, f"{path}/{keyword}({index})")


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every place in ``schema`` where a value can stand, the root left out; ``[]`` is an item, ``{}`` a map's value."""
    named = schema.get("properties", {}).items()
    inner = [(f"{path}.{name}", child) for name, child in named]
    if "items" in schema:
        inner.append((f"{path}[]", schema["items"]))
    if isinstance(schema.get("additionalProperties"), dict):
        inner.append((f"{path}{{}}", schema["additionalProperties"]))
    for path_of_child, child in inner:
        if "title" in child or "$ref" in child or "type" in child:
            yield path_of_child, child
        yield from fields(child, path_of_child)
    for branch in schema.get("allOf", ()):
        condition = f"{path}<{branch.get('if', {}).get('properties')}>"
        # What a branch only narrows is explained where it stands without a condition.
        explained = {f"{condition}.{name}" for name, child in named if "title" in child}
        for place, field in fields(branch.get("then", {}), condition):
            if "title" in field or "$ref" in field or place not in explained:
                yield place, field


def met(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """The places of ``fields(schema)`` at which ``value`` has something."""
    if isinstance(value, list):
        for item in value:
            yield f"{path}[]"
            yield from met(schema["items"], item, f"{path}[]")
    if not isinstance(value, dict):
        return
    properties = schema.get("properties", {})
    for name, member in value.items():
        rest = schema.get("additionalProperties")
        field, child = (f"{path}.{name}", properties[name]) if name in properties else (f"{path}{{}}", rest)
        if isinstance(child, dict):
            yield field
            yield from met(child, member, field)
    for branch in schema.get("allOf", ()):
        wanted = branch.get("if", {}).get("properties", {})
        if wanted and all(value.get(name) == child["const"] for name, child in wanted.items()):
            yield from met(branch["then"], value, f"{path}<{wanted}>")
