"""The types of the API: fields, keys of lists, what is atomic, what an empty value becomes.

`types.json` has a line for each type, recorded from the Go sources by `record_types.py`. A field there is a type with
marks: ``[T]`` a list, ``[T|name]`` a list with keys, ``{T}`` a set, ``<T>`` a map, ``T!`` atomic, ``*T`` a pointer,
``T?`` left out where empty, ``T=x`` its default.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

SCALARS = frozenset({"string", "int", "float", "bool", "bytes", "Quantity", "IntOrString", "Time", "Duration", "any"})


class Node(NamedTuple):
    """The type of a value: its form, and how its parts are merged.

    ``form`` is scalar, any, struct, map or list. ``merge`` is atomic, granular, set or keys.
    """

    form: str
    name: str = ""
    element: str = ""
    merge: str = "granular"
    keys: tuple[str, ...] = ()


class Field(NamedTuple):
    """A field of a struct."""

    node: Node
    pointer: bool
    optional: bool
    default: str


ANY = Node("any")


@cache
def all_types() -> dict[str, dict[str, str]]:
    """Type → field → its line."""
    types: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("types.json").read_text())
    return types


@cache
def parse_node(text: str) -> Node:
    """The type that ``text`` describes."""
    merge = "atomic" if text.endswith("!") else "granular"
    text = text.removesuffix("!")
    if text.startswith("["):
        element, _, keys = text[1:-1].partition("|")
        return Node("list", "", element, "keys" if keys else "atomic", tuple(keys.split(",")) if keys else ())
    if text.startswith("{"):
        return Node("list", "", text[1:-1], "set")
    if text.startswith("<"):
        return Node("map", "", text[1:-1], merge)
    if text == "any":
        return ANY
    if text in SCALARS:
        return Node("scalar", text)
    merge = "atomic" if "" in all_types().get(text, {}) else merge
    return Node("struct", text, "", merge)


@cache
def fields_of(name: str) -> dict[str, Field]:
    """The fields of the struct ``name``."""
    return {field: _parse_field(line) for field, line in all_types()[name].items() if field}


def _parse_field(line: str) -> Field:
    line, _, default = line.partition("=")
    optional, pointer = line.endswith("?"), line.startswith("*")
    return Field(parse_node(line.removesuffix("?").removeprefix("*")), pointer, optional, default)


@cache
def node_of(api_version: str, kind: str) -> Node:
    """The type of an object; what is not recorded has any fields."""
    name = f"{api_version}.{kind}" if "/" in api_version else f"core/{api_version}.{kind}"
    if name in all_types():
        return parse_node(name)
    return parse_node("custom/v1.Custom")


def child_node(node: Node, key: str) -> tuple[Node, bool] | None:
    """The type of a member of ``node``, and whether it is a named field; None for one that does not exist."""
    if node.form == "struct":
        field = fields_of(node.name).get(key)
        if field is not None:
            return field.node, True
        return (ANY, False) if "*" in fields_of(node.name) else None
    if node.form == "map":
        return parse_node(node.element), False
    return ANY, False


def element_node(node: Node) -> Node:
    """The type of the items of a list."""
    return parse_node(node.element) if node.element else ANY


def default_of_key(node: Node, key: str) -> str:
    """The value of a key of a list whose item leaves it out."""
    element = element_node(node)
    return fields_of(element.name)[key].default if element.form == "struct" else ""
