"""The objects of the server, one revision for all, and the history that watches read."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from tests.kubernetes.fake.errors import Object, Resource, expired

Name = tuple[str, str]
"""Namespace and name; the namespace of a cluster's object is empty."""


class Change(NamedTuple):
    """A write, as a watch shows it; ``old`` is what was there, None for a new object."""

    revision: int
    type: str
    value: Object
    old: Object | None


class Storage:
    """Objects by resource and name. Take `lock` to read and write in one step."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.revision = 1
        self.compacted = 0
        self._objects: dict[tuple[str, str], dict[Name, Object]] = defaultdict(dict)
        self._history: dict[tuple[str, str], list[Change]] = defaultdict(list)
        self._dependents: dict[str, set[tuple[tuple[str, str], Name]]] = defaultdict(set)
        self.listeners: set[Callable[[], None]] = set()

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object, or None."""
        return self._objects[_key(resource)].get((namespace, name))

    def all(self, resource: Resource, namespace: str = "") -> list[Object]:
        """The objects of a resource, of one namespace or all, by name."""
        names = sorted(self._objects[_key(resource)].items())
        return [value for (space, _), value in names if not namespace or space == namespace]

    def dependents(self, uid: str, resource: Resource | None = None) -> list[Object]:
        """The objects that an object owns, of one resource or all, by name."""
        places = sorted(self._dependents.get(uid, ()))
        return [self._objects[key][name] for key, name in places if resource is None or key == _key(resource)]

    def all_at(self, resource: Resource, revision: int) -> dict[Name, Object]:
        """The objects as they were at ``revision``; ApiError where the history is gone."""
        if revision < self.compacted:
            raise expired("The resourceVersion for the provided list is too old.")
        objects = dict(self._objects[_key(resource)])
        for change in reversed(self._history[_key(resource)]):
            if change.revision <= revision:
                break
            name = name_of(change.value)
            if change.old is None:
                objects.pop(name, None)
            else:
                objects[name] = change.old
        return objects

    def history(self, resource: Resource) -> list[Change]:
        """All changes of a resource, oldest first; it grows."""
        return self._history[_key(resource)]

    def write(self, resource: Resource, value: Object, old: Object | None) -> Object:
        """Store ``value`` with a new resourceVersion."""
        return self._change(resource, "ADDED" if old is None else "MODIFIED", value, old)

    def remove(self, resource: Resource, value: Object) -> Object:
        """Delete the object; what a watch shows of it."""
        return self._change(resource, "DELETED", value, value)

    def _change(self, resource: Resource, kind: str, value: Object, old: Object | None) -> Object:
        with self.lock:
            self.revision += 1
            self._index(resource, kind, value, old)
            value = value | {"metadata": value["metadata"] | {"resourceVersion": str(self.revision)}}
            if kind == "DELETED":
                del self._objects[_key(resource)][name_of(value)]
            else:
                self._objects[_key(resource)][name_of(value)] = value
            self._history[_key(resource)].append(Change(self.revision, kind, value, old))
            for listener in [*self.listeners]:
                listener()
            return value

    def _index(self, resource: Resource, kind: str, value: Object, old: Object | None) -> None:
        key_and_name = (_key(resource), name_of(value))
        for uid in _owner_uids(old) if old else ():
            self._dependents[uid].discard(key_and_name)
        for uid in _owner_uids(value) if kind != "DELETED" else ():
            self._dependents[uid].add(key_and_name)

    def compact(self) -> None:
        """Forget the history: older revisions are expired."""
        with self.lock:
            self.revision += 1
            self.compacted = self.revision

    def drop(self, resource: Resource) -> None:
        """Delete all objects of a resource at once, as with its definition."""
        for value in self.all(resource):
            self.remove(resource, value)


def _key(resource: Resource) -> tuple[str, str]:
    if (resource.group, resource.plural) == ("events.k8s.io", "events"):
        return ("", "events")
    return (resource.group, resource.plural)


def _owner_uids(value: Object) -> list[str]:
    return [owner["uid"] for owner in value["metadata"].get("ownerReferences") or ()]


def name_of(value: Object) -> Name:
    """Namespace and name of an object."""
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]
