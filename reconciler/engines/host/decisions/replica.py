"""Replicas and their containers, as values that survive a restart of the daemon.

All times are seconds of the monotonic clock. It continues over a restart of the daemon and while the machine is
suspended, and starts again with the machine, which no replica survives.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reconciler.engines.workload.spec import ContainerSpec
from reconciler.engines.workload_commands import ContainerOverride
from reconciler.model.key import Key
from reconciler.reasons import Reason


class Phase(StrEnum):
    """A container waits for its (next) start, runs, or has ended and awaits a decision."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class HookState(StrEnum):
    """The state of a lifecycle hook."""

    NONE = ""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Ended(msgspec.Struct, frozen=True):
    """How a container ended last; ``reason`` is a Reason for the end of a container."""

    code: int
    at: float
    reason: str = Reason.ERROR
    message: str = ""


class ReplicaContainer(msgspec.Struct, frozen=True):
    """One container of a replica.

    ``ready`` is the last result of its readiness probe; without a probe, a running container is ready. ``was_ready``
    is whether this run has been ready before. ``alive`` is False once its liveness probe has failed often enough.
    ``failures`` counts ends in a row and determines the wait before the next start at ``start_at``. ``pre_stop``,
    ``sigterm_at`` and ``sigkill_at`` (when the signals were sent) belong to its termination. ``wanted`` is the
    specification that it was made from: its hooks and probes stay the same when a newer version is wanted, or none.
    ``hook_error`` is the message of a failed hook of this run.
    """

    name: str
    phase: Phase = Phase.WAITING
    started: float = 0.0
    ready: bool = False
    alive: bool = True
    restarts: int = 0
    failures: int = 0
    start_at: float = 0.0
    last: Ended | None = None
    post_start: HookState = HookState.NONE
    pre_stop: HookState = HookState.NONE
    sigterm_at: float | None = None
    sigkill_at: float | None = None
    message: str = ""
    hook_error: str = ""
    wanted: ContainerSpec = ContainerSpec("")
    was_ready: bool = False


class ExecutionRun(msgspec.Struct, frozen=True):
    """What an execution of a cron workload began with: ``deadline`` in seconds, ``restart`` of failed containers."""

    deadline: float | None = None
    restart: bool = False
    overrides: tuple[ContainerOverride, ...] = ()


class Replica(msgspec.Struct, frozen=True):
    """One replica. ``index`` is its ordinal in a stateful workload, otherwise -1.

    ``config_hash`` is that of its specification; ``creation_timestamp`` is ISO 8601. ``ports`` maps declared ports to
    assigned ports. ``ready_since`` is when it became ready, None while it is not. ``ending`` is when its termination
    began, None before. ``reason`` is why it ends: ScaledDown, Replaced, Deleted, Suspended, Evicted. ``base_hash`` is
    that of its specification; "" if only a new replica can have other limits. ``run`` is None for all that is no
    execution of a cron workload.
    """

    name: str
    key: Key
    version: int
    config_hash: str
    created: float
    containers: tuple[ReplicaContainer, ...]
    index: int = -1
    gvc_version: int = 1
    ports: dict[int, int] = {}
    ready_since: float | None = None
    ending: float | None = None
    reason: str = ""
    creation_timestamp: str = ""
    base_hash: str = ""
    run: ExecutionRun | None = None

    @property
    def ready(self) -> bool:
        """Whether it may receive requests: it is ready and not ending."""
        return self.ready_since is not None and self.ending is None

    @property
    def served_ports(self) -> dict[int, int]:
        """``ports`` without those that are only for metrics: requests do not go there."""
        unserved = {
            container.wanted.metrics.port for container in self.containers if container.wanted.metrics is not None
        }
        unserved -= {port for container in self.containers for port in container.wanted.ports}
        return {declared: port for declared, port in self.ports.items() if declared not in unserved}

    @property
    def over(self) -> bool:
        """Whether it is ending and none of its containers runs."""
        return self.ending is not None and all(container.phase is not Phase.RUNNING for container in self.containers)


def container_of(replica: Replica, name: str) -> ReplicaContainer:
    """The container ``name``. Raises KeyError."""
    for container in replica.containers:
        if container.name == name:
            return container
    raise KeyError(name)


def with_container(replica: Replica, container: ReplicaContainer) -> Replica:
    """``replica`` with ``container`` in place of the one with the same name."""
    containers = tuple(container if former.name == container.name else former for former in replica.containers)
    return msgspec.structs.replace(replica, containers=containers)
