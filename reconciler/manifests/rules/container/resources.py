"""CPU and memory of containers: too little of them, and too much memory for the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_warning
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Container, Workload
from reconciler.model.platform import RELAXED_RATIO_TAG
from reconciler.model.quantity import MIB, memory_bytes, parse_millicores

LEAST_CPU = 25
LEAST_MEMORY = 32 * MIB
MOST_MEMORY = 8 * MIB
"""Bytes per millicore."""


@register_warning("resources-small", "docs/platform/workload.md#cpu-and-memory", Kind.WORKLOAD)
def check_minimum_resources(workload: Workload) -> Iterator[Flaw]:
    """A container has at least 25m of CPU and 32Mi of memory.

    With less, most programs start too slowly for their probes, or are killed for lack of memory while they start.
    """
    for index, container in enumerate(workload.spec.containers):
        cpu, memory = _parse_amounts(container)
        if 0 < cpu < LEAST_CPU:
            at = ("spec", "containers", index, "cpu")
            yield Flaw(at, f"{quote_text(container.cpu)} is very little CPU", f"give it {LEAST_CPU}m or more")
        if 0 < memory < LEAST_MEMORY:
            at = ("spec", "containers", index, "memory")
            yield Flaw(at, f"{quote_text(container.memory)} is very little memory", "give it 32Mi or more")


@register_warning("memory-cpu-ratio", "docs/platform/workload.md#cpu-and-memory", Kind.WORKLOAD)
def check_memory_ratio(workload: Workload) -> Iterator[Flaw]:
    """A container has at most 8 MiB of memory for each millicore of CPU.

    Machines have about that ratio; a container with more memory leaves CPU that no other container can use. The tag
    `platform/relaxMemoryToCpuRatio: "true"` allows it.
    """
    for index, container in enumerate(workload.spec.containers):
        cpu, memory = _parse_amounts(container)
        if memory <= cpu * MOST_MEMORY or not cpu:
            continue
        if str(workload.tags.get(RELAXED_RATIO_TAG)).lower() == "true":
            return
        pointer = ("spec", "containers", index)
        yield Flaw(
            (*pointer, "memory"),
            f"{quote_text(container.memory)} is more than 8 MiB for each millicore of {quote_text(container.cpu)}",
            f"set `cpu` to {-(-memory // MOST_MEMORY)}m or more, "
            f'or the tag `{RELAXED_RATIO_TAG}: "true"` if it is intended',
            also=((*pointer, "cpu"), ("tags", RELAXED_RATIO_TAG)),
        )


def _parse_amounts(container: Container) -> tuple[int, int]:
    """Millicores and bytes; 0 for both if one is invalid, which the schema reports."""
    try:
        return parse_millicores(container.cpu), memory_bytes(container.memory)
    except ValueError:
        return 0, 0
