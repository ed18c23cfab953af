"""Who owns which fields: server-side apply, and what other writes leave in ``managedFields``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.kubernetes.fake import fields
from tests.kubernetes.fake.errors import ApiError, Cause, Object, apply_conflict, bad_request
from tests.kubernetes.fake.fields import Paths
from tests.kubernetes.fake.types import Node

NOT_OWNED: Paths = {
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
}
"""Fields that no one owns."""
MOST_UPDATERS = 10
"""Managers of updates that an object remembers; older ones become one."""


class Manager(NamedTuple):
    """Who writes, and how."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @property
    def identity(self) -> Manager:
        """One that applies is the same in each version of the API."""
        return self._replace(api_version="") if self.operation == "Apply" else self

    @property
    def text(self) -> str:
        """The manager in messages."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == "Apply" else f"{text} using {self.api_version}"


class Ownership(NamedTuple):
    """The fields of a manager, and when they changed."""

    paths: Paths
    api_version: str
    time: str


Owners = dict[Manager, Ownership]


def read_owners(entries: list[Object]) -> Owners:
    """The owners that ``managedFields`` has."""
    owners: Owners = {}
    for entry in entries:
        version = entry.get("apiVersion", "")
        manager = Manager(entry.get("manager", ""), entry["operation"], version, entry.get("subresource", ""))
        paths = set(fields.decode_fields(entry.get("fieldsV1", {})))
        owners[manager.identity] = Ownership(paths, version, entry.get("time", ""))
    return owners


def write_owners(owners: Owners) -> list[Object]:
    """``managedFields``, in the order of the server."""

    def order(item: tuple[Manager, Ownership]) -> tuple[str, ...]:
        manager, owned = item
        return (manager.operation, owned.time, manager.name, owned.api_version, manager.subresource)

    entries = []
    for manager, owned in sorted(owners.items(), key=order):
        if not owned.paths:
            continue
        entry = {"manager": manager.name, "operation": manager.operation, "apiVersion": owned.api_version}
        if owned.time:
            entry["time"] = owned.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": fields.encode_fields(owned.paths)}
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    return entries


def owners_of(live: Object, new: Object) -> Owners:
    """The owners that count: those that the request writes, else those of the live object."""
    written = new.get("metadata", {}).get("managedFields")
    if written == [{}]:
        return {}
    try:
        owners = read_owners(written or [])
    except (KeyError, TypeError, AttributeError):
        owners = {}
    return owners or read_owners(live.get("metadata", {}).get("managedFields") or [])


def without_owners(value: Object) -> Object:
    """An object without ``managedFields``."""
    metadata = value.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return value
    return value | {"metadata": {key: entry for key, entry in metadata.items() if key != "managedFields"}}


def set_owners(value: Object, entries: list[Object]) -> None:
    """Write ``managedFields`` into an object, where there are any."""
    metadata = value.setdefault("metadata", {})
    metadata.pop("managedFields", None)
    if entries:
        metadata["managedFields"] = entries


def has_owner(value: Object, path: fields.Path) -> bool:
    """Whether a manager owns the field at ``path``."""
    owners = read_owners(value["metadata"].get("managedFields") or [])
    return any(path in owned.paths for owned in owners.values())


class Tracker(NamedTuple):
    """Tracks the fields of objects of one type.

    ``reset`` are fields that this endpoint does not write; ``skeleton`` is an object with the parts that are always
    there.
    """

    node: Node
    reset: Paths
    skeleton: Object

    def update(self, live: Object, new: Object, manager: Manager, now: str) -> list[Object]:
        """``managedFields`` after a write of ``new``; ``live`` is empty for an object that is created."""
        owners = owners_of(live, new)
        if live and not owners:
            return []  # what was never tracked is not tracked by an update
        old = without_owners(live) if live else self.skeleton
        comparison = fields.compare_values(self.node, old, without_owners(new))
        owners = self._release(owners, manager, comparison, force=True)
        before = owners.get(manager.identity, Ownership(set(), manager.api_version, ""))
        paths = (before.paths - comparison.removed) | comparison.modified | comparison.added
        paths = self._owned(paths)
        time = now if paths != before.paths or not before.time else before.time
        owners[manager.identity] = Ownership(paths, manager.api_version, time)
        return write_owners(_limit_updaters(owners))

    def apply(
        self, live: Object, applied: Object, manager: Manager, now: str, complete: Callable[[Object], Object]
    ) -> Object:
        """``live`` with what ``applied`` has and without what it no longer has; None of it is written yet."""
        return self._apply(live, applied, manager, now, complete, force=False)

    def force(
        self, live: Object, applied: Object, manager: Manager, now: str, complete: Callable[[Object], Object]
    ) -> Object:
        """The same, whoever owns the fields."""
        return self._apply(live, applied, manager, now, complete, force=True)

    def _apply(
        self,
        live: Object,
        applied: Object,
        manager: Manager,
        now: str,
        complete: Callable[[Object], Object],
        *,
        force: bool,
    ) -> Object:
        owners = owners_of(live, {})
        if live and not owners:
            first = Manager("before-first-apply", "Update", manager.api_version)
            owners = read_owners(self.update({}, without_owners(live), first, now))
        before = owners.get(manager.identity, Ownership(set(), manager.api_version, ""))
        old = without_owners(live)
        paths = self._owned(fields.fields_in(self.node, applied))
        owners[manager.identity] = Ownership(paths, manager.api_version, before.time)
        merged = fields.merge_values(self.node, old, applied)
        merged = self._prune(merged, owners, before.paths)
        comparison = fields.compare_values(self.node, old, merged)
        owners = self._release(owners, manager, comparison, force=force)
        new = complete(merged)
        time = now if any(comparison) else before.time
        owners[manager.identity] = Ownership(paths, manager.api_version, time)
        set_owners(new, write_owners(owners))
        return new

    def _owned(self, paths: Paths) -> Paths:
        return {
            path
            for path in paths
            if path and path not in NOT_OWNED and not any(path[: len(root)] == root for root in self.reset)
        }

    def _prune(self, merged: Object, owners: Owners, last: Paths) -> Object:
        """``merged`` without what only the last apply of this manager had."""
        if not last:
            return merged
        node = self.node
        last = fields.with_named_parents(node, last)
        pruned = fields.remove_fields(node, merged, last)
        pruned = pruned or {}
        owned: Paths = set().union(*(owned.paths for owned in owners.values()))
        before = fields.with_named_parents(node, fields.fields_in(node, merged))
        after = fields.with_named_parents(node, fields.fields_in(node, pruned))
        pruned = fields.remove_fields(node, merged, before - (after | fields.with_named_parents(node, owned)))
        after = fields.with_named_parents(node, fields.fields_in(node, pruned))
        return fields.remove_fields(node, merged, (before - after) & last) or {}

    def _release(self, owners: Owners, manager: Manager, comparison: fields.Comparison, *, force: bool) -> Owners:
        """The owners, where others lose what this manager changes; ApiError where that needs force."""
        changed = comparison.modified | comparison.added
        others = {other: owned for other, owned in owners.items() if other != manager.identity}
        conflicts = {other: owned.paths & changed for other, owned in others.items()}
        conflicts = {other: paths for other, paths in conflicts.items() if paths}
        if conflicts and not force:
            raise conflict_error(conflicts)
        for other, owned in others.items():
            rest = owned.paths - conflicts.get(other, set()) - comparison.removed
            owners[other] = owned._replace(paths=rest)
        return owners


def _limit_updaters(owners: Owners) -> Owners:
    updaters = [manager for manager in owners if manager.operation == "Update" and not manager.subresource]
    if len(updaters) <= MOST_UPDATERS:
        return owners
    oldest = sorted(updaters, key=lambda manager: owners[manager].time)[: len(updaters) - MOST_UPDATERS + 1]
    merged = Manager("ancient-changes", "Update", owners[oldest[-1]].api_version)
    paths = set().union(*(owners[manager].paths for manager in oldest))
    rest = {manager: owned for manager, owned in owners.items() if manager not in oldest}
    return rest | {merged: Ownership(paths, merged.api_version, owners[oldest[-1]].time)}


def conflict_error(conflicts: dict[Manager, Paths]) -> ApiError:
    """The fields, each with the manager that owns it."""
    listed = [(manager, path) for manager in sorted(conflicts) for path in sorted(conflicts[manager])]
    causes = [
        Cause("FieldManagerConflict", f"conflict with {manager.text}", fields.show_path(path))
        for manager, path in listed
    ]
    if len(causes) == 1:
        return apply_conflict(causes, f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}")
    lines = []
    for manager in sorted(conflicts):
        lines.append(f"conflicts with {manager.text}:")
        lines += [f"- {fields.show_path(path)}" for path in sorted(conflicts[manager])]
    return apply_conflict(causes, f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines))


def check_applied(applied: Any) -> None:
    """Raise ApiError for a body of an apply that no object can be."""
    if not isinstance(applied, dict):
        raise bad_request("error decoding YAML: json: cannot unmarshal into Go value of type map[string]interface {}")
    if (applied.get("metadata") or {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")


def manager_name(field_manager: str, user_agent: str) -> str:
    """The manager of a write: the one that it names, else the program that writes."""
    name = field_manager or re.split(r"[/ ]", user_agent or "unknown")[0]
    return name[:128]
