"""Rollout and scaling of replicas with identities (docs/platform/workload.md#stateful-workloads); pure.

An identity never exists twice: its next replica is created after the last one is removed. OrderedReady creates replicas
in ascending order, each when all lower ones are available. It removes them in descending order, each when the higher
one is gone. Parallel creates and removes all at once. Under both, updates go one at a time, highest first.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.engines.host.decisions.actions import Action, Create, StopReplica
from reconciler.engines.host.decisions.availability import is_available, is_current
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.reasons import Reason


def ordered_rollout(spec: WorkloadSpec, replicas: Sequence[Replica], now: float) -> tuple[Action, ...]:
    """The replicas to end and to create; ``replicas`` are all of the workload, including ending ones."""
    # A replica from before the workload was stateful has no identity, so it goes.
    strangers = [replica for replica in replicas if replica.index < 0 and replica.ending is None]
    # A replica that is ending still occupies its identity.
    slots = {replica.index: replica for replica in replicas if replica.index >= 0}
    outdated = _select_outdated_replica(spec, slots, now)
    return (
        *(StopReplica(replica.name, Reason.REPLACED) for replica in strangers),
        *(StopReplica(replica.name, Reason.SCALED_DOWN) for replica in _select_surplus(spec, slots)),
        *(StopReplica(replica.name, Reason.REPLACED) for replica in outdated),
        *(Create(index) for index in _select_missing_identities(spec, slots, now)),
    )


def _select_surplus(spec: WorkloadSpec, slots: dict[int, Replica]) -> list[Replica]:
    """The replicas to scale down now: the highest, unless it is ending already; all of them under Parallel."""
    beyond = [slots[index] for index in sorted(slots, reverse=True) if index >= spec.replicas]
    chosen = beyond if spec.rollout.parallel else beyond[:1]
    return [replica for replica in chosen if replica.ending is None]


def _select_missing_identities(spec: WorkloadSpec, slots: dict[int, Replica], now: float) -> list[int]:
    """The identities to create now: the lowest missing one, once all lower ones are available; under Parallel all."""
    missing = [index for index in range(spec.replicas) if index not in slots]
    if spec.rollout.parallel or not missing:
        return missing
    below = (slots[index] for index in range(missing[0]))
    return missing[:1] if all(is_available(spec, replica, now) for replica in below) else []


def _select_outdated_replica(spec: WorkloadSpec, slots: dict[int, Replica], now: float) -> list[Replica]:
    """The one replica to replace now, if any; none while another one ends or an updated one is unavailable.

    A replica that is not ready goes first. It does not wait for missing identities, since they may wait for it.
    """
    members = [slots[index] for index in sorted(slots, reverse=True)]
    if any(replica.index >= spec.replicas or replica.ending is not None for replica in members):
        return []
    old = [replica for replica in members if not is_current(spec, replica)]
    if any(is_current(spec, replica) and not is_available(spec, replica, now) for replica in members):
        return []
    broken = [replica for replica in old if not replica.ready]
    if broken or not old or len(members) < spec.replicas:
        return broken[:1]
    others = (replica for replica in members if replica is not old[0])
    return old[:1] if all(is_available(spec, replica, now) for replica in others) else []
