"""Workloads and volume sets at their locations: deployments, replicas, volumes, and commands on them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from reconciler.errors import RefusedError
from reconciler.model.platform import DEPLOY_TIMESTAMP_TAG
from reconciler.platform_cli.advice import with_local_commands
from reconciler.platform_cli.commands.resources import patch_with, read_resource, tags_of
from reconciler.platform_cli.option_values import whole_number
from reconciler.platform_cli.output import Columns, make_advice_getter, make_field_getter
from reconciler.platform_cli.session import Session
from reconciler.times import format_iso_time, format_short_duration

WAIT_SECONDS = 600.0
_POLL_SECONDS = 0.2
_ENDED = ("completed", "failed", "cancelled")


def _format_measurement(value: float | None, unit: str, size: int = 1) -> str:
    """``value`` in units of ``size``; "-" if it was not measured."""
    return "-" if value is None else f"{round(value / size)}{unit}"


REPLICA_COLUMNS: Columns = {
    "LOCATION": make_field_getter("location"),
    "NAME": make_field_getter("replica"),
    "VERSION": make_field_getter("version"),
    "STATE": make_field_getter("state"),
    "RESTARTS": make_field_getter("restarts"),
    "CPU": lambda item: _format_measurement(item["cpuMillicores"], "m"),
    "MEMORY": lambda item: _format_measurement(item["memoryBytes"], "Mi", 2**20),
    "AGE": lambda item: format_short_duration(item["ageSeconds"]),
    "MESSAGE": make_advice_getter("message"),
}
"""What is shown of replicas."""


def get_deployments(session: Session, kind: str, ref: str) -> None:
    """Show the deployments of a workload, one for each location."""
    columns = {
        "LOCATION": make_field_getter("name"),
        "READY": make_field_getter("status.ready"),
        "VERSION": make_field_getter("status.expectedDeploymentVersion"),
        "ENDPOINT": make_field_getter("status.endpoint"),
        "MESSAGE": make_advice_getter("status.message"),
    }
    session.output.documents([read_deployments(session, kind, ref)], columns, "deployment")


def get_replicas(session: Session, kind: str, ref: str, location: str | None) -> None:
    """Show the replicas of a workload, with what they use."""
    query = {"location": location} if location else {}
    replicas = session.client.get(f"{session.path(kind, ref)}/-replica", **query)["items"]
    session.output.documents([replicas], REPLICA_COLUMNS, "replica")


def read_deployments(session: Session, kind: str, ref: str) -> list[dict[str, Any]]:
    """The deployments of a workload. Raises ApiError."""
    deployments: list[dict[str, Any]] = session.client.get(f"{session.path(kind, ref)}/deployment")["items"]
    return deployments


def start(session: Session, kind: str, ref: str) -> None:
    """End the suspension of a workload."""
    _set_suspension(session, kind, ref, suspended=False)


def stop(session: Session, kind: str, ref: str) -> None:
    """Suspend a workload: it has no replicas until it is started."""
    _set_suspension(session, kind, ref, suspended=True)


def _set_suspension(session: Session, kind: str, ref: str, *, suspended: bool) -> None:
    workload = read_resource(session, kind, ref)
    if workload["spec"].get("type") == "cron":
        patch_with(session, kind, ref, {"spec": {"job": {"suspend": suspended}}})
    else:
        patch_with(session, kind, ref, {"spec": {"defaultOptions": {"suspend": suspended}}})


def force_redeployment(session: Session, kind: str, ref: str) -> None:
    """Replace all replicas, although nothing else changes."""
    patch_with(session, kind, ref, {"tags": {DEPLOY_TIMESTAMP_TAG: format_iso_time(time.time())}})


def expand_volume(session: Session, kind: str, ref: str, new_capacity: str, wait: bool, **volume: str) -> None:
    """Enlarge a volume."""
    spec = {**_build_volume_spec(**volume), "newStorageCapacity": whole_number(new_capacity, "--new-capacity")}
    _execute_command(session, kind, ref, "expandVolume", spec, wait)


def create_snapshot(
    session: Session, kind: str, ref: str, tag: tuple[str, ...], wait: bool, **snapshot: str | None
) -> None:
    """Take a snapshot of a volume; it is permanent without an ``expiration``."""
    expiration = snapshot.pop("expiration")
    extra = {"snapshotExpirationDate": expiration} if expiration else {}
    spec = {**_build_snapshot_spec(**{name: value or "" for name, value in snapshot.items()}), **extra, **tags_of(tag)}
    _execute_command(session, kind, ref, "createVolumeSnapshot", spec, wait)


def delete_snapshot(session: Session, kind: str, ref: str, wait: bool, **snapshot: str) -> None:
    """Delete a snapshot of a volume."""
    _execute_command(session, kind, ref, "deleteVolumeSnapshot", _build_snapshot_spec(**snapshot), wait)


def restore_snapshot(session: Session, kind: str, ref: str, wait: bool, **snapshot: str) -> None:
    """Restore a volume from a snapshot; what it replaces becomes a snapshot."""
    _execute_command(session, kind, ref, "restoreVolume", _build_snapshot_spec(**snapshot), wait)


def verify_snapshot(session: Session, kind: str, ref: str, wait: bool, **snapshot: str) -> None:
    """Restore a snapshot to a copy, and check that as the workload says."""
    _execute_command(session, kind, ref, "verifyVolumeSnapshot", _build_snapshot_spec(**snapshot), wait)


def clone_snapshot(session: Session, kind: str, ref: str, source: str, wait: bool, **snapshot: str) -> None:
    """Make a snapshot of ``source`` one of this volume set; restore it then."""
    link = f"/{session.path(kind, source).removeprefix(f'/org/{session.org}')}"
    _execute_command(
        session, kind, ref, "cloneVolumeSnapshot", {**_build_snapshot_spec(**snapshot), "source": link}, wait
    )


def delete_volume(session: Session, kind: str, ref: str, location: str, volume_index: str, wait: bool) -> None:
    """Delete a volume; its replica gets an empty one."""
    _execute_command(session, kind, ref, "deleteVolume", _build_volume_spec(location, volume_index), wait)


def get_volumes(session: Session, kind: str, ref: str) -> None:
    """List the volumes of a volume set."""
    columns = {
        "LOCATION": make_field_getter("location"),
        "INDEX": make_field_getter("index"),
        "LIFECYCLE": make_field_getter("lifecycle"),
        "GB": make_field_getter("currentSize"),
        "USED GB": make_field_getter("usedStorage"),
        "NEWEST SNAPSHOT": lambda item: session.output.time(_newest_snapshot(item)),
        "LAST PROVEN": lambda item: session.output.time(str(item.get("lastProven") or "")),
    }
    session.output.documents([_list_volumes(session, kind, ref)], columns, "volume")


def get_snapshots(session: Session, kind: str, ref: str) -> None:
    """List the snapshots of the volumes of a volume set."""
    snapshots = [
        {"location": volume["location"], "index": volume["index"], **snapshot}
        for volume in _list_volumes(session, kind, ref)
        for snapshot in volume.get("volumeSnapshots", ())
    ]
    columns = {
        "LOCATION": make_field_getter("location"),
        "INDEX": make_field_getter("index"),
        "NAME": make_field_getter("name"),
        "CREATED": lambda item: session.output.time(str(item.get("created") or "")),
        "EXPIRES": lambda item: session.output.time(str(item.get("expires") or "")),
        "GB": make_field_getter("size"),
        "PROVEN": lambda item: session.output.time(str(item["tags"].get("reconciler/proven", ""))),
    }
    session.output.documents([snapshots], columns, "snapshot")


def _list_volumes(session: Session, kind: str, ref: str) -> list[dict[str, Any]]:
    status = read_resource(session, kind, ref).get("status", {})
    return [
        {"location": value["name"], **volume} for value in status.get("locations", ()) for volume in value["volumes"]
    ]


def _newest_snapshot(volume: dict[str, Any]) -> str:
    """When the newest snapshot of a volume was taken; "" if it has none."""
    return max((str(value.get("created") or "") for value in volume.get("volumeSnapshots", ())), default="")


def _build_volume_spec(location: str, volume_index: str) -> dict[str, Any]:
    return {"location": location, "volumeIndex": whole_number(volume_index, "--volume-index")}


def _build_snapshot_spec(location: str, volume_index: str, snapshot_name: str) -> dict[str, Any]:
    return {**_build_volume_spec(location, volume_index), "snapshotName": snapshot_name}


def _execute_command(session: Session, kind: str, ref: str, type_: str, spec: dict[str, Any], wait: bool) -> None:
    """Request a command, and wait for its end. Raises RefusedError if it fails."""
    run_command(session, session.path(kind, ref), type_, spec, WAIT_SECONDS if wait else 0.0)


def run_command(session: Session, path: str, type_: str, spec: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
    """Request a command of the resource at ``path``, and wait for its end up to so many ``seconds``, 0: not at all.

    Returns a command for each location. Raises RefusedError if one fails, or takes longer.
    """
    command_path = f"{path}/-command"
    # Repeating the request could request it twice.
    answer = session.client.request("POST", command_path, body={"type": type_, "spec": spec}).body
    commands: list[dict[str, Any]] = answer.get("items", [answer])
    deadline = time.monotonic() + seconds
    while seconds and (open_ := [command for command in commands if command["lifecycleStage"] not in _ENDED]):
        if time.monotonic() > deadline:
            raise RefusedError(
                f"{len(open_)} commands are not done after {seconds:.0f} s: platform rest get {command_path}"
            )
        time.sleep(_POLL_SECONDS)
        commands = [session.client.get(f"{command_path}/{command['id']}") for command in commands]
    ends = {command["id"]: (command["lifecycleStage"], _format_messages(command)) for command in commands}
    if session.output.is_text:
        for name, (stage, text) in ends.items():
            session.output.line(with_local_commands(f"{name} {type_} {stage}{text}"))
    else:
        session.output.value(answer if len(commands) != 1 else commands[0])
    if failed := [f"{name}{text}" for name, (stage, text) in ends.items() if stage in ("failed", "cancelled")]:
        raise RefusedError(f"not completed: {', '.join(failed)}")
    return commands


def _format_messages(command: Mapping[str, Any]) -> str:
    """``: MESSAGE; MESSAGE`` of a command; "" if it has none."""
    text = "; ".join((command.get("status") or {}).get("messages") or ())
    return f": {text}" if text else ""
