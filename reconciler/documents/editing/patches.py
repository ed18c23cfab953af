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
        segments = _segments(parsed["path"])
        is_text = segments[0] in ("description", "tags")
        value = parsed["value"] if is_text else _value(parsed["value"])
        _assign(changed, segments, parsed["operator"], value, text)
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
        items = _patched_items(name, before.get(name), value)
        patch |= {name: make_patch(before.get(name), value)} if items is None else items
    return patch


def _patched_items(name: str, before: Any, after: Any) -> dict[str, Any] | None:
    """The patch of the list ``name`` by its items; None where only the whole list says what is meant."""
    old, new = _by_identity([] if before is None else before), _by_identity(after)
    if old is None or not new:
        return None
    staying = [each for each in old if each in new]
    if [*new][: len(staying)] != staying:
        return None  # the order changes too, or something is inserted
    removed = [each for each in old if each not in new]
    added = [_patched_item(old.get(each), value) for each, value in new.items() if old.get(each) != value]
    found = {f"$remove/{name}": removed} if removed else {}
    return {**found, f"$add/{name}": added} if added else found


def _patched_item(before: Any, after: Any) -> Any:
    if before is None:
        return after
    return {"name": after["name"], **make_patch(before, after)}


def _by_identity(items: Any) -> dict[str, Any] | None:
    """The items of a list of objects with names, or of links, by those; None for any other value."""
    if not isinstance(items, list):
        return None
    found: dict[str, Any] = {
        str(each["name"]): each for each in items if isinstance(each, dict) and isinstance(each.get("name"), str)
    }
    found = found or {each: each for each in items if isinstance(each, str) and each.startswith("/")}
    return found if len(found) == len(items) else None


def _segments(path: str) -> list[str]:
    """``spec.containers.main`` in parts; below ``tags`` the rest is one key, which may have dots."""
    first, _, rest = path.partition(".")
    return [first, rest] if first == "tags" and rest else path.split(".")


def _assign(manifest: dict[str, Any], segments: list[str], operator: str, value: Any, text: str) -> None:
    place: Any = manifest
    for segment in segments[:-1]:
        place = _step(place, segment, text)
    last = segments[-1]
    if isinstance(place, list):
        if segments[-2] != _VARIABLES or operator != "=":
            raise UsageError(f"{text}: {last!r} is an item of a list; name one of its members")
        _set_variable(place, last, text.partition("=")[2])
        return
    if operator == "=":
        place[last] = value
        return
    present, wanted = place.get(last) or [], value if isinstance(value, list) else [value]
    if not isinstance(present, list):
        raise UsageError(f"{text}: {'.'.join(segments)} is no list")
    missing = [each for each in wanted if each not in present]
    place[last] = [*present, *missing] if operator == "+=" else [each for each in present if each not in wanted]


def _set_variable(variables: list[Any], name: str, value: str) -> None:
    """Set the value of the variable ``name``, which may be new."""
    for each in variables:
        if isinstance(each, dict) and each.get("name") == name:
            each["value"] = value
            return
    variables.append({"name": name, "value": value})


def _step(place: Any, segment: str, text: str) -> Any:
    if isinstance(place, list):
        found = next((each for each in place if isinstance(each, dict) and each.get("name") == segment), None)
        if found is None:
            names = ", ".join(str(each.get("name")) for each in place if isinstance(each, dict)) or "none"
            raise UsageError(f"{text}: no item has the name {segment!r}; there are: {names}")
        return found
    member = place.setdefault(segment, [] if segment == _VARIABLES else {})
    if not isinstance(member, dict | list):
        raise UsageError(f"{text}: {segment} is a single value")
    return member


def _value(text: str) -> Any:
    """A text as YAML reads it; text that is no YAML stays text."""
    from reconciler.documents.reader import read

    reading = read(text.encode())
    if not text or reading.faults or len(reading.documents) != 1:
        return text
    return reading.documents[0].value
