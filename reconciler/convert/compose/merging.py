"""Merges services and files as compose does: mappings by key, lists by appending, scalars by replacing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reconciler.convert.compose.nodes import Node, Origin, plain
from reconciler.convert.compose.reading import OVERRIDE, RESET
from reconciler.model.finding import Pointer

SECTIONS = ("services", "volumes", "networks", "secrets", "configs")
"""The mappings of resources in a document."""
_NOTHING = Node({}, Origin("", 0, (), ""))
_REPLACED = frozenset({("command",), ("entrypoint",), ("healthcheck", "test")})
"""Lists of a service of which the later one counts alone."""


def _fields_of(*names: str) -> Callable[[Node], str]:
    """What makes an entry of a list unique: its fields ``names``."""
    return lambda node: repr([plain(node.fields[name]) if name in node.fields else "" for name in names])


def _whole(node: Node) -> str:
    return repr(plain(node))


def _file(node: Node) -> str:
    return _whole(node.fields.get("target") or node.fields.get("source") or node)


_UNIQUE: dict[str, Callable[[Node], str]] = {
    "ports": _fields_of("host_ip", "target", "published", "protocol"),
    "volumes": _fields_of("target"),
    "secrets": _file,
    "configs": _file,
}


def merged(base: Node, over: Node, at: Pointer = ()) -> Node:
    """``over`` on top of ``base``, both in the long form, at the path ``at`` of the document."""
    if over.directive == OVERRIDE:
        return over._replace(directive="")
    of_service = at[2:] if at[:1] == ("services",) else ()
    if over.value is None:
        return base
    if isinstance(base.value, dict) and isinstance(over.value, dict):
        return over._replace(value=_merged_fields(base.value, over.value, at))
    if isinstance(base.value, list) and isinstance(over.value, list) and of_service not in _REPLACED:
        key = _UNIQUE.get(str(of_service[0]), _whole) if len(of_service) == 1 else _whole
        return over._replace(value=_appended(base.value, over.value, key))
    return over


def declared_twice(first: Node, second: Node) -> Iterator[Node]:
    """The resources of the document ``first`` that ``second`` has too, with other content."""
    for section in SECTIONS:
        one, other = (document.fields.get(section, _NOTHING).fields for document in (first, second))
        yield from (one[name] for name in one if name in other and plain(one[name]) != plain(other[name]))


def without_directives(node: Node) -> Node:
    """``node`` without its tags of compose, and without the values that they reset."""
    if isinstance(node.value, dict):
        members = {key: each for key, each in node.value.items() if each.directive != RESET}
        return Node({key: without_directives(each) for key, each in members.items()}, node.origin)
    if isinstance(node.value, list):
        return Node([without_directives(each) for each in node.value if each.directive != RESET], node.origin)
    return Node(node.value, node.origin)


def _merged_fields(base: dict[str, Node], over: dict[str, Node], at: Pointer) -> dict[str, Node]:
    found = dict(base)
    for key, each in over.items():
        if each.directive == RESET:
            found.pop(key, None)
        elif key in found:
            found[key] = merged(found[key], each, (*at, key))
        else:
            found[key] = each
    return found


def _appended(base: list[Node], over: list[Node], key: Callable[[Node], str]) -> list[Node]:
    """Both lists, without the entries of ``base`` that ``over`` has again."""
    again = {key(each) for each in over}
    return [each for each in base if key(each) not in again] + over
