"""Limitations that do not depend on the runtime, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.engines.host.spec import Type, WorkloadSpec
from reconciler.model.kinds.workload import metric_of

COUNTED = ("rps", "latency", "concurrency")
"""Scaling metrics that require a view of the requests."""


def schedule_and_scale(wanted: WorkloadSpec) -> Iterator[str]:
    """Executions of cron workloads, and scaling by requests."""
    if wanted.type is Type.CRON:
        yield "The schedule has no effect: this engine runs no executions yet."
        return
    metric, scale = metric_of(wanted.type, wanted.options), wanted.options.autoscaling
    if metric in COUNTED and not wanted.suspended and scale.min_scale < scale.max_scale:
        yield f"Requests are not counted here: nothing scales by {metric}, and at least one replica stays."


def object_stores(wanted: WorkloadSpec) -> Iterator[str]:
    """Object stores and file shares."""
    for at in wanted.stores:
        yield f"{at.uri} is not mounted at {at.path}: this runtime mounts neither object stores nor file shares."


def separate_networks(wanted: WorkloadSpec) -> Iterator[str]:
    """Programs of this host, while containers at the location have a network of their own."""
    if any(each.ports for each in wanted.containers):
        yield (
            "Until the change of the runtime is complete, containers of images reach a replica that runs as processes "
            "only if its program listens at all addresses of this host."
        )
