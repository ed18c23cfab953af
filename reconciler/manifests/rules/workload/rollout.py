"""Rules for rollouts, and for features that need replicas with an identity."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_notice, register_rule, register_warning
from reconciler.manifests.rules.workload.options import TYPE
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Rollout, Workload

ROLLOUT: Pointer = ("spec", "rolloutOptions")
SURGE: Pointer = (*ROLLOUT, "maxSurgeReplicas")
DEFAULT_SURGE = Rollout().max_surge_replicas
DEFAULT_POLICY = "OrderedReady"
STATEFUL = "write `type: stateful`, or remove it"


@register_notice("rollout-unavailable", "docs/platform/workload.md#rollout-options", Kind.WORKLOAD)
def no_room_for_a_rollout(workload: Workload) -> Iterator[Flaw]:
    """`maxUnavailableReplicas` and `maxSurgeReplicas` are not both zero.

    A rollout that may neither remove nor add a replica could not begin, so one replica is unavailable during it. The
    defaults are 0 for the first and 25%, rounded up, for the second.
    """
    rollout = workload.spec.rollout_options
    if _is_zero_count(rollout.max_surge_replicas) and _is_zero_count(rollout.max_unavailable_replicas):
        message = "no replica is added during a rollout, so one is unavailable while it is replaced"
        yield Flaw(
            SURGE, message, "leave maxSurgeReplicas out (25%) to have no gap", ((*ROLLOUT, "maxUnavailableReplicas"),)
        )


@register_warning("rollout-surge-stateful", "docs/platform/workload.md#rollout-options", Kind.WORKLOAD)
def surge_of_stateful(workload: Workload) -> Iterator[Flaw]:
    """A stateful workload has no `maxSurgeReplicas`.

    Its replicas are replaced one after another, since no identity exists twice; no extra replica ever runs.
    """
    rollout = workload.spec.rollout_options
    surge = rollout.max_surge_replicas
    # The default has the same meaning as no field, and exported manifests have it.
    if workload.spec.type != "stateful" or surge == DEFAULT_SURGE:
        return
    if not (_is_zero_count(surge) and _is_zero_count(rollout.max_unavailable_replicas)):
        message = "maxSurgeReplicas has no effect on a stateful workload"
        yield Flaw(SURGE, message, "remove it", (TYPE,), on_key=True)


@register_rule("scaling-policy", "docs/platform/workload.md#rollout-options", Kind.WORKLOAD)
def order_of_replicas_without_one(workload: Workload) -> Iterator[Flaw]:
    """Only a stateful workload has a `scalingPolicy`.

    It decides whether replicas start and end in the order of their numbers, and those of other types have none. The
    default, OrderedReady, is allowed for every type, since exported manifests have it.
    """
    policy = workload.spec.rollout_options.scaling_policy
    if policy and policy != DEFAULT_POLICY and workload.spec.type != "stateful":
        message = f"a {workload.spec.type} workload takes no scalingPolicy"
        yield Flaw((*ROLLOUT, "scalingPolicy"), message, STATEFUL, (TYPE,), on_key=True)


@register_rule("replica-direct", "docs/platform/workload.md#spec", Kind.WORKLOAD)
def replicas_without_names(workload: Workload) -> Iterator[Flaw]:
    """Only the replicas of a stateful workload can be reached one by one.

    Those of other types have no permanent names.
    """
    if workload.spec.load_balancer.replica_direct and workload.spec.type != "stateful":
        message = f"the replicas of a {workload.spec.type} workload cannot be reached one by one"
        yield Flaw(("spec", "loadBalancer", "replicaDirect"), message, STATEFUL, (TYPE,))


def _is_zero_count(replicas: int | str) -> bool:
    """Whether ``replicas`` means none: 0, or a text such as ``0%``."""
    return not (replicas.rstrip("%").strip("0") if isinstance(replicas, str) else replicas)
