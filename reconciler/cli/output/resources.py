"""Resources as JSON items and as lines of text, without secret data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from reconciler.model.key import Kind
from reconciler.model.record import Record
from reconciler.reasons import ConditionType, Reason
from reconciler.records.tables.conditions import Condition
from reconciler.status.conditions import ResourceFacts, conditions

MASK = "***"

HEALTH_COLOURS = {
    "Healthy": "green",
    "Recorded": "grey",
    "Loading": "yellow",
    "Deleting": "yellow",
    "Unhealthy": "red",
    "Unknown": "grey",
}


def item(facts: ResourceFacts) -> dict[str, Any]:
    """One resource as JSON: the fields of its manifest, then its recorded status."""
    found: dict[str, Any] = {"kind": str(facts.key.kind), "name": facts.key.name, "gvc": facts.key.gvc}
    if not facts.key.gvc:
        del found["gvc"]
    found |= body(facts)
    newest = max(facts.records, key=lambda record: record.applied_at, default=None)
    if newest is not None:
        found |= {"source": newest.source, "revision": newest.revision, "version": version(facts)}
        if newest.alias:
            found["alias"] = newest.alias
    found["health"] = str(facts.health)
    found["conditions"] = [msgspec.structs.asdict(condition) for condition in conditions(facts)]
    found["deployments"] = [_deployment(record) for record in facts.records if record.location]
    return found


def body(facts: ResourceFacts) -> dict[str, Any]:
    """The fields of the manifest as last applied, empty where nothing is; ``***`` for secret values."""
    newest = max(facts.records, key=lambda record: record.applied_at, default=None)
    if newest is None:
        return {}
    fields: dict[str, Any] = msgspec.json.decode(newest.body)
    if facts.key.kind is Kind.SECRET and "data" in fields:
        fields["data"] = _hidden(fields["data"])
    return fields


def version(facts: ResourceFacts) -> int:
    """The version last applied, 0 where none is."""
    return max((record.version for record in facts.records), default=0)


def ready_words(found: Sequence[Condition]) -> str:
    """``yes``, or the reason why not; and whether an operator suspended it."""
    ready = next((each for each in found if each.type == ConditionType.READY), None)
    if ready is None:
        return "-"
    words = "yes" if ready.status else ready.reason
    words += ", orphaned" if ready.status and ready.reason == Reason.ORPHANED else ""
    suspended = any(each.type == ConditionType.SUSPENDED for each in found)
    also_suspended = words != Reason.SUSPENDED and suspended
    return f"{words}, suspended" if also_suspended else words


def endpoint(record: Record) -> str:
    """The endpoint of ``record``, "" where there is none."""
    status = msgspec.json.decode(record.state).get("status")
    return str(status.get("endpoint") or "") if isinstance(status, dict) else ""


def replicas(record: Record) -> Iterator[tuple[str, ...]]:
    """A row for each replica, as last observed: name, place, version, state, restarts, ports, message."""
    status = msgspec.json.decode(record.state).get("status")
    for each in status.get("replicas", ()) if isinstance(status, dict) else ():
        ports = " ".join(f"127.0.0.1:{assigned}->{declared}" for declared, assigned in each["ports"].items())
        restarts = each.get("restarts", 0)
        yield (
            each["name"],
            record.location,
            f"version {each['version']}",
            "ready" if each["ready"] else "not ready",
            f"{restarts} restart{'' if restarts == 1 else 's'}",
            ports,
            " ".join(each["message"].split()),
        )


def _deployment(record: Record) -> dict[str, Any]:
    state: dict[str, Any] = msgspec.json.decode(record.state)
    seen = {"location": record.location, "engine": record.engine, "health": str(record.health)}
    return {**seen, "version": record.version, **state}


def _hidden(value: Any) -> Any:
    """``value`` with its names and without its data."""
    if isinstance(value, dict):
        return {name: _hidden(member) for name, member in value.items()}
    return MASK
