"""Replicas and their usage, as a table and as JSON values, and how many of a workload are ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from reconciler.engines.reading import ReplicaRow
from reconciler.model.key import Kind
from reconciler.model.record import Health, Record
from reconciler.render.layout import strip_control, table_text
from reconciler.render.style import TextStyle
from reconciler.status.conditions import ResourceFacts
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


def replica_table(rows: Iterable[ReplicaRow], style: TextStyle) -> str:
    """A line for each replica below a heading; ``""`` if there are none.

    A port shows as ``20001->8080``: assigned, then declared. Nodes have a column if any replica runs on one of a
    cluster.
    """
    listed = list(rows)
    heading: tuple[str, ...] = _HEADING
    cells = [*map(_format_cells, listed)]
    if any(row.node for row in listed):
        nodes = ("NODE", *(row.node or "-" for row in listed))
        lines = zip((heading, *cells), nodes, strict=True)
        heading, *cells = ((*line[:_NODE], node, *line[_NODE:]) for line, node in lines)
    return table_text(heading, cells, style, _COLOURS)


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


def replica_document(row: ReplicaRow) -> dict[str, Any]:
    """A replica as JSON values; CPU in millicores, memory in bytes, age in seconds."""
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


class _Replica(msgspec.Struct):
    ready: bool = False


class _Version(msgspec.Struct):
    workload: int = 0
    containers: dict[str, Mapping[str, Any]] = {}


class _Status(msgspec.Struct):
    versions: list[_Version] = []
    replicas: list[_Replica] = []


class _State(msgspec.Struct):
    status: _Status | None = None


def count_ready(facts: ResourceFacts) -> str:
    """``2/3`` at all locations together; "" for what has no replicas, or where nothing runs."""
    if facts.key.kind is not Kind.WORKLOAD:
        return ""
    counts = [count for record in facts.records if (count := _read_count(record)) is not None]
    return f"{sum(ready for ready, _ in counts)}/{sum(total for _, total in counts)}" if counts else ""


def _read_count(record: Record) -> tuple[int, int] | None:
    """The ready replicas and those that should be, as last observed; None where nothing runs, or runs by schedule."""
    try:
        status = msgspec.json.decode(record.state, type=_State).status
    except msgspec.DecodeError:
        return None
    if record.health is Health.RECORDED or status is None or not status.versions:
        return None
    newest = max(status.versions, key=lambda version: version.workload)
    resources = [container.get("resources", {}) for container in newest.containers.values()]
    total = max((counted.get("replicas", 0) for counted in resources), default=0)
    ready = min((counted.get("replicasReady", 0) for counted in resources), default=0)
    # During a rollout, replicas of the version before serve, too.
    return (min(max(ready, sum(replica.ready for replica in status.replicas)), total), total) if resources else None
