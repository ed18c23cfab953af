"""Claims and snapshots of a volume set as the platform shows its volumes; pure, sizes in GB."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import UNSET

from reconciler.engines.kubernetes.status.events import EventIndex, find_event, index_events, list_events
from reconciler.engines.kubernetes.status.fields import (
    OWN_PREFIX,
    ObjectPart,
    find_condition,
    is_true,
    name_of,
    parse_quantity,
    read_field,
    read_mapping,
    read_message,
    read_seconds,
    read_text,
)
from reconciler.engines.kubernetes.status.pods import ClaimFault
from reconciler.engines.kubernetes.status.readiness import ReadinessState, compute_readiness
from reconciler.engines.volumes import ReplicaVolume, Snapshot, VolumeLifecycle, VolumeSetState, last_proof
from reconciler.engines.workload.status import DeploymentCondition, make_condition, with_condition
from reconciler.model.quantity import GIB
from reconciler.model.record import Health
from reconciler.reasons import ConditionType, Reason
from reconciler.times import format_iso_time

VOLUME_INDEX = f"{OWN_PREFIX}volume-index"
"""The annotation of a claim with the index of its volume; without it, the name of the claim ends with that."""
SNAPSHOT_NAME = f"{OWN_PREFIX}snapshot-name"
"""The annotation of a VolumeSnapshot with its name in the platform, which an object may not be able to have."""
SNAPSHOT_EXPIRES = f"{OWN_PREFIX}expires"
"""The annotation of a VolumeSnapshot with the time when it expires, ISO 8601."""
SNAPSHOT_TAGS = f"{OWN_PREFIX}tags"
"""The annotation of a VolumeSnapshot with its tags, as JSON."""

_INDEX = re.compile(r"(?:^|-)(\d{1,6})$")


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


def read_index(claim: ObjectPart) -> int | None:
    """The index of the volume of a claim; None if the claim has none."""
    text = read_text(claim, "metadata", "annotations", VOLUME_INDEX)
    match = _INDEX.search(text or name_of(claim))
    return int(match[1]) if match else None


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
    by_claim = _group_snapshots(live.snapshots)
    volumes = {
        index: _make_volume(
            index, claim, VolumeLifecycle.BOUND if index in bound else free, live.used.get(index, 0),
            by_claim.get(name_of(claim), ()),
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


def _group_snapshots(parts: Iterable[ObjectPart]) -> dict[str, tuple[Snapshot, ...]]:
    """The snapshots that can be restored by the name of their claim, the oldest first."""
    by_claim: dict[str, list[Snapshot]] = defaultdict(list)
    for part in parts:
        if read_field(part, "status", "readyToUse") is True and not read_text(part, "metadata", "deletionTimestamp"):
            by_claim[read_text(part, "spec", "source", "persistentVolumeClaimName")].append(_read_snapshot(part))
    return {claim: tuple(sorted(made, key=lambda one: (one.created, one.name))) for claim, made in by_claim.items()}


def _read_snapshot(part: ObjectPart) -> Snapshot:
    annotations = read_mapping(part, "metadata", "annotations")
    created = read_seconds(part, "status", "creationTime") or read_seconds(part, "metadata", "creationTimestamp")
    size = round(parse_quantity(read_field(part, "status", "restoreSize")) / GIB, 3)
    return Snapshot(
        _snapshot_name(part),
        format_iso_time(created),
        size,
        read_text(annotations, SNAPSHOT_EXPIRES),
        _read_tags(read_text(annotations, SNAPSHOT_TAGS)),
    )


def _snapshot_name(part: ObjectPart) -> str:
    return read_text(part, "metadata", "annotations", SNAPSHOT_NAME) or name_of(part)


def _read_tags(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if text else {}
    except msgspec.DecodeError:
        return {}


def _check_claims(by_index: Mapping[int, ObjectPart], events: EventIndex) -> Iterator[DeploymentCondition]:
    """The condition for the first volume that cannot be created or grow, or is lost."""
    for index, claim in sorted(by_index.items()):
        fault = _find_fault(claim, events)
        message = fault.message if fault is not None and fault.failing else _check_growth(claim, events)
        if message:
            words = f"{Reason.VOLUME_UNAVAILABLE}: volume {index}: {message}"
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
    newest: dict[str, ObjectPart] = {}
    for part in sorted(live.snapshots, key=lambda one: read_seconds(one, "metadata", "creationTimestamp")):
        newest[read_text(part, "spec", "source", "persistentVolumeClaimName")] = part
    for part in newest.values():
        if message := read_message(part, "status", "error", "message"):
            words = f"{_snapshot_name(part)} was not taken: {Reason.SNAPSHOT_FAILED}: {message}"
            yield make_condition(ConditionType.SNAPSHOT_FAILING, Reason.SNAPSHOT_FAILED, words)
            return
