"""The commands on volumes, for every engine: strict parsing, and the checks that need no volume."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from reconciler.engines import volumes
from reconciler.engines.command_spec import read_spec
from reconciler.engines.volumes import Snapshot, VolumeSetState, make_rejection
from reconciler.manifests.rules.text import quote_text
from reconciler.model.key import Key, Kind
from reconciler.model.suggest import find_closest_word

VERIFY = "verifyVolumeSnapshot"
CLONE = "cloneVolumeSnapshot"
MOST_TAGS = 50
"""The most tags, as of a manifest."""
_SOURCE = re.compile(r"(?://gvc/([^/]+)/volumeset|volumeset/([^/]+))/([^/]+)")
LONGEST_NAME = 100
"""Characters of the name of a snapshot, which becomes that of a directory."""


class _OnVolume(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Every command on a volume names its location and its index."""

    location: str
    volume_index: int


class ExpandVolume(_OnVolume, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Expand a volume, in GB (docs/platform/volumeset.md#commands)."""

    new_storage_capacity: float


class DeleteVolume(_OnVolume, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Delete the storage of a volume (docs/platform/volumeset.md#commands)."""


class CreateVolumeSnapshot(_OnVolume, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Take a snapshot; the expiration is ISO 8601, UTC (docs/platform/volumeset.md#commands)."""

    snapshot_name: str
    snapshot_expiration_date: str = ""
    tags: dict[str, str] = {}


class DeleteVolumeSnapshot(_OnVolume, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Delete a snapshot (docs/platform/volumeset.md#commands)."""

    snapshot_name: str


class RestoreVolume(_OnVolume, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Restore a volume from a snapshot (docs/platform/volumeset.md#commands)."""

    snapshot_name: str


class VerifyVolumeSnapshot(_OnVolume, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Prove that a snapshot can be restored (docs/platform/volumeset.md#proven-snapshots)."""

    snapshot_name: str


class CloneVolumeSnapshot(_OnVolume, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Make a snapshot of the volume set ``source`` one of the volume (docs/platform/volumeset.md#commands)."""

    snapshot_name: str
    source: str

    @property
    def source_key(self) -> Key:
        """The volume set whose snapshot it is. Raises EngineError."""
        return parse_source(self.source)


VolumeCommand = (
    ExpandVolume
    | DeleteVolume
    | CreateVolumeSnapshot
    | DeleteVolumeSnapshot
    | RestoreVolume
    | VerifyVolumeSnapshot
    | CloneVolumeSnapshot
)

VOLUME_COMMANDS: Mapping[str, type[VolumeCommand]] = {
    "expandVolume": ExpandVolume,
    "deleteVolume": DeleteVolume,
    "createVolumeSnapshot": CreateVolumeSnapshot,
    "deleteVolumeSnapshot": DeleteVolumeSnapshot,
    "restoreVolume": RestoreVolume,
    VERIFY: VerifyVolumeSnapshot,
    CLONE: CloneVolumeSnapshot,
}


MAKING_ROOM = frozenset({"deleteVolume", "deleteVolumeSnapshot"})
"""Those that make room on a full disk."""


def parse_volume_command(name: str, spec: Mapping[str, Any]) -> VolumeCommand:
    """Parse a command on a volume set. Raises EngineError for an unknown name or an invalid spec."""
    form = VOLUME_COMMANDS.get(name)
    if form is None:
        near = find_closest_word(name, VOLUME_COMMANDS)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(VOLUME_COMMANDS)}"
        raise make_rejection(f"a volume set has no command {name}; {hint}")
    ask: VolumeCommand = read_spec(name, spec, form)
    _check_volume(ask)
    return ask


def apply_command(state: VolumeSetState, ask: VolumeCommand, capacity: float, at: str) -> VolumeSetState:
    """``state`` after ``ask``; ``capacity`` is that of the volume set, in GB. Raises EngineError if impossible."""
    index = ask.volume_index
    match ask:
        case ExpandVolume(new_storage_capacity=size):
            return volumes.on_volume(state, index, lambda volume: volumes.expand_volume(volume, size))
        case DeleteVolume():
            return volumes.on_volume(state, index, lambda volume: volumes.clear_volume(volume, capacity))
        case CreateVolumeSnapshot(snapshot_name=name, snapshot_expiration_date=expires, tags=tags):
            snapshot = Snapshot(name, at, 0, expires, tags)
            return volumes.on_volume(state, index, lambda volume: volumes.add_snapshot(volume, snapshot))
        case DeleteVolumeSnapshot(snapshot_name=name):
            return volumes.on_volume(state, index, lambda volume: volumes.without_snapshot(volume, name))
        case RestoreVolume(snapshot_name=name):
            return volumes.on_volume(state, index, lambda volume: volumes.restore_snapshot(volume, name))
        case VerifyVolumeSnapshot(snapshot_name=name):
            return volumes.on_volume(state, index, lambda volume: volumes.prove_snapshot(volume, name, at))
        case CloneVolumeSnapshot(snapshot_name=name, source=source):
            clone = Snapshot(name, at, 0, tags={volumes.CLONED_FROM: f"{parse_source(source)}/{index}/{name}"})
            return volumes.on_volume(state, index, lambda volume: volumes.add_snapshot(volume, clone))


def parse_source(text: str) -> Key:
    """The volume set that ``text`` names as a link or as a key. Raises EngineError."""
    match = _SOURCE.fullmatch(text)
    if match is None:
        raise make_rejection(f"source is {quote_text(text)}; it is a volume set like //gvc/shop/volumeset/data")
    return Key(Kind.VOLUMESET, match[1] or match[2], match[3])


def check_expiration(name: str, spec: Mapping[str, Any], now: float) -> None:
    """Raise EngineError if the command ``name`` takes a snapshot that expired before ``now``, in seconds."""
    text = spec.get("snapshotExpirationDate") if VOLUME_COMMANDS.get(name) is CreateVolumeSnapshot else None
    if text and _parse_timestamp(text).timestamp() <= now:
        raise make_rejection(f"snapshotExpirationDate is {text}, which is past: the snapshot would be deleted at once")


def _check_volume(ask: VolumeCommand) -> None:
    """Check the fields of ``ask`` that need no volume. Raises EngineError."""
    if ask.volume_index < 0:
        raise make_rejection(f"volumeIndex is {ask.volume_index}; the first volume has the index 0")
    match ask:
        case ExpandVolume(new_storage_capacity=size):
            if not 0 < size <= volumes.MOST_CAPACITY:  # also false for what is no number
                raise make_rejection(
                    f"newStorageCapacity is {size:g}; a volume holds at most {volumes.MOST_CAPACITY} GB"
                )
        case CreateVolumeSnapshot():
            _check_snapshot(ask)
        case CloneVolumeSnapshot(snapshot_name=snapshot, source=source):
            _check_segment(snapshot)
            parse_source(source)
        case (
            DeleteVolumeSnapshot(snapshot_name=snapshot)
            | RestoreVolume(snapshot_name=snapshot)
            | VerifyVolumeSnapshot(snapshot_name=snapshot)
        ):
            _check_segment(snapshot)


def _check_segment(snapshot: str) -> None:
    # A snapshot of an earlier version may have a name that no new one gets.
    if snapshot in ("", ".", "..") or not _is_path_segment(snapshot):
        raise make_rejection(f"snapshotName is the name of a snapshot, not {quote_text(snapshot)}")


def _check_snapshot(ask: CreateVolumeSnapshot) -> None:
    name = ask.snapshot_name
    if not 0 < len(name) <= LONGEST_NAME or name != name.strip() or name[0] in ".-" or not _is_path_segment(name):
        raise make_rejection(
            f"snapshotName is {quote_text(name)}; a name has up to {LONGEST_NAME} printable characters without /, and "
            "begins with neither . nor -"
        )
    if len(ask.tags) > MOST_TAGS or "" in ask.tags:
        raise make_rejection(f"a snapshot has at most {MOST_TAGS} tags, each with a key")
    if ask.snapshot_expiration_date:
        _parse_timestamp(ask.snapshot_expiration_date)


def _is_path_segment(name: str) -> bool:
    return "/" not in name and name.isprintable()


def _parse_timestamp(text: str) -> datetime:
    """The time that ``text`` names. Raises EngineError if it is not ISO 8601 in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() != timedelta(0):
        raise make_rejection(
            f"snapshotExpirationDate is {quote_text(text)}; it is a UTC timestamp like 2026-01-31T12:00:00Z"
        )
    return moment
