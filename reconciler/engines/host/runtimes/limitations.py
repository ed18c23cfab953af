"""Limitations that do not depend on the runtime, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.engines.host.spec import Type, WorkloadSpec


def schedule(wanted: WorkloadSpec) -> Iterator[str]:
    """Executions of cron workloads."""
    if wanted.type is Type.CRON:
        yield "The schedule has no effect: this engine runs no executions yet."


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
