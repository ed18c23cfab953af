"""JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.kubernetes.fake.errors import ApiError, bad_request
from tests.kubernetes.fake.fields import form_of
from tests.kubernetes.fake.types import ANY, Node, child_node, element_node


def merge_patch(value: Any, patch: Any) -> Any:
    """``value`` with what ``patch`` has; null removes."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, entry in patch.items():
        if entry is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), entry)
    return merged


def strategic_merge_patch(node: Node, value: Any, patch: Any) -> Any:
    """As a merge patch, where items of lists with keys are merged."""
    form = form_of(node, patch)
    if form == "list" and node.merge == "keys" and isinstance(patch, list):
        return _merge_items(node, value or [], patch)
    if form == "list" and node.merge == "set":
        return [*(value or []), *(item for item in patch if item not in (value or []))]
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: entry for key, entry in patch.items() if key != "$patch"}
    merged = dict(value) if isinstance(value, dict) else {}
    for key, entry in patch.items():
        if key.startswith("$"):
            continue
        child, _ = child_node(node, key) or (ANY, False)
        if entry is None:
            merged.pop(key, None)
        else:
            merged[key] = strategic_merge_patch(child, merged.get(key), entry)
    return merged


def _merge_items(node: Node, value: list[Any], patch: list[Any]) -> list[Any]:
    """The items of both: those that only the patch has come first."""
    key = node.keys[0]
    items = {item.get(key): item for item in value}
    order = [*items]
    changed = {}
    for item in patch:
        name = item.get(key)
        if item.get("$patch") == "delete":
            items.pop(name, None)
        else:
            changed[name] = strategic_merge_patch(element_node(node), items.get(name), item)
    rest = [name for name in items if name not in changed]
    merged = []
    for name, item in changed.items():
        at = order.index(name) if name in order else -1
        while rest and order.index(rest[0]) < at:
            merged.append(items[rest.pop(0)])
        merged.append(item)
    return merged + [items[name] for name in rest]


def json_patch(value: Any, operations: Any) -> Any:
    """``value`` after each of the ``operations``."""
    value = deepcopy(value)
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    for operation in operations:
        value = _perform_operation(value, operation)
    return value


def _perform_operation(value: Any, operation: dict[str, Any]) -> Any:
    path = _split_pointer(operation["path"])
    name = operation["op"]
    if name == "test":
        if _value_at(value, path) != operation.get("value"):
            raise _unprocessable(f"testing value {operation['path']} failed: test failed")
        return value
    if name in ("move", "copy"):
        source = _split_pointer(operation["from"])
        entry = deepcopy(_value_at(value, source))
        value = _remove_at(value, source) if name == "move" else value
        return _add_at(value, path, entry)
    if name == "remove":
        return _remove_at(value, path)
    if name == "replace":
        _value_at(value, path)
        return _add_at(_remove_at(value, path), path, operation.get("value")) if path else operation.get("value")
    return _add_at(value, path, operation.get("value"))


def _unprocessable(message: str) -> ApiError:
    """As the server has it, which does not tell what was wrong."""
    del message
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def _split_pointer(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _value_at(value: Any, path: list[str]) -> Any:
    for part in path:
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            raise _unprocessable(f"missing path: /{'/'.join(path)}") from None
    return value


def _remove_at(value: Any, path: list[str]) -> Any:
    parent = _value_at(value, path[:-1])
    _value_at(value, path)
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]
    return value


def _add_at(value: Any, path: list[str], entry: Any) -> Any:
    if not path:
        return entry
    parent = _value_at(value, path[:-1])
    if isinstance(parent, list):
        parent.insert(len(parent) if path[-1] == "-" else int(path[-1]), entry)
    else:
        parent[path[-1]] = entry
    return value
