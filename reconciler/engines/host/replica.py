"""What there is: replicas and their containers, as values that survive a restart of the daemon.

All times are seconds of the monotonic clock, which goes on over a restart of the daemon and not over one of the
machine, and nothing of this survives that either.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reconciler.engines.host.spec import ContainerSpec
from reconciler.model.key import Key

EVICTED = "Evicted"
"""Why a replica ends that used too much of the host."""


class Phase(StrEnum):
    """Of a container: ``waiting`` for its (next) start, ``running``, or ``ended`` and not yet decided upon."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class Hook(StrEnum):
    """How far a lifecycle hook is."""

    NONE = ""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Ended(msgspec.Struct, frozen=True):
    """How a container ended last; ``reason`` is Completed, Error, OutOfMemory, StartFailed or LivenessFailed."""

    code: int
    at: float
    reason: str = "Error"
    message: str = ""


class Container(msgspec.Struct, frozen=True):
    """One container of a replica.

    ``ready`` is what its readiness probe said last (with none: that it runs), ``was_ready`` whether this run was ready
    before, ``alive`` is False once its liveness probe has failed often enough. ``failures`` counts ends in a row and
    gives the wait before the next start, which comes at ``start_at``. ``pre_stop``, ``sigterm_at`` and ``sigkill_at``
    (when the signals were sent) belong to its end, of itself or with the replica. ``wanted`` is what it was made from:
    its hooks and probes stay those of its version when a newer one is wanted, or none. ``hook_error`` is the message of
    a failed hook of this run.
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
    post_start: Hook = Hook.NONE
    pre_stop: Hook = Hook.NONE
    sigterm_at: float | None = None
    sigkill_at: float | None = None
    message: str = ""
    hook_error: str = ""
    wanted: ContainerSpec = ContainerSpec("")
    was_ready: bool = False


class Replica(msgspec.Struct, frozen=True):
    """One replica. ``index`` is its place in a stateful workload, -1 elsewhere.

    ``config_hash`` is that of the specification it was made from, ``creation_timestamp`` when it was made, ISO 8601.
    ``ports`` maps declared ports to the ones that it was given.
    ``ready_since`` is when it became ready, None while it is not. ``ending`` is when its termination began, None
    before. ``reason`` says why it ends, for people: ScaledDown, Replaced, Deleted, Suspended, Evicted.
    """

    name: str
    key: Key
    version: int
    config_hash: str
    created: float
    containers: tuple[Container, ...]
    index: int = -1
    gvc_version: int = 1
    ports: dict[int, int] = {}
    ready_since: float | None = None
    ending: float | None = None
    reason: str = ""
    creation_timestamp: str = ""

    @property
    def ready(self) -> bool:
        """Whether it may be given requests: it is ready, and not on its way out."""
        return self.ready_since is not None and self.ending is None

    @property
    def over(self) -> bool:
        """Whether nothing of it runs any more and nothing of it will."""
        return self.ending is not None and all(each.phase is not Phase.RUNNING for each in self.containers)


def container_of(replica: Replica, name: str) -> Container:
    """The container ``name``. Raises KeyError."""
    for container in replica.containers:
        if container.name == name:
            return container
    raise KeyError(name)


def with_container(replica: Replica, container: Container) -> Replica:
    """``replica`` with ``container`` in the place of the one of its name."""
    containers = tuple(container if each.name == container.name else each for each in replica.containers)
    return msgspec.structs.replace(replica, containers=containers)
