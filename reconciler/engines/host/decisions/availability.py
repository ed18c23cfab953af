"""How a replica stands to what is wanted: current or old, available or not, failing; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.engines.host.replica import Container, Phase, Replica
from reconciler.engines.host.spec import WorkloadSpec

MIN_UNPROBED_UPTIME = 1.0
"""Seconds that a container which nobody asks whether it is ready has to run before a rollout relies on it: one that
ends at once would otherwise take the place of all that worked."""


def is_current(wanted: WorkloadSpec, replica: Replica) -> bool:
    """Whether the replica is what is wanted: its version, its stamp, and an identity just where there are some."""
    same = (replica.version, replica.stamp) == (wanted.version, wanted.stamp)
    return same and (replica.index >= 0) == wanted.stateful


def available_at(wanted: WorkloadSpec, replica: Replica) -> float | None:
    """When a ready replica counts as available (document 1, minReadySeconds); None while it is not ready or ends."""
    if replica.ready_since is None or replica.ending is not None:
        return None
    unasked = any(container.wanted.readiness is None for container in replica.containers)
    return replica.ready_since + max(wanted.rollout.min_ready, MIN_UNPROBED_UPTIME if unasked else 0.0)


def is_available(wanted: WorkloadSpec, replica: Replica, now: float) -> bool:
    """Whether the replica has been ready for long enough."""
    since = available_at(wanted, replica)
    return since is not None and since <= now


def is_being_deleted(replicas: Sequence[Replica]) -> bool:
    """Whether their workload was being deleted when this was written down, and was not wanted again since."""
    begun = min(
        (each.ending for each in replicas if each.ending is not None and each.reason == "Deleted"), default=None
    )
    return begun is not None and all(each.ending is not None or each.created < begun for each in replicas)


def availability_times(wanted: WorkloadSpec, replicas: Iterable[Replica], now: float) -> list[float]:
    """The moments after ``now`` at which replicas become available if nothing happens to them, soonest first."""
    moments = (available_at(wanted, replica) for replica in replicas)
    return sorted({moment for moment in moments if moment is not None and moment > now})


def is_failing(replica: Replica) -> bool:
    """Whether the replica is not ready and something says that it is not merely starting."""
    return not replica.ready and any(fault_of(container) for container in replica.containers)


def fault_of(container: Container) -> str:
    """Why a container is not ready, in a few words; "" where it is, or where it just starts."""
    if container.phase is Phase.RUNNING:
        if container.ready and container.alive:
            return ""
        return container.message or (_last(container) if container.failures else "")
    return _last(container)


def _last(container: Container) -> str:
    if container.last is None:
        return ""
    said = f": {container.last.message}" if container.last.message else ""
    return f"ended with {container.last.code} ({container.last.reason}){said}"
