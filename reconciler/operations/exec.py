"""Programs beside those of running containers: which container is meant, and a session in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

from reconciler.clock import Clock
from reconciler.engines.host.decisions.replica import Container, Phase, Replica
from reconciler.engines.host.reading.snapshot import ReplicaRow, State
from reconciler.engines.host.runtimes.plugins import runtime_plugin, runtimes_in_use
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.errors import EngineError, NotFoundError, RefusedError
from reconciler.model.key import Key, Kind
from reconciler.queries.existence import check_present, did_you_mean
from reconciler.queries.top import ReplicaReader
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.settings import Settings
from reconciler.terminal.session import ExecSession, TerminalSize

ENGINE = "host"
"""The engine whose containers can be entered."""
SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash || exec sh")
"""The default program: an interactive shell."""


class ExecOptions(NamedTuple):
    """The names of a replica and a container; "" selects the first ready replica, or its first container."""

    replica: str = ""
    container: str = ""
    location: str = ""


class ExecTarget(NamedTuple):
    """A container that runs at a location of this host."""

    location: str
    place: ContainerId


def find_target(settings: Settings, open_records: Callable[[], Records], key: Key, options: ExecOptions) -> ExecTarget:
    """The container of the workload ``key`` that ``options`` name. Blocks while it reads files.

    Raises NotFoundError for an unknown name, RefusedError if nothing runs, and PermissionError.
    """
    if key.kind is not Kind.WORKLOAD:
        raise RefusedError(f"{key} is no workload; only workloads have containers")
    _check_location(settings, options.location)
    rows = [row for row in ReplicaReader(settings, key.gvc).read() if row.replica.key == key]
    rows = [row for row in rows if options.location in ("", row.location)]
    if not rows:
        with closing(open_records()) as records:
            raise RefusedError(_why_no_replica(records, key, options.location))
    row = _replica(key, rows, options.replica)
    container = _container(row.replica, options.container)
    return ExecTarget(row.location, ContainerId(key, row.replica.name, container.name))


async def open_session(
    settings: Settings, clock: Clock, target: ExecTarget, argv: Sequence[str], terminal: TerminalSize | None
) -> ExecSession:
    """Run ``argv`` in a container, in whichever runtime it runs; needs no daemon. Raises EngineError."""
    root = settings.state / ENGINE / target.location
    message = f"container {target.place.container} of {target.place.replica} does not run"
    problem = EngineError(message, reason=Reason.NOT_RUNNING)
    for name in runtimes_in_use(root):
        runtime = runtime_plugin(name).make(root, target.location, clock, settings)
        try:
            return await runtime.open_session(target.place, argv, terminal)
        except EngineError as error:
            if error.reason != Reason.NOT_RUNNING:
                raise
            problem = error
    raise problem


def _check_location(settings: Settings, name: str) -> None:
    bound = settings.locations.get(name)
    if name and bound is None:
        raise NotFoundError(f"there is no location {name!r}{did_you_mean(name, settings.locations)}")
    if bound is not None and bound.engine != ENGINE:
        raise RefusedError(f"nothing runs at {name}: its engine is {bound.engine}")


def _why_no_replica(records: Records, key: Key, location: str) -> str:
    """Why there is no replica. Raises NotFoundError if there is no such workload."""
    check_present(records, key)
    found = [each for each in records.applied.get(key) if each.location and location in ("", each.location)]
    if any(each.engine == ENGINE for each in found):
        return f"{key} has no replica now; see: reconciler describe {key}"
    places = ", ".join(f"{each.location} ({each.engine})" for each in found)
    where = f"it is at {places}" if places else "it is at no location that this host binds"
    return f"{key} runs nowhere with the engine {ENGINE}; {where}"


def _replica(key: Key, rows: Sequence[ReplicaRow], name: str) -> ReplicaRow:
    """The replica called ``name``, or the first one that is ready."""
    if not name:
        ready = (row for row in rows if row.state in (State.READY, State.UNKNOWN))
        if (first := next(ready, None)) is not None:
            return first
        there = ", ".join(f"{row.replica.name} ({row.state})" for row in rows)
        raise RefusedError(f"no replica of {key} is ready; name one with --replica: {there}")
    names = [row.replica.name for row in rows]
    if name not in names:
        raise NotFoundError(f"{key} has no replica {name!r}{did_you_mean(name, names)}; it has {', '.join(names)}")
    return rows[names.index(name)]


def _container(replica: Replica, name: str) -> Container:
    """The container called ``name``, or the first one; it runs."""
    names = [each.name for each in replica.containers]
    if name and name not in names:
        hint = did_you_mean(name, names)
        raise NotFoundError(f"{replica.name} has no container {name!r}{hint}; it has {', '.join(names)}")
    found = replica.containers[names.index(name) if name else 0]
    if found.phase is not Phase.RUNNING:
        raise RefusedError(f"container {found.name} of {replica.name} does not run; it is {found.phase}")
    return found
