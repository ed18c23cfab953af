"""Whose an object of a cluster is, and how one of others becomes ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.engines.kubernetes.client.objects import (
    CLAIM,
    JOB,
    NAMESPACE,
    POD,
    VOLUME_SNAPSHOT,
    KubeObject,
    ObjectKind,
    id_of,
)
from reconciler.engines.kubernetes.mirror import MirroredObject
from reconciler.engines.kubernetes.rendering.names import (
    INSTANCE,
    KEY,
    LOCATION,
    MANAGED_BY,
    TOOL,
    format_label_value,
    namespace_name,
)
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.settings import ClusterSettings

MADE_BY_CLUSTER = (POD, JOB, CLAIM, VOLUME_SNAPSHOT)
"""Kinds that controllers make from ours, or commands from these; they go with those, or by a command."""


class Owner(NamedTuple):
    """Whose objects these are: this daemon's, at a location. The names of its namespaces begin with a prefix."""

    instance: str
    location: str
    namespace_prefix: str = ""

    def select(self, kind: ObjectKind) -> str:
        """The label selector of a kind. What controllers make has no instance: another one takes it over as it is."""
        location = f"{LOCATION}={self.location}"
        if kind in MADE_BY_CLUSTER:
            return f"{MANAGED_BY}={TOOL},{location}"
        return f"{INSTANCE}={self.instance},{location}"

    def list_stranger_selectors(self) -> tuple[str, str]:
        """The label selectors of what others have, in a namespace of ours."""
        return f"{INSTANCE}!={self.instance}", f"{INSTANCE}={self.instance},{LOCATION}!={self.location}"

    def has(self, item: MirroredObject) -> bool:
        """Whether an object is in the namespace of its GVC, where no other instance has anything."""
        return item.key is None or not item.key.gvc or item.id.namespace == self.namespace_of(item.key.gvc)

    def namespace_of(self, gvc: str) -> str:
        """The namespace of a GVC."""
        return namespace_name(gvc, self.namespace_prefix)

    def owns(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with ``labels`` is one of them."""
        return labels.get(INSTANCE) == self.instance and labels.get(LOCATION) == self.location

    def is_of(self, key: Key, metadata: Mapping[str, Any]) -> bool:
        """Whether an object is one of ``key``. Where others removed one of our marks, the rest of them counts."""
        labels = metadata.get("labels") or {}
        named = (metadata.get("annotations") or {}).get(KEY, "")
        if named == str(key) and self.owns(labels):
            return True
        marks = (
            named or str(key),
            labels.get(INSTANCE, self.instance),
            labels.get(LOCATION, self.location),
        )
        missing = [name for name in (INSTANCE, LOCATION) if name not in labels] + [KEY] * (not named)
        applied = any(
            entry.get("manager") == TOOL and entry.get("operation") == "Apply"
            for entry in metadata.get("managedFields") or ()
        )
        return applied and len(missing) == 1 and marks == (str(key), self.instance, self.location)

    def may_adopt(self, stranger: KubeObject) -> bool:
        """Whether a tag may take an object over: nothing of another resource or location, nor all of another daemon."""
        labels = stranger["metadata"].get("labels") or {}
        if id_of(stranger).kind is NAMESPACE:
            return INSTANCE not in labels
        return labels.get(INSTANCE) != self.instance or LOCATION not in labels


def explain_foreign(stranger: KubeObject, owner: Owner) -> EngineError:
    """The error for an object of a name of ours that others made."""
    target, metadata = id_of(stranger), stranger["metadata"]
    labels = metadata.get("labels") or {}
    whose = "others made it"
    if INSTANCE in labels:
        whose = f"it belongs to the instance {labels[INSTANCE]} at {labels.get(LOCATION, 'another location')}"
        if owner.owns(labels):
            named = (metadata.get("annotations") or {}).get(KEY, "another resource")
            whose = f"it belongs to {named}"
    advice = ', or take it over with `reconciler/adopt: "true"`' if owner.may_adopt(stranger) else ""
    return EngineError(f"{target} exists, and {whose}; delete or rename it{advice}", reason=Reason.FOREIGN_OBJECT)


_TOOLS = ("kubectl", "kubectl-client-side-apply", "kubectl-create", "kubectl-edit", "kubectl-patch", "helm")
"""Managers whose fields become ours when an object is taken over."""


def migrate_managers(entries: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """``entries`` with those of tools in one entry of ours, as if we had applied these fields."""
    ours: dict[str, object] = {}
    rest: list[dict[str, object]] = []
    first: dict[str, object] | None = None
    for entry in entries:
        tool = entry.get("manager") in _TOOLS and not entry.get("subresource")
        own = entry.get("manager") == TOOL and entry.get("operation") == "Apply"
        if not tool and not own:
            rest.append(dict(entry))
            continue
        first = first or dict(entry)
        fields = entry.get("fieldsV1")
        ours = _merge_fields(ours, fields if isinstance(fields, dict) else {})
    if first is None:
        return rest
    return [{**first, "manager": TOOL, "operation": "Apply", "fieldsV1": ours}, *rest]


def _merge_fields(one: dict[str, object], other: Mapping[str, object]) -> dict[str, object]:
    """The union of two sets of fields, each a tree of mappings."""
    merged = dict(one)
    for name, below in other.items():
        former = merged.get(name)
        if isinstance(former, dict) and isinstance(below, dict):
            merged[name] = _merge_fields(former, below)
        else:
            merged.setdefault(name, below)
    return merged


def make_owner(org: str, location: str, cluster: ClusterSettings) -> Owner:
    """Whose the objects at ``location`` are, by the settings."""
    instance = format_label_value(cluster.instance or org)
    return Owner(instance, format_label_value(location), cluster.namespace_prefix)
