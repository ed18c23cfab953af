"""The termination sequence of a replica (docs/platform/workload.md#termination), with all times scaled; pure.

The replica left the endpoints when its termination began. Without a user's preStop hook, each container gets the 45
seconds of the default hook, then SIGTERM and 45 more seconds; if its image lacks the program of that hook, SIGTERM
comes at once. With one, it gets SIGTERM when the hook is over, and 90 seconds in total. A manifest may set another
total: half of that and 45 seconds at most are for the default hook. A container that does not run is not started again.
"""

from __future__ import annotations

import msgspec

from reconciler.engines.host.decisions.actions import Decision, Kill, Remove, RunPreStop, Terminate, find_soonest_time
from reconciler.engines.host.decisions.replica import HookState, Phase, Replica, ReplicaContainer
from reconciler.engines.host.decisions.restarts import make_due_decision
from reconciler.engines.host.decisions.timing import Timing
from reconciler.reasons import Reason


def termination_steps(replica: Replica, now: float, timing: Timing) -> Decision:
    """The next actions of a replica's termination, which has begun, and the time of the following ones."""
    if replica.over:
        return Decision((Remove(replica.name),))
    begun = replica.ending or 0.0
    running = [container for container in replica.containers if container.phase is Phase.RUNNING]
    if replica.reason == Reason.EVICTED:
        return _kill_all(replica.name, running, now, timing)
    if replica.run is not None:
        # The default hook lets requests drain, and an execution serves none.
        timing = msgspec.structs.replace(timing, drain=0.0)
    parts = [_decide_container(replica.name, begun, container, now, timing) for container in running]
    return Decision(
        tuple(act for part in parts for act in part.actions), find_soonest_time(*(part.wake for part in parts))
    )


def _kill_all(replica: str, running: list[ReplicaContainer], now: float, timing: Timing) -> Decision:
    """Kill all containers at once, and repeat while they live."""
    times = [now if container.sigkill_at is None else container.sigkill_at + timing.kill_retry for container in running]
    parts = [
        make_due_decision(Kill(replica, container.name), at, now) for container, at in zip(running, times, strict=True)
    ]
    return Decision(
        tuple(act for part in parts for act in part.actions), find_soonest_time(*(part.wake for part in parts))
    )


def _decide_container(replica: str, begun: float, container: ReplicaContainer, now: float, timing: Timing) -> Decision:
    timing = timing.with_total(container.wanted.termination_seconds)
    if container.sigkill_at is not None:
        return make_due_decision(Kill(replica, container.name), container.sigkill_at + timing.kill_retry, now)
    # After a failed liveness probe, SIGTERM is sent without the hook: such a container ends without it too.
    if container.wanted.pre_stop is not None and (
        container.sigterm_at is None or container.pre_stop is not HookState.NONE
    ):
        return _end_with_hook(replica, container, begun + timing.total * timing.scale, now)
    if container.sigterm_at is None:
        return _end_with_default_hook(replica, container, begun + timing.drain * timing.scale, now)
    return make_due_decision(Kill(replica, container.name), container.sigterm_at + timing.grace * timing.scale, now)


def _end_with_default_hook(replica: str, container: ReplicaContainer, drained: float, now: float) -> Decision:
    # The image lacks the program of the hook, so there is nothing to wait for.
    if container.pre_stop is HookState.FAILED:
        return Decision((Terminate(replica, container.name),))
    if container.wanted.own_sleep and container.pre_stop is HookState.NONE and drained > now:
        return Decision((RunPreStop(replica, container.name),), drained)
    return make_due_decision(Terminate(replica, container.name), drained, now)


def _end_with_hook(replica: str, container: ReplicaContainer, last: float, now: float) -> Decision:
    if last <= now:
        return Decision((Kill(replica, container.name),))
    if container.pre_stop is HookState.NONE:
        return Decision((RunPreStop(replica, container.name),), last)
    if container.pre_stop is not HookState.RUNNING and container.sigterm_at is None:
        return Decision((Terminate(replica, container.name),), last)
    return Decision(wake=last)
