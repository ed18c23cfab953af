"""Merges services and files as compose does: mappings by key, lists by appending, scalars by replacing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reconciler.convert.compose.nodes import Node, NodeOrigin, get_plain_value
from reconciler.convert.compose.reading import OVERRIDE, RESET
from reconciler.model.finding import Pointer

SECTIONS = ("services", "volumes", "networks", "secrets", "configs")
"""The mappings of resources in a document."""
_NOTHING = Node({}, NodeOrigin("", 0, (), ""))
_REPLACED = frozenset({("command",), ("entrypoint",), ("healthcheck", "test")})
"""Lists of a service of which the later one counts alone."""


def _fields_of(*names: str) -> Callable[[Node], str]:
    """What makes an entry of a list unique: its fields ``names``."""
    return lambda node: repr([get_plain_value(node.fields[name]) if name in node.fields else "" for name in names])


def _make_node_key(node: Node) -> str:
    return repr(get_plain_value(node))


def _make_file_key(node: Node) -> str:
    return _make_node_key(node.fields.get("target") or node.fields.get("source") or node)


_UNIQUE: dict[str, Callable[[Node], str]] = {
    "ports": _fields_of("host_ip", "target", "published", "protocol"),
    "volumes": _fields_of("target"),
    "secrets": _make_file_key,
    "configs": _make_file_key,
}


def merge_nodes(base: Node, over: Node, at: Pointer = ()) -> Node:
    """``over`` on top of ``base``, both in the long form, at the path ``at`` of the document."""
    if over.directive == OVERRIDE:
        return over._replace(directive="")
    of_service = at[2:] if at[:1] == ("services",) else ()
    if over.value is None:
        return base
    if isinstance(base.value, dict) and isinstance(over.value, dict):
        return over._replace(value=_merged_fields(base.value, over.value, at))
    if isinstance(base.value, list) and isinstance(over.value, list) and of_service not in _REPLACED:
        key = _UNIQUE.get(str(of_service[0]), _make_node_key) if len(of_service) == 1 else _make_node_key
        return over._replace(value=_append_entries(base.value, over.value, key))
    return over


def declared_twice(first: Node, second: Node) -> Iterator[Node]:
    """The resources of the document ``first`` that ``second`` has too, with other content."""
    for section in SECTIONS:
        one, other = (document.fields.get(section, _NOTHING).fields for document in (first, second))
        yield from (
            one[name] for name in one if name in other and get_plain_value(one[name]) != get_plain_value(other[name])
        )


def without_directives(node: Node) -> Node:
    """``node`` without its tags of compose, and without the values that they reset."""
    if isinstance(node.value, dict):
        members = {key: value for key, value in node.value.items() if value.directive != RESET}
        return Node({key: without_directives(value) for key, value in members.items()}, node.origin)
    if isinstance(node.value, list):
        return Node([without_directives(value) for value in node.value if value.directive != RESET], node.origin)
    return Node(node.value, node.origin)


def _merged_fields(base: dict[str, Node], over: dict[str, Node], at: Pointer) -> dict[str, Node]:
    fields = dict(base)
    for key, node in over.items():
        if node.directive == RESET:
            fields.pop(key, None)
        elif key in fields:
            fields[key] = merge_nodes(fields[key], node, (*at, key))
        else:
            fields[key] = node
    return fields


def _append_entries(base: list[Node], over: list[Node], key: Callable[[Node], str]) -> list[Node]:
    """Both lists, without the entries of ``base`` that ``over`` has again."""
    again = {key(node) for node in over}
    return [node for node in base if key(node) not in again] + over
