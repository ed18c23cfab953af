"""What becomes of a replica by what was done to it and by what happened to it: pure, from value to value.

Who tells the same thing twice, or too late, does no harm: it changes nothing then.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from reconciler.engines.host.decisions.actions import Kill, RunPreStop, ScheduleRestart, Start, StopReplica, Terminate
from reconciler.engines.host.probes.state import ProbeKind, Verdict
from reconciler.engines.host.replica import (
    EVICTED,
    Container,
    Ended,
    Hook,
    Phase,
    Replica,
    container_of,
    with_container,
)
from reconciler.engines.host.spec import WorkloadSpec

Begun = StopReplica | Start | RunPreStop | Terminate | Kill | ScheduleRestart
"""The acts that change a replica; Create makes one and Remove takes it away."""

HookName = Literal["post_start", "pre_stop"]


def new_replica(wanted: WorkloadSpec, index: int, name: str, now: float, creation_timestamp: str) -> Replica:
    """A new replica of what is wanted, its containers waiting; ``creation_timestamp`` is ``now`` in ISO 8601."""
    containers = tuple(Container(container.name, wanted=container) for container in wanted.containers)
    return Replica(
        name,
        wanted.key,
        wanted.version,
        wanted.config_hash,
        now,
        containers,
        index=index,
        gvc_version=wanted.gvc_version,
        creation_timestamp=creation_timestamp,
    )


def apply_action(replica: Replica, act: Begun, now: float) -> Replica:
    """``replica`` with ``act`` carried out at ``now``. Raises KeyError where it has no such container."""
    if isinstance(act, StopReplica):
        return replica if replica.ending is not None else replace(replica, ending=now, reason=act.reason)
    return recompute_ready(with_container(replica, _acted(container_of(replica, act.container), act, now)), now)


def container_exited(replica: Replica, container: str, now: float, code: int, reason: str, message: str) -> Replica:
    """A container has ended, or with the reason StartFailed could not be started; ``reason`` as in Ended.

    The reason is LivenessFailed where it was ended because its liveness probe failed. Nothing changes where it is not
    known to run, but a waiting one may fail to start. Raises KeyError.
    """
    old = container_of(replica, container)
    if old.phase is Phase.ENDED or (old.phase is Phase.WAITING and reason != "StartFailed"):
        return replica
    started = now if reason == "StartFailed" else old.started
    if not old.alive:
        reason, message = "LivenessFailed", message or old.message
    last = Ended(code, now, reason, message)
    return recompute_ready(
        with_container(replica, replace(old, phase=Phase.ENDED, started=started, ready=False, last=last)), now
    )


def evicted(replica: Replica, now: float) -> Replica:
    """``replica`` has to end at once, without its hooks and their time: it takes the host's room away from others."""
    return replica if replica.reason == EVICTED else replace(replica, ending=now, reason=EVICTED, ready_since=None)


def hook_finished(replica: Replica, container: str, hook: HookName, failed_message: str, now: float) -> Replica:
    """A running hook is over; ``failed_message`` is "" where it went well. Raises KeyError."""
    old = container_of(replica, container)
    if getattr(old, hook) is not Hook.RUNNING:
        return replica
    outcome = Hook.FAILED if failed_message else Hook.DONE
    error = failed_message or old.hook_error
    new = replace(old, hook_error=error, **{hook: outcome})
    return recompute_ready(with_container(replica, new), now)


def readiness_changed(replica: Replica, container: str, ready: bool, now: float, message: str) -> Replica:
    """The verdict of a container's readiness probe. Nothing changes where it does not run. Raises KeyError."""
    old = container_of(replica, container)
    if old.phase is not Phase.RUNNING or not old.alive:
        return replica
    new = replace(old, ready=ready, was_ready=old.was_ready or old.ready, message="" if ready else message)
    return recompute_ready(with_container(replica, new), now)


def liveness_failed(replica: Replica, container: str, now: float, message: str) -> Replica:
    """A container's liveness probe has failed often enough: it is to be restarted. Raises KeyError."""
    old = container_of(replica, container)
    if old.phase is not Phase.RUNNING or not old.alive:
        return replica
    return recompute_ready(with_container(replica, replace(old, alive=False, message=message)), now)


def apply_verdict(replica: Replica, verdict: Verdict, now: float) -> Replica:
    """A probe has another verdict. One on a former start of the container changes nothing. Raises KeyError."""
    name = verdict.place.container
    if container_of(replica, name).started != verdict.started:
        return replica
    if verdict.kind is ProbeKind.READINESS:
        return readiness_changed(replica, name, verdict.ok, now, f"the readiness probe failed: {verdict.message}")
    return (
        replica if verdict.ok else liveness_failed(replica, name, now, f"the liveness probe failed: {verdict.message}")
    )


def recompute_ready(replica: Replica, now: float) -> Replica:
    """``replica`` with ``ready_since`` as its containers have it: all run, are ready and alive, and were greeted."""
    if not all(_serves(container) for container in replica.containers):
        return replace(replica, ready_since=None)
    return replica if replica.ready_since is not None else replace(replica, ready_since=now)


def _acted(container: Container, act: Start | RunPreStop | Terminate | Kill | ScheduleRestart, now: float) -> Container:
    match act:
        case Start() if container.phase is Phase.WAITING:
            return _started(container, now)
        case ScheduleRestart() if container.phase is Phase.ENDED:
            return replace(container, phase=Phase.WAITING, start_at=act.start_at, failures=act.failures)
        case RunPreStop() if container.pre_stop is Hook.NONE:
            return replace(container, pre_stop=Hook.RUNNING)
        case Terminate() if container.sigterm_at is None:
            return replace(container, sigterm_at=now)
        case Kill():
            return replace(container, sigkill_at=now)
    return container


def _started(container: Container, now: float) -> Container:
    """``container`` just started: nothing of its last run counts any more but how that ended."""
    wanted = container.wanted
    return Container(
        container.name,
        Phase.RUNNING,
        started=now,
        ready=wanted.readiness is None,
        restarts=container.restarts + (container.last is not None),
        failures=container.failures,
        last=container.last,
        post_start=Hook.NONE if wanted.post_start is None else Hook.RUNNING,
        wanted=wanted,
    )


def _serves(container: Container) -> bool:
    running = container.phase is Phase.RUNNING and container.post_start is not Hook.RUNNING
    return running and container.ready and container.alive
