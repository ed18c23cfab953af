"""How a replica stands to what is wanted: current or old, available or not, failing; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.engines.host.replica import Container, Ended, Phase, Replica
from reconciler.engines.host.spec import WorkloadSpec

MIN_UNPROBED_UPTIME = 1.0
"""Seconds that a container which nobody asks whether it is ready has to run before a rollout relies on it: one that
ends at once would otherwise take the place of all that worked."""


EVERY = 10
"""Of the ends of a container in a row, the first is an event, and then every tenth."""

START_SECONDS = 60.0
"""Seconds after its start, and after the initial delay of its readiness probe, for which a container that was never
ready is starting rather than failing: programs take their time before they listen."""


def is_current(wanted: WorkloadSpec, replica: Replica) -> bool:
    """Whether the replica is what is wanted: its version, its hash, and an identity just where there are some."""
    same = (replica.version, replica.config_hash) == (wanted.version, wanted.config_hash)
    return same and (replica.index >= 0) == wanted.stateful


def available_at(wanted: WorkloadSpec, replica: Replica) -> float | None:
    """When a ready replica becomes available (docs/platform/workload.md#rollout-options); None for others."""
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
    """Whether a replica that is not ending is not ready, and something says why."""
    return replica.ending is None and not replica.ready and any(fault_of(container) for container in replica.containers)


def is_starting(replica: Replica, now: float) -> bool:
    """Whether all that is wrong with a failing replica is that its first start takes its time (see START_SECONDS)."""
    faulty = [container for container in replica.containers if fault_of(container)]
    return all(_start_ends(container) > now for container in faulty)


def start_ends(replicas: Iterable[Replica], now: float) -> list[float]:
    """The moments after ``now`` at which a slow start is no excuse any more."""
    faulty = (each for replica in replicas if is_failing(replica) for each in replica.containers if fault_of(each))
    return sorted({end for container in faulty if (end := _start_ends(container)) > now})


def _start_ends(container: Container) -> float:
    """Until when a container counts as starting, though its readiness probe fails; 0 where it does not start."""
    if container.phase is not Phase.RUNNING or not container.alive or container.was_ready or container.failures:
        return 0.0
    probe = container.wanted.readiness
    return container.started + (probe.initial_delay_seconds if probe is not None else 0.0) + START_SECONDS


def fault_of(container: Container) -> str:
    """Why a container is not ready, in a few words; "" where it is, or where it just starts."""
    if container.phase is Phase.RUNNING:
        if container.ready and container.alive:
            return ""
        return container.message or (_last(container) if container.failures else "")
    return _last(container)


def notice_of(container: Container) -> str:
    """What is wrong with a container, though it may be ready: its fault, else the hook that failed."""
    return fault_of(container) or container.hook_error


def exit_words(ended: Ended) -> str:
    """``ended with 137 (OutOfMemory)``, and what was said about it."""
    return f"ended with {ended.code} ({ended.reason})" + (f": {ended.message}" if ended.message else "")


def exit_event(container: Container) -> tuple[str, str] | None:
    """The reason of the event for the last end of a container, and what happened; None where the end is no event."""
    if container.last is None or container.failures % EVERY:
        return None
    if container.last.reason == "StartFailed":
        return "StartFailed", f"could not be started: {container.last.message}"
    return "ContainerEnded", exit_words(container.last)


def _last(container: Container) -> str:
    return exit_words(container.last) if container.last is not None else ""
