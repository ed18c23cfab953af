"""VolumeSnapshots as the platform shows snapshots, and which of them are no longer wanted; pure, sizes in GB."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from reconciler.engines.kubernetes.status.fields import (
    OWN_PREFIX,
    ObjectPart,
    name_of,
    parse_quantity,
    read_field,
    read_mapping,
    read_message,
    read_seconds,
    read_text,
)
from reconciler.engines.volumes import Snapshot
from reconciler.engines.workload.volume_upkeep import SCHEDULED
from reconciler.model.quantity import GIB
from reconciler.times import format_iso_time, parse_time

VOLUME_INDEX = f"{OWN_PREFIX}volume-index"
"""The annotation of a claim with the index of its volume; without it, the name of the claim ends with that."""
SNAPSHOT_NAME = f"{OWN_PREFIX}snapshot-name"
"""The annotation of a VolumeSnapshot with its name in the platform, which an object may not be able to have."""
SNAPSHOT_EXPIRES = f"{OWN_PREFIX}expires"
"""The annotation of a VolumeSnapshot with the time when it expires, ISO 8601."""
SNAPSHOT_TAGS = f"{OWN_PREFIX}tags"
"""The annotation of a VolumeSnapshot with its tags, as JSON."""
COMMAND = f"{OWN_PREFIX}command"
"""The annotation with the id of the command that created an object: the same command creates no second one."""
FINAL = f"{OWN_PREFIX}final"
"""The annotation of the final VolumeSnapshot of a deleted volume, with the uid of its claim."""
FORMER_VOLUME = f"{OWN_PREFIX}former-volume"
"""The annotation of the snapshot before a restore with the PersistentVolume that the restore replaces."""

RESTORE_UNDONE = f"{OWN_PREFIX}restore-undone"
"""The annotation of a claim with why the restore of its volume was undone, for a day."""

_INDEX = re.compile(r"(?:^|-)(\d{1,6})$")


class SnapshotPhase(StrEnum):
    """How far a VolumeSnapshot is: nothing has begun it, its data are fixed, it can be restored, or it failed."""

    NEW = "new"
    CUT = "cut"
    READY = "ready"
    FAILED = "failed"
    ENDING = "ending"


class LiveSnapshot(msgspec.Struct, frozen=True):
    """A VolumeSnapshot; ``index`` is that of its volume, None if it names none. ``since`` is in seconds of the epoch.

    ``final`` is the uid of the claim that it is the last snapshot of, "" for any other snapshot. ``command`` is
    the id of the command that made it. ``ours``: this program made it. ``former_volume`` is the PersistentVolume that
    the restore replaces before which it was taken, "" for any other.
    """

    object_name: str
    uid: str
    index: int | None
    phase: SnapshotPhase
    snapshot: Snapshot
    since: float
    message: str = ""
    final: str = ""
    command: str = ""
    ours: bool = False
    former_volume: str = ""


def read_snapshot(part: ObjectPart) -> LiveSnapshot:
    """A VolumeSnapshot as it is."""
    annotations = read_mapping(part, "metadata", "annotations")
    since = read_seconds(part, "metadata", "creationTimestamp")
    created = read_seconds(part, "status", "creationTime") or since
    snapshot = Snapshot(
        read_text(annotations, SNAPSHOT_NAME) or name_of(part),
        format_iso_time(created),
        round(parse_quantity(read_field(part, "status", "restoreSize")) / GIB, 3),
        _read_time(read_text(annotations, SNAPSHOT_EXPIRES)),
        _read_tags(read_text(annotations, SNAPSHOT_TAGS)),
    )
    return LiveSnapshot(
        name_of(part),
        read_text(part, "metadata", "uid"),
        parse_index(read_text(annotations, VOLUME_INDEX) or read_claim_name(part)),
        _read_phase(part),
        snapshot,
        since,
        read_message(part, "status", "error", "message"),
        read_text(annotations, FINAL),
        read_text(annotations, COMMAND),
        SNAPSHOT_NAME in annotations,
        read_text(annotations, FORMER_VOLUME),
    )


def read_index(claim: ObjectPart) -> int | None:
    """The index of the volume of a claim; None if the claim has none."""
    return parse_index(read_text(claim, "metadata", "annotations", VOLUME_INDEX) or name_of(claim))


def parse_index(text: str) -> int | None:
    """The number that ``text`` is, or ends with after a hyphen; None if there is none."""
    match = _INDEX.search(text)
    return int(match[1]) if match else None


def read_claim_name(part: ObjectPart) -> str:
    """The claim that a VolumeSnapshot was taken of."""
    return read_text(part, "spec", "source", "persistentVolumeClaimName")


def list_scheduled(snapshots: Iterable[LiveSnapshot]) -> list[LiveSnapshot]:
    """Those that the schedule asked for, whether or not they were taken, the oldest first."""
    ours = (live for live in snapshots if live.ours and not live.final and SCHEDULED in live.snapshot.tags)
    return sorted((live for live in ours if live.phase is not SnapshotPhase.ENDING), key=lambda live: live.since)


def list_ready(snapshots: Iterable[LiveSnapshot]) -> list[LiveSnapshot]:
    """Those of an existing volume that can be restored, the oldest first."""
    ready = (live for live in snapshots if live.phase is SnapshotPhase.READY and not live.final)
    return sorted(ready, key=lambda live: (live.snapshot.created, live.snapshot.name))


def list_superseded(snapshots: Iterable[LiveSnapshot]) -> Sequence[LiveSnapshot]:
    """Those of the schedule that failed and have a newer one: they would never be restored."""
    return [live for live in list_scheduled(snapshots)[:-1] if live.phase is SnapshotPhase.FAILED]


def _read_phase(part: ObjectPart) -> SnapshotPhase:
    if read_text(part, "metadata", "deletionTimestamp"):
        return SnapshotPhase.ENDING
    if read_field(part, "status", "readyToUse") is True:
        return SnapshotPhase.READY
    if read_mapping(part, "status", "error"):
        return SnapshotPhase.FAILED
    return SnapshotPhase.CUT if read_text(part, "status", "creationTime") else SnapshotPhase.NEW


def _read_time(text: str) -> str:
    """``text`` if it is a time; anything else never comes."""
    try:
        parse_time(text)
    except ValueError:
        return ""
    return text


def _read_tags(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if text else {}
    except msgspec.DecodeError:
        return {}
