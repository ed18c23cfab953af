"""Applies actions and events to replicas: pure, from value to value.

A repeated or late event changes nothing.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from reconciler.engines.host.decisions.actions import Kill, RunPreStop, ScheduleRestart, Start, StopReplica, Terminate
from reconciler.engines.host.decisions.replica import (
    Ended,
    HookState,
    Phase,
    Replica,
    ReplicaContainer,
    container_of,
    with_container,
)
from reconciler.engines.host.probes.state import ProbeKind, Verdict
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.reasons import Reason

Begun = StopReplica | Start | RunPreStop | Terminate | Kill | ScheduleRestart
"""The actions that change a replica; Create adds one and Remove deletes it."""

HookName = Literal["post_start", "pre_stop"]


def new_replica(spec: WorkloadSpec, index: int, name: str, now: float, creation_timestamp: str) -> Replica:
    """A new replica of ``spec`` with waiting containers; ``creation_timestamp`` is ``now`` in ISO 8601."""
    containers = tuple(ReplicaContainer(container.name, wanted=container) for container in spec.containers)
    return Replica(
        name,
        spec.key,
        spec.version,
        spec.config_hash,
        now,
        containers,
        index=index,
        gvc_version=spec.gvc_version,
        creation_timestamp=creation_timestamp,
        base_hash=spec.base_hash,
    )


def apply_action(replica: Replica, act: Begun, now: float) -> Replica:
    """``replica`` after ``act`` at ``now``. Raises KeyError if it has no such container."""
    if isinstance(act, StopReplica):
        return replica if replica.ending is not None else replace(replica, ending=now, reason=act.reason)
    return recompute_ready(with_container(replica, _apply_action(container_of(replica, act.container), act, now)), now)


def resize_replica(spec: WorkloadSpec, replica: Replica) -> Replica:
    """``replica`` in the wanted version, with its limits."""
    specs = {container.name: container for container in spec.containers}
    containers = tuple(replace(container, wanted=specs[container.name]) for container in replica.containers)
    return replace(replica, version=spec.version, gvc_version=spec.gvc_version, containers=containers)


def container_exited(replica: Replica, container: str, now: float, code: int, reason: str, message: str) -> Replica:
    """A container has ended, or failed to start with the reason StartFailed; ``reason`` as in Ended.

    The reason becomes LivenessFailed if the container was ended because of its liveness probe. If the container does
    not run, nothing changes, but a waiting one may fail to start. Raises KeyError.
    """
    old = container_of(replica, container)
    if old.phase is Phase.ENDED or (old.phase is Phase.WAITING and reason != Reason.START_FAILED):
        return replica
    # A failed start lasts no time. Since the start of an earlier run, it would seem long and reset the backoff.
    started = now if reason == Reason.START_FAILED else old.started
    if not old.alive:
        reason, message = Reason.LIVENESS_FAILED, message or old.message
    last = Ended(code, now, reason, message)
    return recompute_ready(
        with_container(replica, replace(old, phase=Phase.ENDED, started=started, ready=False, last=last)), now
    )


def evict_replica(replica: Replica, now: float) -> Replica:
    """``replica``, to end at once and without its hooks, because it uses room that others need."""
    if replica.reason == Reason.EVICTED:
        return replica
    return replace(replica, ending=now, reason=Reason.EVICTED, ready_since=None)


def hook_finished(replica: Replica, container: str, hook: HookName, failed_message: str, now: float) -> Replica:
    """A running hook is over; ``failed_message`` is "" if it succeeded. Raises KeyError.

    That the default preStop hook cannot run is no fault of the container.
    """
    old = container_of(replica, container)
    if getattr(old, hook) is not HookState.RUNNING:
        return replica
    outcome = HookState.FAILED if failed_message else HookState.DONE
    error = old.hook_error if is_default_hook(old, hook) else failed_message or old.hook_error
    new = replace(old, hook_error=error, **{hook: outcome})
    return recompute_ready(with_container(replica, new), now)


def is_default_hook(container: ReplicaContainer, hook: HookName) -> bool:
    """Whether ``hook`` is the preStop hook of the platform, as the user has none."""
    return hook == "pre_stop" and container.wanted.pre_stop is None


def readiness_changed(replica: Replica, container: str, ready: bool, now: float, message: str) -> Replica:
    """Apply the verdict of a readiness probe. A container that does not run is unchanged. Raises KeyError."""
    old = container_of(replica, container)
    if old.phase is not Phase.RUNNING or not old.alive:
        return replica
    new = replace(old, ready=ready, was_ready=old.was_ready or old.ready, message="" if ready else message)
    return recompute_ready(with_container(replica, new), now)


def liveness_failed(replica: Replica, container: str, now: float, message: str) -> Replica:
    """Mark a container for a restart because its liveness probe failed often enough. Raises KeyError."""
    old = container_of(replica, container)
    if old.phase is not Phase.RUNNING or not old.alive:
        return replica
    return recompute_ready(with_container(replica, replace(old, alive=False, message=message)), now)


def apply_verdict(replica: Replica, verdict: Verdict, now: float) -> Replica:
    """Apply a changed probe verdict; one on an earlier run of the container changes nothing. Raises KeyError."""
    name = verdict.place.container
    if container_of(replica, name).started != verdict.started:
        return replica
    if verdict.kind is ProbeKind.READINESS:
        return readiness_changed(replica, name, verdict.ok, now, f"the readiness probe failed: {verdict.message}")
    return (
        replica if verdict.ok else liveness_failed(replica, name, now, f"the liveness probe failed: {verdict.message}")
    )


def recompute_ready(replica: Replica, now: float) -> Replica:
    """Recompute ``ready_since``: all containers must run, be ready and alive, and have finished their postStart."""
    if not all(_serves_requests(container) for container in replica.containers):
        return replace(replica, ready_since=None)
    return replica if replica.ready_since is not None else replace(replica, ready_since=now)


def _apply_action(
    container: ReplicaContainer, act: Start | RunPreStop | Terminate | Kill | ScheduleRestart, now: float
) -> ReplicaContainer:
    match act:
        case Start() if container.phase is Phase.WAITING:
            return _start_container(container, now)
        case ScheduleRestart() if container.phase is Phase.ENDED:
            return replace(container, phase=Phase.WAITING, start_at=act.start_at, failures=act.failures)
        case RunPreStop() if container.pre_stop is HookState.NONE:
            return replace(container, pre_stop=HookState.RUNNING)
        case Terminate() if container.sigterm_at is None:
            return replace(container, sigterm_at=now)
        case Kill():
            # SIGKILL is repeated while the container lives, and the wait begins anew each time.
            return replace(container, sigkill_at=now)
    return container


def _start_container(container: ReplicaContainer, now: float) -> ReplicaContainer:
    """``container`` after its start: only the last end and the counters of earlier runs remain."""
    container_spec = container.wanted
    return ReplicaContainer(
        container.name,
        Phase.RUNNING,
        started=now,
        ready=container_spec.readiness is None,
        restarts=container.restarts + (container.last is not None),
        failures=container.failures,
        last=container.last,
        post_start=HookState.NONE if container_spec.post_start is None else HookState.RUNNING,
        wanted=container_spec,
    )


def _serves_requests(container: ReplicaContainer) -> bool:
    running = container.phase is Phase.RUNNING and container.post_start is not HookState.RUNNING
    return running and container.ready and container.alive
