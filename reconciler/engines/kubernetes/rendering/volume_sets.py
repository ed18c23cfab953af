"""The objects of a volume set: its claims come from the StatefulSet that mounts it, one for each replica."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures, KubeObject, VolumeSetInputs
from reconciler.engines.kubernetes.rendering.names import claim_name
from reconciler.model.kinds.volumeset import Growth, Specification


def render_volume_set(inputs: VolumeSetInputs) -> list[KubeObject]:  # noqa: ARG001
    """Nothing: a claim belongs to a replica, and stays when that ends (see ``claim_of``)."""
    return []


def claim_of(inputs: VolumeSetInputs, index: int) -> str:
    """The name of the claim with the volume ``index``; "" while no workload uses the volume set."""
    return claim_name(inputs.owner.key.name, inputs.workload, index) if inputs.workload else ""


def list_volume_limitations(spec: Specification, features: ClusterFeatures) -> Iterator[str]:
    """A sentence for each part of a volume set that this cluster cannot have."""
    wants_snapshots = spec.snapshots.schedule is not None or spec.snapshots.create_final_snapshot
    if wants_snapshots and not features.snapshots:
        yield "Snapshots are not taken: the cluster does not serve VolumeSnapshot of snapshot.storage.k8s.io."
    if spec.autoscaling != Growth():
        yield "Volumes do not grow by themselves as they fill: a cluster does not report their free space here."
