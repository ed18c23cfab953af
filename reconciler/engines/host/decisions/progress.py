"""The progress of a rollout, for status and for commands that wait; pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reconciler.engines.host.decisions.availability import (
    fault_of,
    is_available,
    is_current,
    is_failing,
    is_starting,
)
from reconciler.engines.host.decisions.replica import Phase, Replica
from reconciler.engines.workload.spec import Type, WorkloadSpec
from reconciler.engines.workload.status import describe_rollout


class Progress(msgspec.Struct, frozen=True):
    """Counts of replicas. ``rolling``: there are outdated replicas, or fewer or more current ones than wanted.

    ``paused``: a replica of the wanted version is failing, so the rollout waits for it or for a fix
    (docs/platform/workload.md#rollout). ``message`` describes the state; "" if all is as wanted.
    """

    rolling: bool
    paused: bool
    wanted: int
    updated: int
    ready: int
    available: int
    message: str


def compute_progress(spec: WorkloadSpec, replicas: Sequence[Replica], now: float) -> Progress:
    """The progress of a workload towards its desired state. A cron workload has no replicas to wait for."""
    number = 0 if spec.suspended or spec.type is Type.CRON else spec.replicas
    live = [replica for replica in replicas if replica.ending is None]
    current = [replica for replica in live if is_current(spec, replica)]
    old = [replica for replica in live if not is_current(spec, replica)]
    updated = min(len(current), number)
    ready = sum(replica.ready for replica in live)
    available = sum(is_available(spec, replica, now) for replica in current)
    rolling = bool(old) or len(current) != number
    failing = [replica for replica in current if is_failing(replica)]
    paused = rolling and bool(failing)
    serving = sum(is_available(spec, replica, now) for replica in old)
    message = describe_rollout(number, updated, available, serving)
    if spec.pending:
        message = f"{spec.pending}; {message}"
    if failing:
        # A replica that may only be slow to start does not make a rollout look paused.
        stuck = paused and old and not all(is_starting(replica, now) for replica in failing)
        message = f"{'rollout paused: ' if stuck else ''}{message}; {_describe_fault(failing[0])}"
    elif not rolling and available >= number:
        message = ""
    return Progress(rolling, paused, number, updated, ready, available, message)


def running_replicas(spec: WorkloadSpec | None, replicas: Sequence[Replica]) -> tuple[int, int]:
    """The number of running replicas of the wanted version, and the wanted number."""
    if spec is None or spec.suspended or spec.type is Type.CRON:
        return 0, 0
    current = [replica for replica in replicas if replica.ending is None and is_current(spec, replica)]
    running = sum(all(container.phase is Phase.RUNNING for container in replica.containers) for replica in current)
    return min(running, spec.replicas), spec.replicas


def _describe_fault(replica: Replica) -> str:
    faults = ((container.name, fault_of(container)) for container in replica.containers)
    return next(f"{replica.name}: {name}: {fault}" for name, fault in faults if fault)
