"""The commands that each kind of resource takes, what they destroy, and what people may read of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from reconciler.engines.volume_commands import CLONE, VERIFY, VOLUME_COMMANDS, VolumeCommand, parse_volume_command
from reconciler.engines.volumes import make_rejection
from reconciler.engines.workload_commands import (
    RUN,
    STOP,
    WORKLOAD_COMMANDS,
    WorkloadCommand,
    check_workload_command,
    parse_workload_command,
)
from reconciler.manifests.secret_values import MASK
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import read_specification
from reconciler.model.record import Record

COMMANDS: Mapping[Kind, Mapping[str, type[msgspec.Struct]]] = {
    Kind.WORKLOAD: WORKLOAD_COMMANDS,
    Kind.VOLUMESET: VOLUME_COMMANDS,
}
"""The commands of each kind, with the form of their spec."""

DESTROYS: Mapping[str, str] = {
    "deleteVolume": "the data of volume {volumeIndex}",
    "deleteVolumeSnapshot": "the snapshot {snapshotName} of volume {volumeIndex}",
    "restoreVolume": "what was written to volume {volumeIndex} since the snapshot {snapshotName}",
}
"""What a command destroys; an operator confirms it."""

_DONE: Mapping[str, str] = {
    RUN: "the execution {name}",
    STOP: "the replica {replica} ends, and another one replaces it",
    "expandVolume": "volume {volumeIndex} has {newStorageCapacity} GB",
    "deleteVolume": "the data of volume {volumeIndex} is deleted",
    "createVolumeSnapshot": "the snapshot {snapshotName} of volume {volumeIndex} is taken",
    "deleteVolumeSnapshot": "the snapshot {snapshotName} of volume {volumeIndex} is deleted",
    "restoreVolume": "volume {volumeIndex} is restored from the snapshot {snapshotName}",
    VERIFY: "the snapshot {snapshotName} of volume {volumeIndex} is proven",
    CLONE: "the snapshot {snapshotName} of {source} is one of volume {volumeIndex}; restoreVolume restores it",
}

_PERMISSIONS: Mapping[str, str] = {VERIFY: "exec.createVolumeSnapshot", CLONE: "exec.createVolumeSnapshot"}
"""The permissions for commands that are not of the platform, whose policies do not know their names."""


def permission_for(name: str) -> str:
    """The permission that the command ``name`` needs."""
    return _PERMISSIONS.get(name, f"exec.{name}")


def parse_command(key: Key, name: str, spec: Mapping[str, Any], location: str) -> WorkloadCommand | VolumeCommand:
    """Parse the command ``name`` on ``key`` for ``location``. Raises EngineError if that can never be performed."""
    if key.kind not in COMMANDS:
        raise make_rejection(f"a {key.kind} takes no commands")
    parse = parse_workload_command if key.kind is Kind.WORKLOAD else parse_volume_command
    ask = parse(name, spec)
    if ask.location != location:
        raise make_rejection(f"the command is for {ask.location or 'no location'}; this is {location}")
    return ask


def check_command(record: Record, name: str, spec: Mapping[str, Any]) -> None:
    """Check what can be known before the command ``name`` is performed on ``record``. Raises EngineError."""
    if record.key.kind is Kind.WORKLOAD:
        check_workload_command(record.key, read_specification(record.body), parse_workload_command(name, spec))
    elif record.key.kind is Kind.VOLUMESET:
        parse_volume_command(name, spec)
    else:
        raise make_rejection(f"a {record.key.kind} takes no commands")


def is_text(kind: Kind, name: str, path: Sequence[str]) -> bool:
    """Whether the field ``path`` of a spec holds text, whatever it looks like."""
    form = COMMANDS.get(kind, {}).get(name)
    fields = msgspec.structs.fields(form) if form is not None else ()
    types = [field.type for field in fields if field.encode_name == path[0]]
    return types == [str] if len(path) == 1 else types == [dict[str, str]]


def describe_destruction(name: str, spec: Mapping[str, Any]) -> str:
    """What the command destroys, "" if nothing."""
    return DESTROYS.get(name, "").format_map(spec)


def result_message(name: str, spec: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """What a completed command has done, from the answer of the engine."""
    return _DONE[name].format_map({**result, **spec})


def without_secrets(spec: Mapping[str, Any]) -> dict[str, Any]:
    """``spec`` with the values of variables masked."""
    plain = dict(spec)
    overrides = plain.get("containerOverrides")
    if isinstance(overrides, list | tuple):
        plain["containerOverrides"] = [_mask_variables(override) for override in overrides]
    return plain


def _mask_variables(override: Any) -> Any:
    if not isinstance(override, dict) or "env" not in override:
        return override
    variables = [{"name": value.get("name", ""), "value": MASK} for value in override["env"] or () if value]
    return {**override, "env": variables}
