"""Sets of fields, and the structured merge of server-side apply.

A path is a tuple of elements as ``fieldsV1`` writes them: ``f:name``, ``k:{"name":"web"}``, ``v:"x"``. A set of fields
is a set of paths. What is merged, compared and removed follows the types of `types.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from tests.kubernetes.fake.types import (
    ANY,
    Node,
    child_node,
    default_of_key,
    element_node,
)

Path = tuple[str, ...]
Paths = set[Path]
MISSING: Any = object()
"""No value, which is not null."""


class TypeMismatch(Exception):
    """A value that the type does not allow; the message has its path."""


class Comparison(NamedTuple):
    """How one object becomes another one."""

    added: Paths
    modified: Paths
    removed: Paths


def encode_key(value: Any) -> str:
    """Compact JSON with sorted keys."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def form_of(node: Node, value: Any) -> str:
    """The form of ``value``; that of any type is seen by the value."""
    if node.form != "any":
        return node.form
    return "map" if isinstance(value, dict) else "leaf" if isinstance(value, list) else "scalar"


def is_leaf(node: Node, value: Any) -> bool:
    """Whether ``value`` is owned as a whole."""
    return node.merge == "atomic" or form_of(node, value) in ("scalar", "leaf") or value is None


def item_element(node: Node, item: Any) -> str:
    """The path element of an item of a list that is a set or has keys."""
    if node.merge == "set":
        return "v:" + encode_key(item)
    keys = {}
    for key in node.keys:
        value = item.get(key) if isinstance(item, dict) else None
        keys[key] = default_of_key(node, key) if value is None else value
    return "k:" + encode_key(keys)


def items_of(node: Node, value: Any) -> dict[str, Any]:
    """The items of a list by their path elements."""
    return {item_element(node, item): item for item in value or ()}


def check_types(node: Node, value: Any, path: str = "") -> None:
    """Raise TypeMismatch unless ``value`` has only fields that its type has, in their form."""
    if value is None or node.form == "any":
        return
    if node.form in ("struct", "map"):
        _check_members(node, value, path)
    elif node.form == "list":
        _check_items(node, value, path)
    elif isinstance(value, dict | list):
        raise TypeMismatch(f"{path}: expected {_SCALARS.get(node.name, 'string')}, got {_describe(value)}")
    elif node.name in ("int", "float") and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeMismatch(f"{path}: expected numeric (int or float), got {_go_type(value)}")
    elif node.name == "bool" and not isinstance(value, bool):
        raise TypeMismatch(f"{path}: expected boolean, got {_go_type(value)}")
    elif node.name == "string" and not isinstance(value, str):
        raise TypeMismatch(f"{path}: expected string, got {_go_type(value)}")


_SCALARS = {"int": "numeric (int or float)", "float": "numeric (int or float)", "bool": "boolean"}


def _go_type(value: Any) -> str:
    return {str: "string", bool: "bool", int: "int64", float: "float64"}[type(value)]


def _describe(value: Any) -> str:
    if isinstance(value, bool):
        return f"&value.valueUnstructured{{Value:{str(value).lower()}}}"
    if isinstance(value, str):
        return f'&value.valueUnstructured{{Value:"{value}"}}'
    if isinstance(value, dict | list):
        return "&{map[]}" if isinstance(value, dict) else "&{[]}"
    return f"&value.valueUnstructured{{Value:{value}}}"


def _check_members(node: Node, value: Any, path: str) -> None:
    if not isinstance(value, dict):
        raise TypeMismatch(f"{path}: expected map, got {_describe(value)}")
    for key, member in value.items():
        child = child_node(node, key)
        if child is None:
            raise TypeMismatch(f"{path}.{key}: field not declared in schema")
        check_types(child[0], member, f"{path}.{key}")


def _check_items(node: Node, value: Any, path: str) -> None:
    if not isinstance(value, list):
        raise TypeMismatch(f"{path}: expected list, got {_describe(value)}")
    element = element_node(node)
    seen: set[str] = set()
    for number, item in enumerate(value):
        if node.merge in ("set", "keys"):
            name = item_element(node, item)
            if name in seen:
                raise TypeMismatch(f"{path}: duplicate entries for key {show_element(name)}")
            seen.add(name)
            check_types(element, item, f"{path}{show_element(name)}")
        else:
            check_types(element, item, f"{path}[{number}]")


def fields_in(node: Node, value: Any, path: Path = ()) -> Paths:
    """The fields that an applied ``value`` has."""
    if is_leaf(node, value):
        return {path} if path else set()
    paths: Paths = set()
    if node.form == "list":
        element = element_node(node)
        for name, item in items_of(node, value).items():
            paths.add((*path, name))
            paths |= fields_in(element, item, (*path, name))
        return paths
    for key, member in value.items():
        child, named = child_node(node, key) or (ANY, False)
        below = (*path, f"f:{key}")
        paths |= fields_in(child, member, below)
        if member is None or member == {} or not named:
            paths.add(below)
    return paths


def merge_values(node: Node, live: Any, applied: Any) -> Any:
    """``live`` with what ``applied`` has; MISSING is neither."""
    if applied is MISSING:
        return live
    if live is MISSING or live is None or is_leaf(node, applied) or form_of(node, live) != form_of(node, applied):
        return applied
    if node.form == "list":
        return _merge_lists(node, live, applied)
    merged = dict(live)
    for key, value in applied.items():
        child, _ = child_node(node, key) or (ANY, False)
        merged[key] = merge_values(child, live.get(key, MISSING), value)
    return merged


def _merge_lists(node: Node, live: list[Any], applied: list[Any]) -> list[Any]:
    old, new = items_of(node, live), items_of(node, applied)
    element = element_node(node)
    return [
        merge_values(element, old.get(name, MISSING), new.get(name, MISSING)) for name in merge_order([*old], [*new])
    ]


def merge_order(live: list[str], applied: list[str]) -> list[str]:
    """The order of a merged list: that of what is applied; what is only live stays behind what it follows."""
    shared = [name for name in applied if name in set(live)]
    names, order, at = set(applied), list[str](), 0
    for name in applied:
        while at < len(live) and live[at] != name and (live[at] not in names or _is_late(live[at], name, shared)):
            if live[at] not in names:
                order.append(live[at])
            at += 1
        if at < len(live) and live[at] == name:
            at += 1
        order.append(name)
        if shared and shared[0] == name:
            shared.pop(0)
    return order + [name for name in live[at:] if name not in names]


def _is_late(name: str, applied: str, shared: list[str]) -> bool:
    """Whether a shared item of the live list is passed over: another shared one comes first in the applied list."""
    return bool(shared) and shared[0] != name


def compare_values(node: Node, old: Any, new: Any) -> Comparison:
    """What is added, modified and removed from ``old`` to ``new``."""
    comparison = Comparison(set(), set(), set())
    _compare(node, old, new, (), comparison)
    return comparison


def _compare(node: Node, old: Any, new: Any, path: Path, comparison: Comparison) -> None:
    if old is MISSING and new is MISSING:
        return
    if not _is_compared_whole(node, old, new):
        _compare_members(node, old, new, path, comparison)
    elif old is not MISSING and new is not MISSING and old != new:
        comparison.modified.add(path)
        _compare_forms(node, old, new, path, comparison)
    if old is MISSING:
        comparison.added.add(path)
    elif new is MISSING:
        comparison.removed.add(path)


def _compare_forms(node: Node, old: Any, new: Any, path: Path, comparison: Comparison) -> None:
    """A map that becomes another value loses its members; one that comes in place of it adds them."""
    if node.form == "any" and isinstance(old, dict) and not isinstance(new, dict):
        _compare_members(node, old, MISSING, path, comparison)
    if node.form == "any" and isinstance(new, dict) and not isinstance(old, dict):
        _compare_members(node, MISSING, new, path, comparison)


def _is_compared_whole(node: Node, old: Any, new: Any) -> bool:
    """Whether two values are compared as one: atomic, scalar, or both empty."""
    present = [value for value in (old, new) if value is not MISSING and value is not None]
    if not any(present) or node.merge == "atomic":
        return True
    forms = {form_of(node, value) for value in present}
    return bool(forms & {"scalar", "leaf"})


def _compare_members(node: Node, old: Any, new: Any, path: Path, comparison: Comparison) -> None:
    old, new = ({} if value is MISSING or value is None else value for value in (old, new))
    if node.form == "list":
        element, old, new = element_node(node), items_of(node, old), items_of(node, new)
        for name in {**old, **new}:
            _compare(element, old.get(name, MISSING), new.get(name, MISSING), (*path, name), comparison)
        return
    for key in {**old, **new}:
        if old.get(key, MISSING) != new.get(key, MISSING):
            child, _ = child_node(node, key) or (ANY, False)
            _compare(child, old.get(key, MISSING), new.get(key, MISSING), (*path, f"f:{key}"), comparison)


def make_tree(paths: Iterable[Path]) -> dict[str, Any]:
    """Paths as a tree; a member has the key ``.``."""
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return tree


def remove_fields(node: Node, value: Any, paths: Paths) -> Any:
    """``value`` without ``paths``; what becomes empty by it is null."""
    return _remove(node, value, make_tree(paths)) if paths else value


def _remove(node: Node, value: Any, tree: dict[str, Any]) -> Any:
    if is_leaf(node, value) or not tree.keys() - {"."}:
        return value
    if node.form == "list":
        element = element_node(node)
        rest = [
            _remove(element, item, tree.get(name, {}))
            for name, item in items_of(node, value).items()
            if "." not in tree.get(name, {})
        ]
        return rest if rest or not value else None
    left = {}
    for key, member in value.items():
        below = tree.get(f"f:{key}", {})
        if "." in below:
            continue
        child, _ = child_node(node, key) or (ANY, False)
        left[key] = _remove(child, member, below) if below else member
    return left if left or not value else None


def with_named_parents(node: Node, paths: Paths) -> Paths:
    """``paths`` and each named field above them."""
    return paths.union(*(_named_parents(node, path[:-1]) for path in paths)) if paths else paths


@lru_cache(100_000)
def _named_parents(node: Node, path: Path) -> frozenset[Path]:
    if not path:
        return frozenset()
    above = _named_parents(node, path[:-1])
    parent = node_at(node, path[:-1])
    child = child_node(parent, path[-1][2:]) if path[-1].startswith("f:") else None
    return above | {path} if child and child[1] else above


@lru_cache(100_000)
def node_at(node: Node, path: Path) -> Node:
    """The type at ``path``."""
    for element in path:
        if element.startswith("f:"):
            child = child_node(node, element[2:])
            node = child[0] if child else ANY
        else:
            node = element_node(node)
    return node


def show_element(element: str) -> str:
    """One element of a path, as messages have it."""
    if element.startswith("f:"):
        return f".{element[2:]}"
    if element.startswith("v:"):
        return f"[={element[2:]}]"
    if element.startswith("i:"):
        return f"[{element[2:]}]"
    keys = json.loads(element[2:])
    return f"[{','.join(f'{key}={encode_key(value)}' for key, value in keys.items())}]"


def show_path(path: Path) -> str:
    """``.spec.template.spec.containers[name="web"].image``."""
    return "".join(map(show_element, path))


def encode_fields(paths: Paths) -> dict[str, Any]:
    """A set as ``fieldsV1`` has it."""
    return _shorten(make_tree(paths))


def _shorten(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree without the mark of members that have nothing below."""
    if tree.keys() == {"."}:
        return {}
    return {key: _shorten(below) if key != "." else {} for key, below in sorted(tree.items())}


def decode_fields(tree: dict[str, Any], path: Path = ()) -> Iterator[Path]:
    """The paths of a ``fieldsV1``."""
    if "." in tree or (path and not tree):
        yield path
    for element, below in tree.items():
        if element != ".":
            yield from decode_fields(below, (*path, element))
