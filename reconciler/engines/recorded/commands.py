"""The effects of commands on cron workloads, and the commands on volumes: strict parsing, and their effects."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from reconciler.engines import volumes
from reconciler.engines.deployment import Deployment, Execution, add_execution
from reconciler.engines.run_command import RunCronWorkload, check_run
from reconciler.engines.volumes import Snapshot, VolumeSetState
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Specification


class _Command(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Every command names its location."""

    location: str


class _OnVolume(_Command, frozen=True, rename="camel", forbid_unknown_fields=True):
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


Form = TypeVar("Form", bound=_Command)

VolumeCommand = ExpandVolume | DeleteVolume | CreateVolumeSnapshot | DeleteVolumeSnapshot | RestoreVolume

VOLUME_COMMANDS: dict[str, type[VolumeCommand]] = {
    "expandVolume": ExpandVolume,
    "deleteVolume": DeleteVolume,
    "createVolumeSnapshot": CreateVolumeSnapshot,
    "deleteVolumeSnapshot": DeleteVolumeSnapshot,
    "restoreVolume": RestoreVolume,
}


def parse_volume_command(name: str, spec: dict[str, Any]) -> VolumeCommand:
    """Parse a command on a volume set. Raises EngineError for an unknown name or an invalid spec."""
    form = VOLUME_COMMANDS.get(name)
    if form is None:
        raise volumes.rejection(f"a volume set has no command {name}; there are: {', '.join(VOLUME_COMMANDS)}")
    return _parse(name, spec, form)


def run_cron(
    deployment: Deployment, key: Key, spec: Specification, ask: RunCronWorkload, at: str
) -> tuple[Deployment, Execution]:
    """Add one execution on demand, suspended or not (docs/platform/workload.md#runs-on-demand). Raises EngineError."""
    return add_execution(deployment, key, at, check_run(key, spec, ask))


def on_volumes(state: VolumeSetState, ask: VolumeCommand, capacity: float, at: str) -> VolumeSetState:
    """``state`` after ``ask``; ``capacity`` is that of the volume set, in GB. Raises EngineError if impossible."""
    index = ask.volume_index
    match ask:
        case ExpandVolume(new_storage_capacity=size):
            return volumes.on_volume(state, index, lambda volume: volumes.expand(volume, size))
        case DeleteVolume():
            return volumes.on_volume(state, index, lambda volume: volumes.clear(volume, capacity))
        case CreateVolumeSnapshot():
            snapshot = Snapshot(_snapshot_name(ask.snapshot_name), at, 0, _expiration(ask), ask.tags)
            return volumes.on_volume(state, index, lambda volume: volumes.add_snapshot(volume, snapshot))
        case DeleteVolumeSnapshot(snapshot_name=name):
            return volumes.on_volume(state, index, lambda volume: volumes.without_snapshot(volume, name))
        case RestoreVolume(snapshot_name=name):
            return volumes.on_volume(state, index, lambda volume: volumes.restore_snapshot(volume, name))


def _parse(name: str, spec: dict[str, Any], form: type[Form]) -> Form:
    try:
        return msgspec.convert(spec, form)
    except msgspec.ValidationError as error:
        raise volumes.rejection(f"the spec of {name} does not fit: {error}") from None


def _snapshot_name(name: str) -> str:
    if not name.strip():
        raise volumes.rejection("snapshotName is empty")
    return name


def _expiration(ask: CreateVolumeSnapshot) -> str:
    if not ask.snapshot_expiration_date:
        return ""
    try:
        moment = datetime.fromisoformat(ask.snapshot_expiration_date)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise volumes.rejection("snapshotExpirationDate is a UTC timestamp like 2026-01-31T12:00:00Z")
    return ask.snapshot_expiration_date
