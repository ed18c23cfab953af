"""Rollout and scaling of interchangeable replicas: standard and serverless (docs/platform/workload.md#rollout).

The replicas that are not ending never exceed the wanted number plus ``surge``. These decisions never make more than
``unavailable`` of the wanted replicas unavailable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.engines.host.decisions.actions import Action, Create, StopReplica
from reconciler.engines.host.decisions.availability import is_available, is_current, is_failing
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.reasons import Reason


def plan_rollout(spec: WorkloadSpec, live: Sequence[Replica], now: float) -> tuple[Action, ...]:
    """The replicas to end and the number to create; ``live`` are the workload's replicas that are not ending."""
    ends = _list_stops(spec, live, now)
    gone = {end.replica for end in ends}
    staying = [replica for replica in live if replica.name not in gone]
    lacking = spec.replicas - sum(is_current(spec, replica) for replica in staying)
    room = spec.replicas + spec.rollout.surge - len(staying)
    return (*ends, *(Create(),) * max(0, min(lacking, room)))


def _list_stops(spec: WorkloadSpec, live: Sequence[Replica], now: float) -> list[StopReplica]:
    replaceable = [replica.name for replica in _select_replaceable_replicas(spec, live, now)]
    left = [replica for replica in live if replica.name not in replaceable]
    surplus = _select_surplus(spec, left, now)
    return [StopReplica(name, Reason.REPLACED) for name in replaceable] + [
        StopReplica(replica.name, Reason.SCALED_DOWN if is_current(spec, replica) else Reason.REPLACED)
        for replica in surplus
    ]


def _select_replaceable_replicas(spec: WorkloadSpec, live: Sequence[Replica], now: float) -> Iterator[Replica]:
    """Outdated replicas that can end: those that do not serve, and as many others as availability allows.

    While replicas of the wanted version are failing, outdated ones that are not ready stay: they may recover, and the
    rollout is paused.
    """
    old = [replica for replica in live if not is_current(spec, replica)]
    paused = any(is_failing(replica) for replica in live if is_current(spec, replica))
    floor = max(0, spec.replicas - spec.rollout.unavailable)
    available = sum(is_available(spec, replica, now) for replica in live)
    for replica in _worst_first(spec, old, now):
        # An outdated replica that is not available yet takes nothing from the availability.
        cost = int(is_available(spec, replica, now))
        if (not paused) if not replica.ready else available - cost >= floor:
            available -= cost
            yield replica


def _select_surplus(spec: WorkloadSpec, live: Sequence[Replica], now: float) -> list[Replica]:
    """Current replicas beyond the wanted number, then all replicas beyond the wanted number plus the surge."""
    current = [replica for replica in live if is_current(spec, replica)]
    excess = _worst_first(spec, current, now)[: max(0, len(current) - spec.replicas)]
    left = [replica for replica in live if replica not in excess]
    over = max(0, len(left) - spec.replicas - spec.rollout.surge)
    return excess + _worst_first(spec, left, now)[:over]


def _worst_first(spec: WorkloadSpec, replicas: Sequence[Replica], now: float) -> list[Replica]:
    def rank(replica: Replica) -> tuple[bool, bool, bool, int, float, str]:
        available = is_available(spec, replica, now)
        # The name comes last: replicas that are alike have the same order in every decision.
        return replica.ready, available, is_current(spec, replica), replica.version, -replica.created, replica.name

    return sorted(replicas, key=rank)
