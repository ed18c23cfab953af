"""Replicas and their usage, as a table and as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from reconciler.engines.reading import ReplicaRow
from reconciler.render.layout import align_columns, strip_control
from reconciler.times import format_short_duration

_HEADING = (
    "WORKLOAD",
    "LOCATION",
    "REPLICA",
    "VERSION",
    "STATE",
    "RESTARTS",
    "CPU",
    "MEMORY",
    "AGE",
    "PORTS",
    "MESSAGE",
)
_NODE = 3
"""The column of nodes, behind that of replicas."""
_COLOURS = {
    "Ready": "green",
    "Loading": "yellow",
    "Ending": "yellow",
    "Not ready": "red",
    "Backoff": "red",
    "Unknown": "red",
}


def replica_table(rows: Sequence[ReplicaRow], colour: bool) -> list[str]:
    """A line for each replica below a heading. A port shows as ``20001->8080``: assigned, then declared.

    Nodes have a column if any replica runs on one of a cluster.
    """
    cells: list[tuple[str, ...]] = [_HEADING, *map(_format_cells, rows)]
    if any(row.node for row in rows):
        nodes = ("NODE", *(row.node or "-" for row in rows))
        cells = [(*line[:_NODE], node, *line[_NODE:]) for line, node in zip(cells, nodes, strict=True)]
    return align_columns(cells, colours=_COLOURS if colour else None).splitlines()


def replica_document(rows: Iterable[ReplicaRow]) -> dict[str, Any]:
    """The replicas below ``replicas``; CPU in millicores, memory in bytes, age in seconds."""
    return {"replicas": [_build_item(row) for row in rows]}


def _format_cells(row: ReplicaRow) -> tuple[str, ...]:
    ports = " ".join(f"{assigned}->{declared}" for declared, assigned in sorted(row.ports.items()))
    return (
        f"{row.key.gvc}/{row.key.name}",
        row.location,
        row.name,
        str(row.version),
        str(row.state),
        str(row.restarts),
        "-" if row.cpu is None else f"{row.cpu}m",
        "-" if row.memory is None else f"{row.memory / 2**20:.1f}Mi",
        format_short_duration(row.age),
        ports or "-",
        strip_control(row.fault),
    )


def _build_item(row: ReplicaRow) -> dict[str, Any]:
    return {
        "workload": str(row.key),
        "location": row.location,
        "replica": row.name,
        "version": row.version,
        "state": str(row.state),
        "message": row.fault,
        "restarts": row.restarts,
        "cpuMillicores": row.cpu,
        "memoryBytes": row.memory,
        "ageSeconds": round(row.age),
        "ports": {str(declared): assigned for declared, assigned in sorted(row.ports.items())},
        **({"node": row.node} if row.node else {}),
    }
