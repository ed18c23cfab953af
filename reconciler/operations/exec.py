"""Programs beside those of running containers: which container is meant, and a session in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

from reconciler.engines.plugin import make_reader, name_engines, runs_workloads
from reconciler.engines.reading import (
    ContainerRow,
    ExecTarget,
    ReplicaRow,
    ReplicaState,
    SupportsSessions,
    explain_missing,
)
from reconciler.errors import NotFoundError, RefusedError
from reconciler.model.key import Key, Kind
from reconciler.queries.existence import check_present, did_you_mean
from reconciler.queries.top import ReplicaReader
from reconciler.records.store import Records
from reconciler.settings import Settings
from reconciler.terminal.session import ExecSession, TerminalSize

SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash || exec sh")
"""The default program: an interactive shell."""


class ExecOptions(NamedTuple):
    """The names of a replica and a container; "" selects the first ready replica, or its first container."""

    replica: str = ""
    container: str = ""
    location: str = ""


def find_target(settings: Settings, open_records: Callable[[], Records], key: Key, options: ExecOptions) -> ExecTarget:
    """The container of the workload ``key`` that ``options`` name. Blocks while it reads files.

    Raises NotFoundError for an unknown name, RefusedError if nothing runs, and PermissionError.
    """
    if key.kind is not Kind.WORKLOAD:
        raise RefusedError(f"{key} is no workload; only workloads have containers")
    _check_location(settings, options.location)
    reader = ReplicaReader(settings, key.gvc)
    rows = [row for row in reader.read() if row.key == key and options.location in ("", row.location)]
    if not rows:
        faults = [fault for location, fault in reader.faults.items() if options.location in ("", location)]
        if faults:
            raise RefusedError(f"it is unknown whether {key} has replicas: {'; '.join(faults)}")
        with closing(open_records()) as records:
            raise RefusedError(_why_no_replica(records, key, options.location))
    row = _find_replica(key, rows, options.replica)
    _check_sessions(settings, row.location)
    return ExecTarget(row.location, key, row.name, _find_container(row, options.container).name)


async def open_session(
    settings: Settings, target: ExecTarget, argv: Sequence[str], terminal: TerminalSize | None
) -> ExecSession:
    """Run ``argv`` in a container; needs no daemon. Raises EngineError and RefusedError."""
    return await _check_sessions(settings, target.location).open_session(target, argv, terminal)


def _check_sessions(settings: Settings, location: str) -> SupportsSessions:
    """The reader of ``location``. Raises RefusedError if its engine has no sessions."""
    reader = make_reader(settings, location)
    if not isinstance(reader, SupportsSessions):
        raise RefusedError(explain_missing(reader, "containers that programs can be run in"))
    return reader


def _check_location(settings: Settings, name: str) -> None:
    bound = settings.locations.get(name)
    if name and bound is None:
        raise NotFoundError(f"there is no location {name!r}{did_you_mean(name, settings.locations)}")
    if bound is not None and not runs_workloads(bound.engine):
        raise RefusedError(f"nothing runs at {name}: its engine is {bound.engine}")


def _why_no_replica(records: Records, key: Key, location: str) -> str:
    """Why there is no replica. Raises NotFoundError if there is no such workload."""
    check_present(records, key)
    applied = [record for record in records.applied.get(key) if record.location and location in ("", record.location)]
    if any(runs_workloads(record.engine) for record in applied):
        return f"{key} has no replica now; see: reconciler describe {key}"
    places = ", ".join(f"{record.location} ({record.engine})" for record in applied)
    where = f"it is at {places}" if places else "it is at no location that this host binds"
    return f"{key} runs nowhere with the engine {name_engines()}; {where}"


def _find_replica(key: Key, rows: Sequence[ReplicaRow], name: str) -> ReplicaRow:
    """The replica called ``name``, or the first one that is ready."""
    if not name:
        ready = (row for row in rows if row.state in (ReplicaState.READY, ReplicaState.UNKNOWN))
        if (first := next(ready, None)) is not None:
            return first
        there = ", ".join(f"{row.name} ({row.state})" for row in rows)
        raise RefusedError(f"no replica of {key} is ready; name one with --replica: {there}")
    names = [row.name for row in rows]
    if name not in names:
        raise NotFoundError(f"{key} has no replica {name!r}{did_you_mean(name, names)}; it has {', '.join(names)}")
    return rows[names.index(name)]


def _find_container(row: ReplicaRow, name: str) -> ContainerRow:
    """The container called ``name``, or the first one; it runs."""
    names = [container.name for container in row.containers]
    if name and name not in names:
        hint = did_you_mean(name, names)
        raise NotFoundError(f"{row.name} has no container {name!r}{hint}; it has {', '.join(names)}")
    container_row = row.containers[names.index(name) if name else 0]
    if not container_row.running:
        raise RefusedError(f"container {container_row.name} of {row.name} does not run; it is {container_row.phase}")
    return container_row
