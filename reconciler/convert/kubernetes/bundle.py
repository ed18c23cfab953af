"""Kubernetes documents as resources: lists are unpacked, and each resource has a kind, namespace and name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from reconciler.convert.tracked_value import ResourceNotes, TrackedValue
from reconciler.model.finding import Pointer
from reconciler.model.key import KINDS

GROUPS: dict[str, frozenset[str]] = {
    "Deployment": frozenset({"apps", "extensions"}),
    "StatefulSet": frozenset({"apps"}),
    "ReplicaSet": frozenset({"apps", "extensions"}),
    "ReplicationController": frozenset({""}),
    "DaemonSet": frozenset({"apps", "extensions"}),
    "CronJob": frozenset({"batch"}),
    "Job": frozenset({"batch"}),
    "Secret": frozenset({""}),
    "ConfigMap": frozenset({""}),
    "PersistentVolumeClaim": frozenset({""}),
    "Ingress": frozenset({"networking.k8s.io", "extensions"}),
    "Service": frozenset({""}),
    "HorizontalPodAutoscaler": frozenset({"autoscaling"}),
    "ServiceAccount": frozenset({""}),
    "PersistentVolume": frozenset({""}),
    "StorageClass": frozenset({"storage.k8s.io"}),
}
"""Kinds that are converted, or affect the conversion of others, with their API groups."""

JOBS = ("CronJob", "Job")
"""Kinds that become cron workloads."""

WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DaemonSet", *JOBS)
"""Kinds that become workloads."""

_LISTED = frozenset({"List", *(f"{kind}List" for kind in GROUPS)})
_UNSCOPED = frozenset({"PersistentVolume", "StorageClass"})


class SourceDocument(NamedTuple):
    """One document of a file."""

    path: str
    position: int
    value: Any


class Item(msgspec.Struct, frozen=True):
    """One Kubernetes resource; ``meant``: whether the conversion knows its ``kind``."""

    kind: str
    namespace: str
    name: str
    root: TrackedValue
    meant: bool

    @property
    def spec(self) -> TrackedValue:
        """Its field ``spec``."""
        return self.root["spec"]

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.root["metadata"]["labels"].mapping()

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Bundle:
    """All resources that are converted together, in the order of their documents."""

    def __init__(self, sources: Iterable[SourceDocument]) -> None:
        self.sheets: list[ResourceNotes] = []
        self.items: list[Item] = []
        self._found: dict[tuple[str, str, str], Item] = {}
        for source in sources:
            for at, value in _unpack_list(source.value, ()):
                self._add(source, at, value)

    def of(self, *kinds: str) -> Iterator[Item]:
        """The resources of ``kinds``, one kind after the other."""
        for kind in kinds:
            yield from (item for item in self.items if item.kind == kind and item.meant)

    def find(self, kind: str, namespace: str, name: str) -> Item | None:
        """The resource of that kind and name, None where the files do not have it."""
        return self._found.get((kind, "" if kind in _UNSCOPED else namespace, name))

    def restrict(self, items: list[Item]) -> None:
        """Reduce the lists of kinds to ``items``; ``find`` still finds all."""
        self.items = items

    def _add(self, source: SourceDocument, at: Pointer, value: Any) -> None:
        sheet = ResourceNotes(source.path, source.position)
        self.sheets.append(sheet)
        root = TrackedValue(sheet, at, value)
        if not isinstance(value, dict) or "kind" not in value or "apiVersion" not in value:
            _refuse_document(root)
            return
        kind, group = root["kind"].require_text(), root["apiVersion"].require_text().rpartition("/")[0]
        meant = group in GROUPS.get(kind, ())
        item = Item(kind, root["metadata"]["namespace"].text(), _find_name(root["metadata"], meant), root, meant)
        key = (kind, "" if kind in _UNSCOPED else item.namespace, item.name)
        if meant and key in self._found:
            first = self._found[key].root.sheet
            root.add_note(
                "convert-duplicate", f"{item} is declared twice, first in {first.path}", "keep one of the two"
            )
        elif item.name or not meant:
            self._found |= {key: item} if meant else {}
            self.items.append(item)


def _find_name(metadata: TrackedValue, needed: bool) -> str:
    """The name, else the prefix of names that a cluster generates."""
    generated = metadata["generateName"].text().rstrip("-")
    if metadata["name"] or not generated:
        return metadata["name"].require_text() if needed else metadata["name"].text()
    return generated


def _get_kind(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


def _unpack_list(value: Any, at: Pointer) -> Iterator[tuple[Pointer, Any]]:
    """``value``, or its items if it is a list; lists do not hold lists."""
    if _get_kind(value) in _LISTED and isinstance(value.get("items"), list):
        yield from (((*at, "items", index), item) for index, item in enumerate(value["items"]))
    else:
        yield at, value


def _refuse_document(root: TrackedValue) -> None:
    kind = _get_kind(root.value)
    if kind in KINDS and "apiVersion" not in root.value:
        message = f"this is a manifest of the platform already, of kind {kind}"
        root.add_note("convert-not-kubernetes", message, "remove it; `reconciler import` tidies manifests")
    else:
        root.add_note("convert-not-kubernetes", "a Kubernetes resource is a mapping with `apiVersion` and `kind`")
    root.ignore()
