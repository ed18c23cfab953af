"""Volumes of pods: secrets as files, scratch directories, and claims of volume sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from reconciler.engines.kubernetes.client.objects import KubeObject
from reconciler.engines.kubernetes.rendering.environment import build_secret
from reconciler.engines.kubernetes.rendering.inputs import WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import (
    KEY,
    NAME,
    VOLUMESET,
    build_pod_labels,
    claim_template_name,
    format_label_value,
    hash_text,
)
from reconciler.engines.kubernetes.rendering.quantities import MEGABYTE, format_memory, format_storage
from reconciler.engines.workload.mounts import Planned, ScratchMount, SecretMount, plan_mounts
from reconciler.engines.workload.spec import count_storage_megabytes
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.volumeset import Specification as VolumeSetSpecification
from reconciler.model.quantity import GIB
from reconciler.reasons import Reason

_WHOLE_FILE = "content"
"""The key of a file that is mounted by itself."""
_LONGEST_KEY = 253
_DEFAULT_CLASS = "general-purpose-ssd"
_NO_CLASS = frozenset({"", "shared"})
"""Classes that have no effect: each replica has a volume of its own."""


class PodVolumes(msgspec.Struct, frozen=True):
    """The ``volumeMounts`` by container, the volumes of the pod, the claim templates, and the Secrets of volumes."""

    mounts: Mapping[str, list[dict[str, Any]]]
    volumes: list[dict[str, Any]]
    claim_templates: list[KubeObject]
    secrets: list[KubeObject]

    def __repr__(self) -> str:
        return f"PodVolumes({sorted(self.mounts)})"


class _VolumeSource(msgspec.Struct, frozen=True):
    """The volume ``name`` of a pod, and what has to exist for it."""

    name: str
    volume: dict[str, Any] | None = None
    secret: KubeObject | None = None
    claim_template: KubeObject | None = None

    def __repr__(self) -> str:
        return f"_VolumeSource({self.name!r})"


def build_pod_volumes(inputs: WorkloadInputs) -> PodVolumes:
    """The volumes of a workload's pods. Raises EngineError as ``plan_mounts`` does, or if a volume set is unknown."""
    mounts: dict[str, list[dict[str, Any]]] = {}
    sources: dict[str, _VolumeSource] = {}
    for container in inputs.template.spec.containers:
        mounts[container.name] = []
        for mount in plan_mounts(container, inputs.reveal, inputs.scheme):
            source = _build_source(mount, inputs)
            sources[source.name] = source
            mounts[container.name].append(_build_mount(mount, source.name))
    ordered = [sources[name] for name in sorted(sources)]
    secrets = {source.secret["metadata"]["name"]: source.secret for source in ordered if source.secret is not None}
    return PodVolumes(
        mounts,
        [source.volume for source in ordered if source.volume is not None],
        [source.claim_template for source in ordered if source.claim_template is not None],
        list(secrets.values()),
    )


def storage_class_of(spec: VolumeSetSpecification) -> str:
    """The storage class of the claims of a volume set (docs/platform/volumeset.md#clusters-of-your-own)."""
    performance = _DEFAULT_CLASS if spec.performance_class in _NO_CLASS else spec.performance_class
    parts = (performance, spec.file_system_type, spec.storage_class_suffix)
    return "-".join(part for part in parts if part)


def _build_claim_spec(spec: VolumeSetSpecification) -> dict[str, Any]:
    """The spec of a new claim. A GB of a volume is 2**30 bytes, as on a host."""
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class_of(spec),
        "resources": {"requests": {"storage": format_memory(spec.initial_capacity * GIB)}},
    }


def is_file_name(name: str) -> bool:
    """Whether a volume of a Secret can have a file ``name``; Kubernetes reserves names with two dots at the start."""
    return len(name) <= _LONGEST_KEY and not name.startswith("..")


def _build_source(mount: Planned, inputs: WorkloadInputs) -> _VolumeSource:
    if isinstance(mount, SecretMount):
        files = {_WHOLE_FILE: mount.files[""]} if mount.single else mount.files
        secret = build_secret(inputs, "file", {name: text for name, text in files.items() if is_file_name(name)})
        source = secret["metadata"]["name"]
        name = f"secret-{source.rpartition('-')[2]}"
        return _VolumeSource(name, {"name": name, "secret": {"secretName": source}}, secret)
    if isinstance(mount, ScratchMount):
        name = f"scratch-{hash_text(mount.folder)}"
        limit = format_storage(count_storage_megabytes(inputs.template.desired.containers) * MEGABYTE)
        return _VolumeSource(name, {"name": name, "emptyDir": {"sizeLimit": limit}})
    name = claim_template_name(mount.volumeset)
    return _VolumeSource(name, claim_template=_build_claim_template(name, mount.volumeset, inputs))


def _build_mount(mount: Planned, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "mountPath": mount.path}
    if isinstance(mount, SecretMount):
        entry["readOnly"] = True
        if mount.single:
            entry["subPath"] = _WHOLE_FILE
    return entry


def _build_claim_template(name: str, volumeset: str, inputs: WorkloadInputs) -> KubeObject:
    """The template of a claim, with nothing that changes with a version: a StatefulSet never changes its templates."""
    spec = inputs.volume_sets.get(volumeset)
    owner, org = inputs.owner, inputs.template.env_context.org
    key = Key(Kind.VOLUMESET, owner.key.gvc, volumeset)
    if spec is None:
        message = f"there is no {key} at this location yet: it is mounted when it is applied"
        raise EngineError(message, reason=Reason.VOLUME_UNAVAILABLE)
    labels = build_pod_labels(owner, org) | {
        NAME: format_label_value(volumeset),
        VOLUMESET: format_label_value(volumeset),
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": labels, "annotations": {KEY: str(key)}},
        "spec": _build_claim_spec(spec),
    }
