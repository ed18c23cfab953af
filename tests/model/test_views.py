"""Typed views against the schemas: a view reads fields that a manifest can have, with the same defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import msgspec
import pytest

from reconciler.manifests.rules import rules_of
from reconciler.model.key import Kind
from reconciler.model.kinds.base import View
from reconciler.model.kinds.table import TABLE
from tests.project.tree import ROOT

Schema = dict[str, Any]
KINDS = sorted(kind for kind, traits in TABLE.items() if traits.view)


@cache
def document(file: str) -> Schema:
    """A schema file."""
    found: Schema = json.loads((ROOT / "schemas" / file).read_bytes())
    return found


def resolved(schema: Schema, file: str) -> tuple[Schema, str]:
    """``schema``, or what it refers to with what stands beside the reference, and the file that this is in."""
    while "$ref" in schema:
        name, _, pointer = schema["$ref"].partition("#")
        file = name or file
        schema_node: Any = document(file)
        for step in pointer.split("/")[1:]:
            schema_node = schema_node[step]
        schema = {**schema_node, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema, file


def views_in(annotation: Any) -> Iterator[tuple[type[View], bool]]:
    """The views in the type of a field, and whether they are items or members of it."""
    if isinstance(annotation, type) and issubclass(annotation, View):
        yield annotation, False
    for inner in get_args(annotation):
        container = getattr(annotation, "__origin__", None) in (tuple, dict)
        yield from ((view, many or container) for view, many in views_in(inner))


def differences(view: type[View], schema: Schema, file: str, path: str = "") -> Iterator[str]:
    """Fields that no manifest has, and defaults that are not those of the schema."""
    properties = schema.get("properties", {})
    for field in msgspec.structs.fields(view):
        field_path = f"{path}/{field.encode_name}"
        if field.encode_name not in properties:
            yield f"{field_path} is in no manifest"
            continue
        below, where = resolved(properties[field.encode_name], file)
        if isinstance(below.get("default"), str | int | float | bool) and field.default != below["default"]:
            yield f"{field_path} is {field.default!r} where it is left out, by the schema {below['default']!r}"
        for inner, many in views_in(field.type):
            target, its_file = (
                resolved(below.get("items") or below.get("additionalProperties"), where) if many else (below, where)
            )
            yield from differences(inner, target, its_file, field_path)


EXCUSED = {
    "/gvc": "the envelope is that of all kinds, and those of the org have none",
    "Query/kind": "one view for every query, and each holder has another kind in mind",
    "/tcpSocket/path": "one view for all that a probe asks",
    "/tcpSocket/scheme": "one view for all that a probe asks",
    "/tcpSocket/httpHeaders": "one view for all that a probe asks",
    "/grpc/path": "one view for all that a probe asks",
    "/grpc/scheme": "one view for all that a probe asks",
    "/grpc/httpHeaders": "one view for all that a probe asks",
    "/defaultOptions/location": "one view for all options",
}
"""How the path of a difference ends → why it is there."""


def excuse(difference: str) -> str:
    """The ending under which ``difference`` is excused; "" where it is not."""
    place = difference.split()[0]
    return next((ending for ending in EXCUSED if place.endswith(ending)), "")


def all_differences(kind: Kind) -> list[str]:
    """How the view of ``kind`` differs from its schema."""
    return list(differences(rules_of(kind).view, document(f"{kind}.json"), f"{kind}.json"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_reads_fields_that_manifests_have_with_their_defaults(kind: Kind) -> None:
    assert [each for each in all_differences(kind) if not excuse(each)] == []


def test_every_excuse_is_still_needed() -> None:
    assert {excuse(each) for kind in KINDS for each in all_differences(kind)} == EXCUSED.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_can_be_made_of_next_to_nothing(kind: Kind) -> None:
    msgspec.convert({}, rules_of(kind).view)
