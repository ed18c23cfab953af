"""Claims and snapshots of a volume set as the platform shows its volumes; pure, sizes in GB."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import UNSET

from reconciler.engines.kubernetes.status.events import EventIndex, find_event, index_events, list_events
from reconciler.engines.kubernetes.status.fields import (
    ObjectPart,
    find_condition,
    is_true,
    name_of,
    parse_quantity,
    read_field,
    read_message,
    read_text,
)
from reconciler.engines.kubernetes.status.pods import ClaimFault
from reconciler.engines.kubernetes.status.readiness import ReadinessState, compute_readiness
from reconciler.engines.kubernetes.status.snapshots import (
    RESTORE_UNDONE,
    LiveSnapshot,
    SnapshotPhase,
    list_ready,
    read_index,
    read_snapshot,
)
from reconciler.engines.volumes import ReplicaVolume, Snapshot, VolumeLifecycle, VolumeSetState, last_proof
from reconciler.engines.workload.status import DeploymentCondition, make_condition, with_condition
from reconciler.model.quantity import GIB
from reconciler.model.record import Health
from reconciler.reasons import ConditionType, Reason


class LiveVolumes(msgspec.Struct, frozen=True):
    """What a cluster has of one volume set; ``used`` are the bytes in use by the index of the volume.

    ``claimed`` is the volume set as the records have it: which workload uses it, and which volumes its replicas want.
    """

    claimed: VolumeSetState
    claims: tuple[ObjectPart, ...] = ()
    snapshots: tuple[ObjectPart, ...] = ()
    events: tuple[ObjectPart, ...] = ()
    used: Mapping[int, int] = {}


def volumeset_state(live: LiveVolumes) -> tuple[Health, bytes]:
    """Health and state of a volume set, with a condition for what fails."""
    events = index_events(live.events)
    by_index = {index: claim for claim in live.claims if (index := read_index(claim)) is not None}
    state = _build_state(live, by_index)
    conditions = [*_check_claims(by_index, events), *_check_snapshots(live)]
    encoded = msgspec.json.encode(state)
    for condition in conditions:
        encoded = with_condition(encoded, condition)
    repairing = any(volume.lifecycle is VolumeLifecycle.REPAIRING for volume in state.volumes)
    degraded = repairing or any(condition.type.degrades for condition in conditions)
    return Health.UNHEALTHY if degraded else Health.HEALTHY, encoded


def find_claim_faults(claims: Iterable[ObjectPart], events: EventIndex) -> dict[str, ClaimFault]:
    """Why claims have no volume, by the name of the claim; those that have one are left out."""
    faults = ((name_of(claim), _find_fault(claim, events)) for claim in claims)
    return {name: fault for name, fault in faults if fault is not None}


def _find_fault(claim: ObjectPart, events: EventIndex) -> ClaimFault | None:
    phase = read_text(claim, "status", "phase")
    if phase == "Bound":
        return None
    if phase == "Lost":
        return ClaimFault("its volume is lost", True)
    own = list_events(events, claim, "PersistentVolumeClaim")
    event = find_event(
        own, "ProvisioningFailed", "FailedBinding", "WaitForFirstConsumer", "WaitForPodScheduled",
        "ExternalProvisioning", "Provisioning",
    )  # fmt: skip
    if event is None:
        return ClaimFault("it has no volume yet")
    return ClaimFault(event.message, event.reason in ("ProvisioningFailed", "FailedBinding"))


def _build_state(live: LiveVolumes, by_index: Mapping[int, ObjectPart]) -> VolumeSetState:
    claimed = live.claimed
    bound = {volume.index for volume in claimed.volumes if volume.lifecycle is VolumeLifecycle.BOUND}
    free = VolumeLifecycle.UNBOUND if claimed.used_by_workload else VolumeLifecycle.UNUSED
    snapshots = _group_snapshots(live.snapshots)
    volumes = {
        index: _make_volume(
            index, claim, VolumeLifecycle.BOUND if index in bound else free, live.used.get(index, 0),
            snapshots.get(index, ()),
        )
        for index, claim in by_index.items()
    }  # fmt: skip
    for index in bound - volumes.keys():
        volumes[index] = ReplicaVolume(index, VolumeLifecycle.CREATING, 0)
    return msgspec.structs.replace(claimed, volumes=tuple(volumes[index] for index in sorted(volumes)))


def _make_volume(
    index: int, claim: ObjectPart, there: VolumeLifecycle, used: int, snapshots: tuple[Snapshot, ...]
) -> ReplicaVolume:
    proven, phase = last_proof(snapshots), read_text(claim, "status", "phase")
    if read_text(claim, "metadata", "deletionTimestamp"):
        # A replica that wants a deleted volume gets a new one.
        lifecycle = VolumeLifecycle.CREATING if there is VolumeLifecycle.BOUND else VolumeLifecycle.DELETED
        return ReplicaVolume(index, lifecycle, 0, 0, snapshots, last_proven=proven)
    if phase not in ("Bound", "Lost"):
        return ReplicaVolume(index, VolumeLifecycle.CREATING, 0, 0, snapshots, last_proven=proven)
    size = round(parse_quantity(read_field(claim, "status", "capacity", "storage")) / GIB, 3)
    detached = is_true(find_condition(claim, "FileSystemResizePending")) or UNSET
    lifecycle = VolumeLifecycle.REPAIRING if phase == "Lost" else there
    return ReplicaVolume(index, lifecycle, size, used, snapshots, detached, proven)


def _group_snapshots(parts: Iterable[ObjectPart]) -> dict[int, tuple[Snapshot, ...]]:
    """The snapshots that can be restored by the index of their volume, the oldest first.

    A volume that moves to another workload gets another claim, and its snapshots still name the former one.
    """
    by_index: dict[int, list[Snapshot]] = defaultdict(list)
    for live in list_ready(map(read_snapshot, parts)):
        if live.index is not None:
            by_index[live.index].append(live.snapshot)
    return {index: tuple(snapshots) for index, snapshots in by_index.items()}


def _check_claims(by_index: Mapping[int, ObjectPart], events: EventIndex) -> Iterator[DeploymentCondition]:
    """The condition for the first volume that cannot be created or grow, or is lost, or whose restore was undone."""
    for index, claim in sorted(by_index.items()):
        fault = _find_fault(claim, events)
        message = fault.message if fault is not None and fault.failing else _check_growth(claim, events)
        if message:
            words = f"{Reason.VOLUME_UNAVAILABLE}: volume {index}: {message}"
            yield make_condition(ConditionType.VOLUME_CHECK_FAILING, Reason.VOLUME_CHECK_FAILED, words)
            return
    for index, claim in sorted(by_index.items()):
        if undone := read_message(claim, "metadata", "annotations", RESTORE_UNDONE):
            words = f"volume {index}: {undone}"
            yield make_condition(ConditionType.VOLUME_CHECK_FAILING, Reason.VOLUME_CHECK_FAILED, words)
            return


def _check_growth(claim: ObjectPart, events: EventIndex) -> str:
    """Why a claim that has a volume cannot grow; "" if it can, or has."""
    readiness = compute_readiness({**claim, "kind": "PersistentVolumeClaim"})
    if readiness.state is ReadinessState.FAILED:
        return readiness.message
    if readiness.current or read_text(claim, "status", "phase") != "Bound":
        return ""
    event = find_event(list_events(events, claim, "PersistentVolumeClaim"), "VolumeResizeFailed", "ExternalExpanding")
    return event.message if event is not None and event.reason == "VolumeResizeFailed" else ""


def _check_snapshots(live: LiveVolumes) -> Iterator[DeploymentCondition]:
    """The condition for the newest snapshot of a volume, if it could not be taken."""
    newest: dict[int | None, LiveSnapshot] = {}
    for snapshot in sorted(map(read_snapshot, live.snapshots), key=lambda one: one.since):
        if not snapshot.final:
            newest[snapshot.index] = snapshot
    for snapshot in newest.values():
        if snapshot.phase is SnapshotPhase.FAILED:
            words = f"{snapshot.snapshot.name} was not taken: {Reason.SNAPSHOT_FAILED}: {snapshot.message}"
            yield make_condition(ConditionType.SNAPSHOT_FAILING, Reason.SNAPSHOT_FAILED, words)
            return
