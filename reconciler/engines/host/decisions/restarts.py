"""Starts and restarts containers of replicas that do not end, with backoff and after failed liveness probes; pure."""

from __future__ import annotations

from reconciler.engines.execution.retry import RetryPolicy, longest_wait
from reconciler.engines.host.decisions.actions import (
    Action,
    Decision,
    Kill,
    ScheduleRestart,
    Start,
    Terminate,
    find_soonest_time,
)
from reconciler.engines.host.decisions.replica import Phase, Replica, ReplicaContainer
from reconciler.engines.host.decisions.timing import Timing
from reconciler.reasons import Reason


def restart_policy(replica: Replica, now: float, timing: Timing) -> Decision:
    """Restart the ended containers of a replica that is not ending (docs/platform/workload.md#probes)."""
    parts = [_decide_container(replica.name, container, now, timing) for container in replica.containers]
    return Decision(
        tuple(act for part in parts for act in part.actions), find_soonest_time(*(part.wake for part in parts))
    )


def _decide_container(replica: str, container: ReplicaContainer, now: float, timing: Timing) -> Decision:
    if container.phase is Phase.ENDED:
        return Decision((_schedule_restart(replica, container, timing),))
    if container.phase is Phase.WAITING:
        return make_due_decision(Start(replica, container.name), container.start_at, now)
    if container.alive:
        return Decision()
    if container.sigterm_at is None:
        return Decision((Terminate(replica, container.name),))
    kill = Kill(replica, container.name)
    if container.sigkill_at is not None:
        return make_due_decision(kill, container.sigkill_at + timing.kill_retry, now)
    grace = timing.with_total(container.wanted.termination_seconds).grace
    return make_due_decision(kill, container.sigterm_at + grace * timing.scale, now)


def make_due_decision(act: Action, at: float, now: float) -> Decision:
    """``act`` if it is due, otherwise the time at which it will be."""
    return Decision((act,)) if at <= now else Decision(wake=at)


def _schedule_restart(replica: str, container: ReplicaContainer, timing: Timing) -> ScheduleRestart:
    at = container.last.at if container.last else 0.0
    lasted = at - container.started
    # A container that ran for long enough is sound: its next end is the first one again.
    failures = 1 if lasted >= timing.backoff_reset else container.failures + 1
    return ScheduleRestart(replica, container.name, at + _compute_wait(container, failures, timing), failures)


def _compute_wait(container: ReplicaContainer, failures: int, timing: Timing) -> float:
    """Seconds to wait: 0 after the first end of a container that ran; a failed start waits, or it would just fail
    again."""
    stillborn = container.last is not None and container.last.reason == Reason.START_FAILED
    waits = failures if stillborn else failures - 1
    return longest_wait(RetryPolicy(timing.backoff_base, timing.backoff_cap), waits) if waits else 0.0
