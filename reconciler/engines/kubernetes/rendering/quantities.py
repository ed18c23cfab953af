"""Quantities as the API server writes them, so that nothing differs after an apply; and those of a workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.engines.workload.spec import ContainerSpec, WorkloadSpec, count_storage_megabytes, uses_capacity_ai

MEGABYTE = 10**6
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")


def format_cores(millicores: int) -> str:
    """``1500`` → ``1500m``, ``2000`` → ``2``."""
    cores, rest = divmod(millicores, 1000)
    return f"{millicores}m" if rest else str(cores)


def format_memory(size: int) -> str:
    """``size`` in bytes with the largest binary unit that leaves a whole number: ``1073741824`` → ``1Gi``."""
    return _format_quantity(size, 1024, _BINARY)


def format_storage(size: int) -> str:
    """``size`` in bytes with the largest decimal unit that leaves a whole number: ``10000000000`` → ``10G``."""
    return _format_quantity(size, 1000, _DECIMAL)


def _format_quantity(size: int, base: int, units: tuple[str, ...]) -> str:
    power = 0
    while size and size % base == 0 and power < len(units) - 1:
        size, power = size // base, power + 1
    return f"{size}{units[power]}"


def drop_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """``fields`` without those that are None or empty: the API server stores none of them."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {}, ())}


def build_resources(spec: WorkloadSpec, container: ContainerSpec) -> dict[str, Any]:
    """Requests and limits of a container.

    The first one has the ephemeral storage of all: the kubelet compares the sum of these limits with what the whole
    replica uses.
    """
    limits = {"cpu": format_cores(container.cpu), "memory": format_memory(container.memory)}
    requests = dict(limits)
    if uses_capacity_ai(spec):
        requests["cpu"] = format_cores(min(container.min_cpu or container.cpu, container.cpu))
        requests["memory"] = format_memory(min(container.min_memory or container.memory, container.memory))
    if container is spec.containers[0]:
        storage = {"ephemeral-storage": format_storage(count_storage_megabytes(spec.containers) * MEGABYTE)}
        limits, requests = {**limits, **storage}, {**requests, **storage}
    return {"limits": limits, "requests": requests}
