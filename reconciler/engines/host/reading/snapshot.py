"""The replicas of a location and their usage, readable from outside, with or without a running daemon."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.clock import SystemClock
from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.decisions.availability import is_failing, is_starting, notice_of
from reconciler.engines.host.decisions.replica import Phase, Replica, ReplicaContainer
from reconciler.engines.host.runtimes.plugins import runtime_names, runtime_plugin
from reconciler.engines.host.runtimes.protocol import ContainerId, Usage
from reconciler.engines.reading import ContainerRow, ReplicaRow, ReplicaState


class HostSnapshot(msgspec.Struct, frozen=True):
    """The replicas at a moment of the monotonic clock. ``usage`` is by container and run.

    Of containers that are not ``running`` and whose replica is ready, nothing shows that they live.
    """

    at: float
    replicas: tuple[Replica, ...]
    usage: dict[tuple[ContainerId, str], Usage]
    running: frozenset[ContainerId]


def take_snapshot(root: Path, location: str) -> HostSnapshot:
    """The replicas at ``location``, whose directory is ``root``, in whichever runtime they run.

    Blocks while it reads files. Raises PermissionError.
    """
    _check_access(root)
    taken = [runtime_plugin(name).snapshot(root.resolve(), location) for name in runtime_names()]
    ended = frozenset().union(*(snapshot.ended for snapshot in taken))
    boots = frozenset().union(*(snapshot.boots for snapshot in taken))
    replicas = tuple(_without_dead(replica, ended) for replica in ReplicaStore(root / "replicas", boots).load()[0])
    usage = {run: used for snapshot in taken for run, used in snapshot.usage.items()}
    running = frozenset().union(*(snapshot.running for snapshot in taken))
    return HostSnapshot(SystemClock().monotonic(), replicas, usage, running)


def list_rows(location: str, now: HostSnapshot, before: HostSnapshot | None = None) -> list[ReplicaRow]:
    """A row for each replica, ordered by workload and name; CPU is measured since the snapshot ``before``."""
    replica_rows = (_make_row(location, replica, now, before) for replica in now.replicas)
    return sorted(replica_rows, key=lambda row: (row.key, row.name))


def state_of(replica: Replica, now: float) -> ReplicaState:
    """The state of ``replica`` at ``now``."""
    if replica.ending is not None:
        return ReplicaState.ENDING
    if replica.ready:
        return ReplicaState.READY
    if any(container.phase is Phase.WAITING and container.failures for container in replica.containers):
        return ReplicaState.BACKOFF
    return ReplicaState.NOT_READY if is_failing(replica) and not is_starting(replica, now) else ReplicaState.LOADING


def _make_row(location: str, replica: Replica, now: HostSnapshot, before: HostSnapshot | None) -> ReplicaRow:
    places = {ContainerId(replica.key, replica.name, container.name) for container in replica.containers}
    used = {at: usage for at, usage in now.usage.items() if at[0] in places}
    state = state_of(replica, now.at)
    return ReplicaRow(
        replica.key,
        location,
        replica.name,
        replica.version,
        ReplicaState.UNKNOWN if state is ReplicaState.READY and not places <= now.running else state,
        tuple(
            ContainerRow(container.name, str(container.phase), container.phase is Phase.RUNNING)
            for container in replica.containers
        ),
        restarts=sum(container.restarts for container in replica.containers),
        cpu=_compute_cpu(used, now, before) if used and before is not None else None,
        memory=sum(usage.memory for usage in used.values()) if used else None,
        age=max(0.0, now.at - replica.created),
        fault=replica.reason if replica.ending is not None else _find_notice(replica.containers),
        ports=replica.ports,
    )


def _compute_cpu(used: dict[tuple[ContainerId, str], Usage], now: HostSnapshot, before: HostSnapshot) -> int:
    """Millicores; a container that started since counts with all CPU that it has used."""
    nothing = Usage(0.0, 0)
    spent = sum(usage.cpu_seconds - before.usage.get(at, nothing).cpu_seconds for at, usage in used.items())
    return round(max(0.0, spent) / max(now.at - before.at, 1e-3) * 1000)


def _find_notice(containers: tuple[ReplicaContainer, ...]) -> str:
    return next((notice for container in containers if (notice := notice_of(container))), "")


def _check_access(root: Path) -> None:
    """Check for access before anything else is reported. Raises PermissionError."""
    with suppress(FileNotFoundError):
        os.scandir(root / "replicas").close()


def _without_dead(replica: Replica, over: frozenset[ContainerId]) -> Replica:
    """``replica``, not ready if one of its containers is ``over``: on a full disk its file may be outdated."""
    places = {ContainerId(replica.key, replica.name, container.name) for container in replica.containers}
    return msgspec.structs.replace(replica, ready_since=None) if places & over else replica
