"""Changes of a manifest: from texts such as ``spec.replicas=3``, and as the merge patch between two manifests."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from reconciler.errors import UsageError

_ASSIGNMENT = re.compile(r"(?P<path>[^=]+?)(?P<operator>\+=|-=|=)(?P<value>.*)", re.DOTALL)

_VARIABLES = "env"
"""The member of a manifest that is a list of names and values."""


def assign_fields(manifest: Mapping[str, Any], texts: tuple[str, ...]) -> dict[str, Any]:
    """``manifest`` after assignments ``PATH=VALUE``, and ``+=`` and ``-=`` for lists. Raises UsageError.

    A segment of the path names a member, or the item of a list by its name; ``env.COLOR`` is the value of a variable,
    which may be new. A tag, the description and a variable take their value as text, others as a scalar or a flow
    collection of YAML.
    """
    changed = copy.deepcopy(dict(manifest))
    for text in texts:
        parsed = _ASSIGNMENT.fullmatch(text)
        if parsed is None:
            raise UsageError(f"{text}: write PROPERTY=VALUE, or += and -= for lists")
        segments = _split_path(parsed["path"])
        is_text = segments[0] in ("description", "tags")
        value = parsed["value"] if is_text else _read_value(parsed["value"])
        _assign_value(changed, segments, parsed["operator"], value, text)
    return changed


def make_patch(before: Any, after: Any) -> Any:
    """The merge patch from ``before`` to ``after``: that of RFC 7396, and ``$add`` and ``$remove`` for lists.

    These name single items where they can, so that those that others add meanwhile stay.
    """
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        if name in before and before[name] == value:
            continue
        items = _patch_items(name, before.get(name), value)
        patch |= {name: make_patch(before.get(name), value)} if items is None else items
    return patch


def _patch_items(field: str, before: Any, after: Any) -> dict[str, Any] | None:
    """The patch of the list ``field`` by its items; None where only the whole list says what is meant."""
    old, new = _index_items([] if before is None else before), _index_items(after)
    if old is None or not new:
        return None
    staying = [name for name in old if name in new]
    if [*new][: len(staying)] != staying:
        return None  # the order changes too, or something is inserted
    removed = [name for name in old if name not in new]
    added = [_patch_item(old.get(name), item) for name, item in new.items() if old.get(name) != item]
    patch = {f"$remove/{field}": removed} if removed else {}
    return {**patch, f"$add/{field}": added} if added else patch


def _patch_item(before: Any, after: Any) -> Any:
    if before is None:
        return after
    return {"name": after["name"], **make_patch(before, after)}


def _index_items(items: Any) -> dict[str, Any] | None:
    """The items of a list of objects with names, or of links, by those; None for any other value."""
    if not isinstance(items, list):
        return None
    named: dict[str, Any] = {
        str(item["name"]): item for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)
    }
    named = named or {item: item for item in items if isinstance(item, str) and item.startswith("/")}
    return named if len(named) == len(items) else None


def _split_path(path: str) -> list[str]:
    """``spec.containers.main`` in parts; below ``tags`` the rest is one key, which may have dots."""
    first, _, rest = path.partition(".")
    return [first, rest] if first == "tags" and rest else path.split(".")


def _assign_value(manifest: dict[str, Any], segments: list[str], operator: str, value: Any, text: str) -> None:
    node: Any = manifest
    for segment in segments[:-1]:
        node = _get_member(node, segment, text)
    last = segments[-1]
    if isinstance(node, list):
        if segments[-2] != _VARIABLES or operator != "=":
            raise UsageError(f"{text}: {last!r} is an item of a list; name one of its members")
        _set_variable(node, last, text.partition("=")[2])
        return
    if operator == "=":
        node[last] = value
        return
    present, items = node.get(last) or [], value if isinstance(value, list) else [value]
    if not isinstance(present, list):
        raise UsageError(f"{text}: {'.'.join(segments)} is no list")
    missing = [item for item in items if item not in present]
    node[last] = [*present, *missing] if operator == "+=" else [item for item in present if item not in items]


def _set_variable(variables: list[Any], name: str, value: str) -> None:
    """Set the value of the variable ``name``, which may be new."""
    for variable in variables:
        if isinstance(variable, dict) and variable.get("name") == name:
            variable["value"] = value
            return
    variables.append({"name": name, "value": value})


def _get_member(node: Any, segment: str, text: str) -> Any:
    if isinstance(node, list):
        named = next((item for item in node if isinstance(item, dict) and item.get("name") == segment), None)
        if named is None:
            names = ", ".join(str(item.get("name")) for item in node if isinstance(item, dict)) or "none"
            raise UsageError(f"{text}: no item has the name {segment!r}; there are: {names}")
        return named
    member = node.setdefault(segment, [] if segment == _VARIABLES else {})
    if not isinstance(member, dict | list):
        raise UsageError(f"{text}: {segment} is a single value")
    return member


def _read_value(text: str) -> Any:
    """A text as YAML reads it; text that is no YAML stays text."""
    from reconciler.documents.reader import parse_documents

    reading = parse_documents(text.encode())
    if not text or reading.faults or len(reading.documents) != 1:
        return text
    return reading.documents[0].value
