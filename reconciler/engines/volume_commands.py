"""The commands on volumes, for every engine: strict parsing, and the checks that need no volume."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from reconciler.engines import volumes
from reconciler.engines.command_spec import read_spec
from reconciler.engines.volumes import Snapshot, VolumeSetState, rejection
from reconciler.model.suggest import closest


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


VolumeCommand = ExpandVolume | DeleteVolume | CreateVolumeSnapshot | DeleteVolumeSnapshot | RestoreVolume

VOLUME_COMMANDS: Mapping[str, type[VolumeCommand]] = {
    "expandVolume": ExpandVolume,
    "deleteVolume": DeleteVolume,
    "createVolumeSnapshot": CreateVolumeSnapshot,
    "deleteVolumeSnapshot": DeleteVolumeSnapshot,
    "restoreVolume": RestoreVolume,
}


def parse_volume_command(name: str, spec: Mapping[str, Any]) -> VolumeCommand:
    """Parse a command on a volume set. Raises EngineError for an unknown name or an invalid spec."""
    form = VOLUME_COMMANDS.get(name)
    if form is None:
        near = closest(name, VOLUME_COMMANDS)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(VOLUME_COMMANDS)}"
        raise rejection(f"a volume set has no command {name}; {hint}")
    ask: VolumeCommand = read_spec(name, spec, form)
    if isinstance(ask, CreateVolumeSnapshot):
        _check_snapshot(ask)
    return ask


def apply_command(state: VolumeSetState, ask: VolumeCommand, capacity: float, at: str) -> VolumeSetState:
    """``state`` after ``ask``; ``capacity`` is that of the volume set, in GB. Raises EngineError if impossible."""
    index = ask.volume_index
    match ask:
        case ExpandVolume(new_storage_capacity=size):
            return volumes.on_volume(state, index, lambda volume: volumes.expand(volume, size))
        case DeleteVolume():
            return volumes.on_volume(state, index, lambda volume: volumes.clear(volume, capacity))
        case CreateVolumeSnapshot(snapshot_name=name, snapshot_expiration_date=expires, tags=tags):
            snapshot = Snapshot(name, at, 0, expires, tags)
            return volumes.on_volume(state, index, lambda volume: volumes.add_snapshot(volume, snapshot))
        case DeleteVolumeSnapshot(snapshot_name=name):
            return volumes.on_volume(state, index, lambda volume: volumes.without_snapshot(volume, name))
        case RestoreVolume(snapshot_name=name):
            return volumes.on_volume(state, index, lambda volume: volumes.restore_snapshot(volume, name))


def _check_snapshot(ask: CreateVolumeSnapshot) -> None:
    if not ask.snapshot_name.strip():
        raise rejection("snapshotName is empty")
    if not ask.snapshot_expiration_date:
        return
    try:
        moment = datetime.fromisoformat(ask.snapshot_expiration_date)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise rejection("snapshotExpirationDate is a UTC timestamp like 2026-01-31T12:00:00Z")
