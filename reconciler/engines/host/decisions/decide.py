"""Decides what to do about a workload now: a pure function of the desired state, the replicas and the time."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.engines.host.decisions.actions import Create, Decision, Resize, StopReplica, find_soonest_time
from reconciler.engines.host.decisions.availability import availability_times, is_resizable, start_ends
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.decisions.restarts import restart_policy
from reconciler.engines.host.decisions.rollout import plan_rollout
from reconciler.engines.host.decisions.stateful import ordered_rollout
from reconciler.engines.host.decisions.termination import termination_steps
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.decisions.transitions import resize_replica
from reconciler.engines.workload.spec import Type, WorkloadSpec
from reconciler.reasons import Reason


def decide_actions(spec: WorkloadSpec | None, replicas: Sequence[Replica], now: float, timing: Timing) -> Decision:
    """The actions that are due, and when time alone brings the next; ``replicas`` are all of this one workload.

    ``spec`` is None for a deleted workload: all its replicas end. ``now`` is in seconds of the monotonic clock. After
    the actions are carried out and applied (transitions.py), decide again. Without actions there is nothing to do until
    ``wake`` or the next event. ``wake`` is also the time at which a replica becomes available or its start has taken
    too long, since status shows both. See docs/platform/workload.md#rollout and #termination.
    """
    members = _decide_membership(spec, replicas, now)
    chosen = {act.replica for act in members.actions if isinstance(act, StopReplica)}
    parts = [termination_steps(replica, now, timing) for replica in replicas if replica.ending is not None]
    parts.append(members)
    # A replica that is about to end starts no container any more.
    staying = [replica for replica in replicas if replica.ending is None and replica.name not in chosen]
    parts.extend(restart_policy(replica, now, timing) for replica in staying)
    acts = sorted((act for part in parts for act in part.actions), key=lambda act: isinstance(act, Create))
    return Decision(tuple(acts), find_soonest_time(*(part.wake for part in parts)))


def _decide_membership(spec: WorkloadSpec | None, replicas: Sequence[Replica], now: float) -> Decision:
    live = [replica for replica in replicas if replica.ending is None]
    if spec is None or spec.type is Type.CRON or spec.suspended or not spec.replicas:
        return Decision(tuple(StopReplica(replica.name, _get_stop_reason(spec)) for replica in live))
    if spec.pending:
        # No replica makes room for one that cannot start yet: a missing image takes nothing down.
        return Decision((), find_soonest_time(*availability_times(spec, live, now), *start_ends(live, now)))
    resizes = tuple(Resize(replica.name) for replica in live if is_resizable(spec, replica))
    # The rollout sees these as current already, or it would replace what only changes its limits.
    replicas = [resize_replica(spec, replica) if is_resizable(spec, replica) else replica for replica in replicas]
    live = [replica for replica in replicas if replica.ending is None]
    acts = ordered_rollout(spec, replicas, now) if spec.stateful else plan_rollout(spec, live, now)
    return Decision((*resizes, *acts), find_soonest_time(*availability_times(spec, live, now), *start_ends(live, now)))


def _get_stop_reason(spec: WorkloadSpec | None) -> Reason:
    """Why all replicas end."""
    if spec is None:
        return Reason.DELETED
    if spec.type is Type.CRON:
        return Reason.REPLACED
    return Reason.SUSPENDED if spec.suspended else Reason.SCALED_DOWN
