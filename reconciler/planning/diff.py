"""Two bodies in normal form in; the fields that differ, and what each change costs, out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from reconciler.manifests.field_schema import FieldSchema, shape_of
from reconciler.manifests.secret_values import shown
from reconciler.model.key import Kind
from reconciler.planning.plan import IMPACT_RANK, ChangeClass, FieldChange

_PLAIN = FieldSchema()
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_OPTIONS = ("defaultOptions", "localOptions")


def diff(kind: Kind, before: bytes, after: bytes, location: str) -> tuple[FieldChange, ...]:
    """The fields in which two bodies (JSON) differ, each with its class at ``location``, sorted by path.

    Options are compared as they are in force at ``location``; what differs in options of other places is in-place
    here (4-fields.md, section 12: an entry of localOptions replaces defaultOptions at its location only).
    """
    old, new = msgspec.json.decode(before), msgspec.json.decode(after)
    shape = shape_of(str(kind))
    changes: list[FieldChange] = []
    if kind is Kind.WORKLOAD:
        changes.extend(_options(shape.properties["spec"], old["spec"], new["spec"], location))
        old, new = ({**body, "spec": _without_options(body["spec"])} for body in (old, new))
    changes.extend(_compare(shape, old, new, "", ChangeClass.IN_PLACE))
    return tuple(sorted(changes, key=lambda change: change.path))


def highest_impact(changes: tuple[FieldChange, ...]) -> ChangeClass:
    """The dearest class among ``changes``; in-place where there are none."""
    return max((change.change for change in changes), key=IMPACT_RANK.__getitem__, default=ChangeClass.IN_PLACE)


def _options(spec: FieldSchema, old: Any, new: Any, location: str) -> Iterator[FieldChange]:
    own = [_entries(body).get(location) for body in (old, new)]
    here = f"spec.localOptions[{location}]" if any(own) else "spec.defaultOptions"
    shape = spec.properties["defaultOptions"]
    inherited = _class_at(shape, here, ChangeClass(spec.change or ChangeClass.NEW_VERSION))
    pair = [
        {name: value for name, value in (mine or body.get("defaultOptions", {})).items() if name != "location"}
        for mine, body in zip(own, (old, new), strict=True)
    ]
    felt = list(_compare(shape, pair[0], pair[1], here, inherited))
    yield from felt
    if bool(own[0]) != bool(own[1]) and not felt:
        yield FieldChange(here, own[0], own[1], ChangeClass.IN_PLACE)
    if any(own):
        yield from _without_effect_here(
            shape, old.get("defaultOptions", {}), new.get("defaultOptions", {}), "spec.defaultOptions"
        )
    entries = [_entries(old), _entries(new)]
    for place in sorted({*entries[0], *entries[1]} - {location}):
        path = f"spec.localOptions[{place}]"
        yield from _without_effect_here(shape, entries[0].get(place), entries[1].get(place), path)


def _without_effect_here(shape: FieldSchema, old: Any, new: Any, path: str) -> Iterator[FieldChange]:
    """Differences that have no effect at the location looked at."""
    for change in _compare(shape, old, new, path, ChangeClass.IN_PLACE):
        yield FieldChange(change.path, change.before, change.after, ChangeClass.IN_PLACE)


def _entries(spec: Any) -> dict[str, Any]:
    return {entry["location"].rpartition("/")[2]: entry for entry in spec.get("localOptions", ())}


def _without_options(spec: Any) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in _OPTIONS}


def _compare(shape: FieldSchema, old: Any, new: Any, path: str, change: ChangeClass) -> Iterator[FieldChange]:
    """Every difference at or below ``path``, walked along the shape of the schema."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(name for name in {*old, *new} if old.get(name) != new.get(name)):
            child = shape.member(name) or _PLAIN
            below = _joined(path, name)
            yield from _compare(child, old.get(name), new.get(name), below, _class_at(child, below, change))
    elif shape.named and isinstance(old, list) and isinstance(new, list):
        yield from _compare_named(shape, old, new, path, change)
    else:
        yield FieldChange(path, shown(old), shown(new), change)


def _compare_named(shape: FieldSchema, old: Any, new: Any, path: str, change: ChangeClass) -> Iterator[FieldChange]:
    named = [{_name(item, shape.named): item for item in items} for items in (old, new)]
    if len(named[0]) != len(old) or len(named[1]) != len(new):
        yield FieldChange(path, shown(old), shown(new), change)
        return
    for name in sorted({*named[0], *named[1]}):
        item = shape.items or _PLAIN
        yield from _compare(item, named[0].get(name), named[1].get(name), f"{path}[{name}]", change)
    order = [[name for name in names if name in named[0] and name in named[1]] for names in named]
    if order[0] != order[1] and not shape.is_sorted:
        yield FieldChange(f"{path}[order]", order[0], order[1], change)


def _class_at(shape: FieldSchema, path: str, inherited: ChangeClass) -> ChangeClass:
    if path == 'tags["platform/deployTimestamp"]':
        return ChangeClass.NEW_VERSION
    return ChangeClass(shape.change) if shape.change else inherited


def _name(item: Any, member: str) -> str:
    value = str(item.get(member, "")) if isinstance(item, dict) else str(item)
    return value.rpartition("/")[2] if member == "location" else value


def _joined(path: str, name: str) -> str:
    if not _WORD.issuperset(name):
        return f'{path}["{name}"]'
    return f"{path}.{name}" if path else name
