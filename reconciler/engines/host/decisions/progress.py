"""How far a rollout is, for status and for whoever waits for it; pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reconciler.engines.host.decisions.availability import fault_of, is_available, is_current, is_failing
from reconciler.engines.host.replica import Replica
from reconciler.engines.host.spec import Type, WorkloadSpec


class Progress(msgspec.Struct, frozen=True):
    """Counts of replicas. ``rolling``: there are old ones, or not as many new ones as wanted.

    ``paused``: a replica of the wanted version is failing, so that the rollout waits for it or for a fix (document 1,
    Rollout to a new version). ``message`` says where it stands; "" where all is as wanted.
    """

    rolling: bool
    paused: bool
    wanted: int
    updated: int
    ready: int
    available: int
    message: str


def progress(wanted: WorkloadSpec, replicas: Sequence[Replica], now: float) -> Progress:
    """How far the workload is on its way to what is wanted. A cron workload has no replicas to wait for."""
    number = 0 if wanted.suspended or wanted.type is Type.CRON else wanted.replicas
    live = [replica for replica in replicas if replica.ending is None]
    current = [replica for replica in live if is_current(wanted, replica)]
    old = len(live) - len(current)
    updated = min(len(current), number)
    ready = sum(replica.ready for replica in live)
    available = sum(is_available(wanted, replica, now) for replica in current)
    rolling = bool(old) or len(current) != number
    failing = [replica for replica in current if is_failing(replica)]
    message = f"{updated} of {number} replicas updated, {min(available, number)} available"
    if failing:
        message = f"{message}; {_fault(failing[0])}"
    elif not rolling and available >= number:
        message = ""
    return Progress(rolling, bool(failing) and rolling, number, updated, ready, available, message)


def _fault(replica: Replica) -> str:
    faults = ((container.name, fault_of(container)) for container in replica.containers)
    return next(f"{replica.name}: {name}: {fault}" for name, fault in faults if fault)
