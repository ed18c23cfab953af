"""Which volumes go back, and to which snapshots, when a source is rolled back with its data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from reconciler.engines.release_snapshots import KEEP, commit_of, version_of, workload_of
from reconciler.engines.volumes import ReplicaVolume, Snapshot, VolumeSnapshot, read_volumes
from reconciler.model.key import Key, Kind
from reconciler.model.revision import Revision
from reconciler.operations.resource_commands import cancel_command
from reconciler.records.store import Records
from reconciler.records.tables.commands import CommandStage, NewCommand, Precondition
from reconciler.times import format_duration, parse_time

if TYPE_CHECKING:
    from reconciler.source.repository import Repository

RESTORE = "restoreVolume"


class RollbackTarget(msgspec.Struct, frozen=True):
    """What a source can be rolled back to, and the snapshots from which its volumes can be restored."""

    source: str
    expression: str
    revision: Revision
    restores: list[VolumeSnapshot]


def find_restores(records: Records, repository: Repository, source: str, commit: str) -> list[VolumeSnapshot]:
    """For each volume of ``source`` that a newer version than that of ``commit`` wrote to, the snapshot before it.

    Of the snapshots since the last version that ``commit`` has, it is the oldest.
    """
    return [
        VolumeSnapshot(record.key, record.location, volume.index, oldest)
        for record in records.applied.items(Kind.VOLUMESET)
        if (state := read_volumes(record.state)) is not None
        for volume in state.volumes
        for snapshots in _by_workload(records, record.key, volume, source)
        if (oldest := _before_newer(repository, snapshots, commit)) is not None
    ]


def _before_newer(repository: Repository, snapshots: Sequence[Snapshot], commit: str) -> Snapshot | None:
    """The oldest of ``snapshots``, of one workload, since the last version that ``commit`` has; None if none is.

    None too if that one is gone, or would be before it is restored, since there are so many newer ones.
    """
    newer = [snapshot for snapshot in snapshots if not repository.contains(commit, commit_of(snapshot))]
    last = max((version_of(snapshot) for snapshot in snapshots if snapshot not in newer), default=0)
    since = sorted((snapshot for snapshot in newer if version_of(snapshot) > last), key=version_of)
    too_many = len(since) > KEEP or (len(since) == KEEP and not last)
    return since[0] if since and not too_many else None


def digest_of(target: RollbackTarget) -> str:
    """The digest by which an operator approves the loss: it changes with the revision and with each snapshot."""
    restores = [
        (str(restore.key), restore.location, restore.index, restore.snapshot.name, restore.snapshot.created)
        for restore in target.restores
    ]
    return sha256(msgspec.json.encode((target.source, target.revision.commit, sorted(restores)))).hexdigest()


def describe_loss(restore: VolumeSnapshot, now: float) -> str:
    """What ``restore`` loses, for the operator."""
    snapshot, workload = restore.snapshot, workload_of(restore.snapshot, restore.key)
    target = f"volume {restore.index} of {restore.key} at {restore.location}"
    taken = f"{snapshot.name} of {format_duration(now - parse_time(snapshot.created))} ago"
    return f"{target} goes back to {taken}, before version {version_of(snapshot)} of {workload}"


def request_restores(records: Records, source: str, commit: str, restores: Sequence[VolumeSnapshot], by: str) -> None:
    """Request ``restores``, each for when its workload is back at ``commit``; for an open transaction."""
    for restore in restores:
        workload = workload_of(restore.snapshot, restore.key)
        spec = {"location": restore.location, "volumeIndex": restore.index, "snapshotName": restore.snapshot.name}
        wait = Precondition(source, commit, workload) if workload is not None else None
        records.commands.add(NewCommand(restore.key, restore.location, RESTORE, spec, by, wait))


def cancel_restores(records: Records, source: str, by: str) -> None:
    """Cancel what an earlier rollback of ``source`` requested and did not come to; for an open transaction."""
    for command in records.commands.open():
        wait = command.precondition
        if command.stage is CommandStage.PENDING and wait is not None and wait.source == source:
            cancel_command(records, command, by)


def _by_workload(records: Records, volumeset: Key, volume: ReplicaVolume, source: str) -> Iterator[list[Snapshot]]:
    """The snapshots before releases of workloads of ``source``, those of each workload together."""
    snapshots: dict[Key, list[Snapshot]] = {}
    for snapshot in volume.volume_snapshots:
        workload = workload_of(snapshot, volumeset)
        if workload is not None and any(record.source == source for record in records.applied.get(workload)):
            snapshots.setdefault(workload, []).append(snapshot)
    yield from snapshots.values()
