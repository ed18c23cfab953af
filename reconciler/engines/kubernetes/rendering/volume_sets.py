"""Objects for the volumes of volume sets: what commands on them create, and the names of their claims.

A volume set has no objects of its own: the StatefulSet that mounts it makes a claim for each replica, which stays when
the replica ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures, KubeObject, VolumeSetInputs
from reconciler.engines.kubernetes.rendering.names import (
    PREFIX,
    build_metadata,
    build_pod_labels,
    claim_name,
    format_label_value,
    hash_text,
    select_pods,
)
from reconciler.engines.kubernetes.rendering.quantities import drop_empty
from reconciler.engines.kubernetes.rendering.volumes import build_claim_spec
from reconciler.model.kinds.volumeset import Growth, Specification

SNAPSHOT_GROUP = "snapshot.storage.k8s.io"
SNAPSHOT, EXPIRES, TAGS, VOLUME = (f"{PREFIX}{name}" for name in ("snapshot", "expires", "tags", "volume"))
"""Annotations of a snapshot: its name, its expiration, its tags as JSON; and a label with the index of its volume."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class SnapshotRequest(msgspec.Struct, frozen=True):
    """A snapshot to take of a volume; ``expires`` is ISO 8601, "" for never."""

    index: int
    name: str
    expires: str = ""
    tags: Mapping[str, str] = {}


def render_volume_set(inputs: VolumeSetInputs) -> list[KubeObject]:  # noqa: ARG001
    """Nothing: see above."""
    return []


def claim_of(inputs: VolumeSetInputs, index: int) -> str:
    """The name of the claim with the volume ``index``; "" while no workload uses the volume set."""
    return claim_name(inputs.owner.key.name, inputs.workload, index) if inputs.workload else ""


def snapshot_object_name(inputs: VolumeSetInputs, index: int, snapshot: str) -> str:
    """The VolumeSnapshot that is the snapshot of a volume; its name may have any characters here."""
    return f"{claim_of(inputs, index)}.{hash_text(snapshot)}"


def render_snapshot(inputs: VolumeSetInputs, org: str, request: SnapshotRequest) -> KubeObject:
    """The VolumeSnapshot of a snapshot to take. It is no part of the ApplySet: it belongs to commands."""
    more = drop_empty(
        {
            SNAPSHOT: request.name,
            EXPIRES: request.expires,
            TAGS: _encode(request.tags).decode() if request.tags else "",
        }
    )
    name = snapshot_object_name(inputs, request.index, request.name)
    metadata = build_metadata(inputs.owner, org, inputs.namespace, name, more)
    labels = {**build_pod_labels(inputs.owner, org), VOLUME: str(request.index), **select_pods(inputs.workload)}
    return {
        "apiVersion": f"{SNAPSHOT_GROUP}/v1",
        "kind": "VolumeSnapshot",
        "metadata": {**metadata, "labels": labels},
        "spec": {"source": {"persistentVolumeClaimName": claim_of(inputs, request.index)}},
    }


def render_claim(inputs: VolumeSetInputs, org: str, index: int, size: int, snapshot: str = "") -> KubeObject:
    """The claim with the volume ``index`` of ``size`` bytes, with the data of the snapshot that is called ``snapshot``.

    A StatefulSet uses a claim that exists. It needs the claim of the same name to be deleted before.
    """
    labels = {**build_pod_labels(inputs.owner, org), **select_pods(inputs.workload)}
    source: dict[str, Any] = {}
    if snapshot:
        name = snapshot_object_name(inputs, index, snapshot)
        source = {"apiGroup": SNAPSHOT_GROUP, "kind": "VolumeSnapshot", "name": name}
    metadata = build_metadata(inputs.owner, org, inputs.namespace, claim_of(inputs, index))
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**metadata, "labels": {**labels, VOLUME: format_label_value(str(index))}},
        "spec": drop_empty({**build_claim_spec(inputs.spec, size), "dataSource": source}),
    }


def list_volume_limitations(spec: Specification, features: ClusterFeatures) -> Iterator[str]:
    """A sentence for each part of a volume set that this cluster cannot have."""
    wants_snapshots = spec.snapshots.schedule is not None or spec.snapshots.create_final_snapshot
    if wants_snapshots and not features.snapshots:
        yield f"Snapshots are not taken: the cluster does not serve VolumeSnapshot of {SNAPSHOT_GROUP}."
    if spec.autoscaling != Growth():
        yield "Volumes do not grow by themselves as they fill: a cluster does not report their free space here."
