"""Classifies replicas: current or outdated, available or not, failing or starting; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.engines.host.decisions.replica import Ended, Phase, Replica, ReplicaContainer
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.engines.workload.status import START_SECONDS, describe_end
from reconciler.reasons import Reason

MIN_UNPROBED_UPTIME = 1.0
"""Seconds that a container without a readiness probe must run before a rollout relies on it. Otherwise containers that
exit at once would replace all working ones."""


EVERY = 10
"""The first of a container's consecutive ends is an event, and then every tenth."""


def is_current(spec: WorkloadSpec, replica: Replica) -> bool:
    """Whether the replica matches the wanted version and hash, and has an identity if and only if the workload is
    stateful."""
    same = (replica.version, replica.config_hash) == (spec.version, spec.config_hash)
    return same and (replica.index >= 0) == spec.stateful


def is_resizable(spec: WorkloadSpec, replica: Replica) -> bool:
    """Whether an outdated replica lacks nothing but the wanted limits, which can change while it runs.

    One that does not run is replaced instead, and so starts at once.
    """
    # Without a base hash, only a new replica can have other limits.
    if is_current(spec, replica) or not spec.base_hash or replica.ending is not None:
        return False
    same = (replica.config_hash, replica.base_hash) == (spec.config_hash, spec.base_hash)
    images = [(container.name, container.image) for container in spec.containers]
    return (
        same
        and images == [(container.name, container.wanted.image) for container in replica.containers]
        and all(container.phase is Phase.RUNNING for container in replica.containers)
        and (replica.index >= 0) == spec.stateful
    )


def available_at(spec: WorkloadSpec, replica: Replica) -> float | None:
    """When a ready replica becomes available (docs/platform/workload.md#rollout-options); None for other replicas."""
    if replica.ready_since is None or replica.ending is not None:
        return None
    unasked = any(container.wanted.readiness is None for container in replica.containers)
    return replica.ready_since + max(spec.rollout.min_ready, MIN_UNPROBED_UPTIME if unasked else 0.0)


def is_available(spec: WorkloadSpec, replica: Replica, now: float) -> bool:
    """Whether the replica has been ready for long enough."""
    since = available_at(spec, replica)
    return since is not None and since <= now


def is_being_deleted(replicas: Sequence[Replica]) -> bool:
    """Whether these replicas belong to a deletion that was in progress and was not reversed since."""
    begun = min(
        (replica.ending for replica in replicas if replica.ending is not None and replica.reason == Reason.DELETED),
        default=None,
    )
    # A replica that was created later shows that the workload came back after its deletion began.
    return begun is not None and all(replica.ending is not None or replica.created < begun for replica in replicas)


def availability_times(spec: WorkloadSpec, replicas: Iterable[Replica], now: float) -> list[float]:
    """The times after ``now`` at which replicas become available if they stay ready, earliest first."""
    moments = (available_at(spec, replica) for replica in replicas)
    return sorted({moment for moment in moments if moment is not None and moment > now})


def is_failing(replica: Replica) -> bool:
    """Whether a replica that is not ending is not ready for a known reason."""
    return replica.ending is None and not replica.ready and any(fault_of(container) for container in replica.containers)


def is_starting(replica: Replica, now: float) -> bool:
    """Whether a failing replica may simply be slow to start for the first time (see START_SECONDS)."""
    faulty = [container for container in replica.containers if fault_of(container)]
    return all(_start_ends(container) > now for container in faulty)


def start_ends(replicas: Iterable[Replica], now: float) -> list[float]:
    """The times after ``now`` at which starting replicas begin to count as failing."""
    faulty = (
        container
        for replica in replicas
        if is_failing(replica)
        for container in replica.containers
        if fault_of(container)
    )
    return sorted({end for container in faulty if (end := _start_ends(container)) > now})


def _start_ends(container: ReplicaContainer) -> float:
    """When a container stops counting as starting despite a failing readiness probe; 0 if it is not starting."""
    # A container that was ready or ended before has shown how it starts: its fault is no slow start.
    if container.phase is not Phase.RUNNING or not container.alive or container.was_ready or container.failures:
        return 0.0
    probe = container.wanted.readiness
    return container.started + (probe.initial_delay_seconds if probe is not None else 0.0) + START_SECONDS


def fault_of(container: ReplicaContainer) -> str:
    """A short text on why a container is not ready; "" if it is ready, or just starts."""
    if container.phase is Phase.RUNNING:
        if container.ready and container.alive:
            return ""
        return container.message or (_describe_last_exit(container) if container.failures else "")
    return _describe_last_exit(container)


def notice_of(container: ReplicaContainer) -> str:
    """The problem of a container, even of a ready one: its fault, or else its failed hook."""
    return fault_of(container) or container.hook_error


def exit_words(ended: Ended) -> str:
    """``ended with 137 (OutOfMemory)``, with the message of the end."""
    return describe_end(ended.code, ended.reason, ended.message)


def exit_event(container: ReplicaContainer) -> tuple[Reason, str] | None:
    """Reason and message of the event for the last end of a container; None if that end is no event."""
    # At the first end the count is still 0: the restart that is scheduled next raises it.
    if container.last is None or container.failures % EVERY:
        return None
    if container.last.reason == Reason.START_FAILED:
        return Reason.START_FAILED, f"could not be started: {container.last.message}"
    return Reason.CONTAINER_ENDED, exit_words(container.last)


def _describe_last_exit(container: ReplicaContainer) -> str:
    return exit_words(container.last) if container.last is not None else ""
