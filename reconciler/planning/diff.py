"""The fields in which two bodies in normal form differ, and the impact of each change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from reconciler.manifests.field_schema import FieldSchema, shape_of
from reconciler.manifests.secret_values import strip_digest
from reconciler.model.key import Kind
from reconciler.model.platform import DEPLOY_TIMESTAMP_TAG
from reconciler.planning.field_paths import item_path, member_path
from reconciler.planning.plan import IMPACT_RANK, ChangeClass, FieldChange

_PLAIN = FieldSchema()
_MAX_COMPARISONS = 2_500
"""The most pairs of list entries that are compared; in longer lists, entries are paired in order."""
_IDENTITIES = ("number", "prefix", "resource", "scope", "key", "sourceCIDR")
"""What names the entries of lists whose entries have no name: ports and routes of domains, taints and the like."""
_OPTIONS = ("defaultOptions", "localOptions")


def diff_bodies(kind: Kind, before: bytes, after: bytes, location: str) -> tuple[FieldChange, ...]:
    """The fields in which two bodies (JSON) differ, each with its class at ``location``, sorted by path.

    Options are compared as in force at ``location`` (docs/platform/workload.md#options-of-one-location); a difference
    in the options of other locations is in-place here.
    """
    old, new = msgspec.json.decode(before), msgspec.json.decode(after)
    shape = shape_of(str(kind))
    changes: list[FieldChange] = []
    if kind is Kind.WORKLOAD:
        changes.extend(_compare_options(shape.properties["spec"], old["spec"], new["spec"], location))
        old, new = ({**body, "spec": _without_options(body["spec"])} for body in (old, new))
    changes.extend(_compare_values(shape, old, new, "", ChangeClass.IN_PLACE))
    return tuple(sorted(changes, key=lambda change: change.path))


def list_fields(kind: Kind, body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each field of a body in normal form with its value, by the path that ``diff_bodies`` gives it; secrets masked."""
    yield from _list_values(shape_of(str(kind)), body, "")


def _list_values(shape: FieldSchema, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from _list_values(shape.member(name) or _PLAIN, member, member_path(path, name))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        members = (shape.named,) if shape.named else ("name", *_IDENTITIES)
        named = next((both[0] for member in members if (both := _name_items(value, value, member)) is not None), None)
        names = named or dict(zip(map(str, range(len(value))), value, strict=True))
        for name, item in names.items():
            yield from _list_values(shape.items or _PLAIN, item, item_path(path, name))
    else:
        yield path, strip_digest(value)


def highest_impact(changes: tuple[FieldChange, ...]) -> ChangeClass:
    """The class of highest impact among ``changes``; in-place if there are none."""
    return max((change.change for change in changes), key=IMPACT_RANK.__getitem__, default=ChangeClass.IN_PLACE)


def _compare_options(spec: FieldSchema, old: Any, new: Any, location: str) -> Iterator[FieldChange]:
    own = [_get_local_options(body).get(location) for body in (old, new)]
    here = f"spec.localOptions[{location}]" if any(own) else "spec.defaultOptions"
    shape = spec.properties["defaultOptions"]
    inherited = _class_at(shape, here, ChangeClass(spec.change or ChangeClass.NEW_VERSION))
    pair = [
        {name: value for name, value in (mine or body.get("defaultOptions", {})).items() if name != "location"}
        for mine, body in zip(own, (old, new), strict=True)
    ]
    effective = list(_compare_values(shape, pair[0], pair[1], here, inherited))
    yield from effective
    if bool(own[0]) != bool(own[1]) and not effective:
        yield FieldChange(here, own[0], own[1], ChangeClass.IN_PLACE)
    if any(own):
        yield from _without_effect_here(
            shape, old.get("defaultOptions", {}), new.get("defaultOptions", {}), "spec.defaultOptions"
        )
    entries = [_get_local_options(old), _get_local_options(new)]
    for other in sorted({*entries[0], *entries[1]} - {location}):
        path = item_path("spec.localOptions", other)
        yield from _without_effect_here(shape, entries[0].get(other), entries[1].get(other), path)


def _without_effect_here(shape: FieldSchema, old: Any, new: Any, path: str) -> Iterator[FieldChange]:
    """Differences without effect at this location."""
    for change in _compare_values(shape, old, new, path, ChangeClass.IN_PLACE):
        yield FieldChange(change.path, change.before, change.after, ChangeClass.IN_PLACE)


def _get_local_options(spec: Any) -> dict[str, Any]:
    return {entry["location"].rpartition("/")[2]: entry for entry in spec.get("localOptions", ())}


def _without_options(spec: Any) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in _OPTIONS}


def _compare_values(shape: FieldSchema, old: Any, new: Any, path: str, change: ChangeClass) -> Iterator[FieldChange]:
    """Every difference at or below ``path``, by the schema in ``shape``."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in _list_differing_members(old, new):
            child = shape.member(name) or _PLAIN
            below = member_path(path, name)
            yield from _compare_values(child, old.get(name), new.get(name), below, _class_at(child, below, change))
    elif isinstance(old, list) and isinstance(new, list) and any(isinstance(item, dict) for item in (*old, *new)):
        yield from _compare_items(shape, old, new, path, change)
    else:
        yield FieldChange(path, strip_digest(old), strip_digest(new), change)


def _list_differing_members(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The names of the members in which two mappings differ, sorted. A member that is null is like a missing one."""
    if old.keys() == new.keys():
        return sorted([name for name, value in new.items() if old[name] != value])
    return sorted([name for name in old.keys() | new.keys() if old.get(name) != new.get(name)])


def _compare_items(shape: FieldSchema, old: Any, new: Any, path: str, change: ChangeClass) -> Iterator[FieldChange]:
    """Differences of two lists of mappings, entry by entry: by name if all have names, else by index."""
    members = (shape.named,) if shape.named else ("name", *_IDENTITIES)
    named = next((both for member in members if (both := _name_items(old, new, member)) is not None), None)
    if named is None:
        yield from _compare_indexed(shape, old, new, path, change)
        return
    for name in sorted({*named[0], *named[1]}):
        item = shape.items or _PLAIN
        yield from _compare_values(item, named[0].get(name), named[1].get(name), item_path(path, name), change)
    order = [[name for name in names if name in named[0] and name in named[1]] for names in named]
    if order[0] != order[1] and not shape.is_sorted:
        yield FieldChange(f"{path}[order]", order[0], order[1], change)


def _name_items(old: list[Any], new: list[Any], member: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The items of both lists by their ``member``; None where one has none, or two of a list have the same."""
    first, second = ({_get_item_name(item, member): item for item in items} for items in (old, new))
    if "" in first | second or len(first) != len(old) or len(second) != len(new):
        return None
    return first, second


def _compare_indexed(shape: FieldSchema, old: Any, new: Any, path: str, change: ChangeClass) -> Iterator[FieldChange]:
    """Differences by index in the new list; a removed entry without a successor has its old index."""
    pairs = matching_items(old, new)
    before_of = {after: before for before, after in pairs}
    for after, before in sorted(before_of.items()):
        yield from _compare_values(shape.items or _PLAIN, old[before], new[after], f"{path}[{after}]", change)
    paired = set(before_of.values())
    removed = {index: old[index] for index in range(len(old)) if index not in paired}
    added = {index: new[index] for index in range(len(new)) if index not in before_of}
    for index in sorted({*removed, *added}):
        yield FieldChange(f"{path}[{index}]", strip_digest(removed.get(index)), strip_digest(added.get(index)), change)
    order = [before for _, before in sorted(before_of.items())]
    if order != sorted(order) and not shape.is_sorted:
        yield FieldChange(f"{path}[order]", sorted(order), order, change)


def matching_items(old: list[Any], new: list[Any]) -> list[tuple[int, int]]:
    """Pairs of indices of entries of ``old`` and ``new`` that correspond: equal ones, then the most alike.

    Entries with nothing in common are no pair. In long lists the rest is paired in order, which keeps the cost linear.
    """
    by_value: dict[bytes, list[int]] = {}
    for index in reversed(range(len(old))):
        by_value.setdefault(msgspec.json.encode(old[index], order="deterministic"), []).append(index)
    equal = {}
    for index, item in enumerate(new):
        if same := by_value.get(msgspec.json.encode(item, order="deterministic")):
            equal[index] = same.pop()
    taken = set(equal.values())
    before = [index for index in range(len(old)) if index not in taken]
    after = [index for index in range(len(new)) if index not in equal]
    return [(there, here) for here, there in equal.items()] + _most_alike(old, new, before, after)


def _most_alike(old: list[Any], new: list[Any], before: list[int], after: list[int]) -> list[tuple[int, int]]:
    if len(before) * len(after) > _MAX_COMPARISONS:
        return list(zip(before, after, strict=False))
    parts = {
        (side, index): _collect_leaves(items[index])
        for side, items, indices in ((0, old, before), (1, new, after))
        for index in indices
    }
    ranked = sorted((-len(parts[0, i] & parts[1, j]), abs(i - j), i, j) for i in before for j in after)
    pairs: dict[int, int] = {}
    for score, _, i, j in ranked:
        if score < 0 and i not in pairs and j not in pairs.values():
            pairs[i] = j
    return list(pairs.items())


def _collect_leaves(value: Any, path: str = "") -> frozenset[tuple[str, str]]:
    """The scalars in ``value``, each with the names that lead to it; indices of lists do not count."""
    if isinstance(value, dict):
        return frozenset().union(*(_collect_leaves(member, f"{path}.{name}") for name, member in value.items()))
    if isinstance(value, list):
        return frozenset().union(*(_collect_leaves(member, path) for member in value))
    return frozenset({(path, repr(value))})


def _class_at(shape: FieldSchema, path: str, inherited: ChangeClass) -> ChangeClass:
    if path == f'tags["{DEPLOY_TIMESTAMP_TAG}"]':
        return ChangeClass.NEW_VERSION
    return ChangeClass(shape.change) if shape.change else inherited


def _get_item_name(item: Any, member: str) -> str:
    value = str(item.get(member, "")) if isinstance(item, dict) else str(item)
    return value.rpartition("/")[2] if member == "location" else value
