"""CPU and memory of containers: too little of them, and too much memory for the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import warning
from reconciler.manifests.rules.text import quoted
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Container, Workload
from reconciler.model.platform import RELAXED_RATIO_TAG
from reconciler.model.quantity import MIB, memory_bytes, millicores

LEAST_CPU = 25
LEAST_MEMORY = 32 * MIB
MOST_MEMORY = 8 * MIB
"""Bytes per millicore."""


@warning("resources-small", "docs/platform/workload.md#cpu-and-memory", Kind.WORKLOAD)
def small(workload: Workload) -> Iterator[Flaw]:
    """A container has at least 25m of CPU and 32Mi of memory.

    With less, most programs start too slowly for their probes, or are killed for lack of memory while they start.
    """
    for index, container in enumerate(workload.spec.containers):
        cpu, memory = _amounts(container)
        if 0 < cpu < LEAST_CPU:
            at = ("spec", "containers", index, "cpu")
            yield Flaw(at, f"{quoted(container.cpu)} is very little CPU", f"give it {LEAST_CPU}m or more")
        if 0 < memory < LEAST_MEMORY:
            at = ("spec", "containers", index, "memory")
            yield Flaw(at, f"{quoted(container.memory)} is very little memory", "give it 32Mi or more")


@warning("memory-cpu-ratio", "docs/platform/workload.md#cpu-and-memory", Kind.WORKLOAD)
def ratio(workload: Workload) -> Iterator[Flaw]:
    """A container has at most 8 MiB of memory for each millicore of CPU.

    Machines have about that ratio; a container with more memory leaves CPU that no other container can use. The tag
    `platform/relaxMemoryToCpuRatio: "true"` allows it.
    """
    for index, container in enumerate(workload.spec.containers):
        cpu, memory = _amounts(container)
        if memory <= cpu * MOST_MEMORY or not cpu:
            continue
        if str(workload.tags.get(RELAXED_RATIO_TAG)).lower() == "true":
            return
        place = ("spec", "containers", index)
        yield Flaw(
            (*place, "memory"),
            f"{quoted(container.memory)} is more than 8 MiB for each millicore of {quoted(container.cpu)}",
            f"set `cpu` to {-(-memory // MOST_MEMORY)}m or more, "
            f'or the tag `{RELAXED_RATIO_TAG}: "true"` if it is intended',
            also=((*place, "cpu"), ("tags", RELAXED_RATIO_TAG)),
        )


def _amounts(container: Container) -> tuple[int, int]:
    """Millicores and bytes; 0 for both if one is invalid, which the schema reports."""
    try:
        return millicores(container.cpu), memory_bytes(container.memory)
    except ValueError:
        return 0, 0
