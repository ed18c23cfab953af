"""Renamed workloads: the former one stays until the one that takes its place is healthy.

A workload with volume sets is deleted first, since the new one cannot have the volumes before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from reconciler.model.key import Key, Kind
from reconciler.model.record import Record
from reconciler.planning.inputs import PlannerInput
from reconciler.planning.plan import Action, Rename, Step

_NEVER_SERVES = "cron"


def with_successors(scope: PlannerInput, steps: list[Step], renames: Iterable[Rename]) -> list[Step]:
    """``steps``, in which the delete of a renamed workload needs the health of its successor."""
    successors = {**scope.successors, **{rename.before: (rename.after,) for rename in renames}}
    waiting = {before: after for before, after in successors.items() if _serves_traffic(scope.records.get(before, ()))}
    if not waiting:
        return steps
    return [
        msgspec.structs.replace(step, needs_healthy=waiting[step.key])
        if step.action is Action.DELETE and step.key in waiting
        else step
        for step in steps
    ]


def successor_edges(steps: list[Step]) -> Iterator[tuple[int, int]]:
    """Each delete that needs the health of its successor, with each step of that, as indices of ``steps``."""
    doomed = [
        (index, step.needs_healthy)
        for index, step in enumerate(steps)
        if step.action is Action.DELETE and step.needs_healthy
    ]
    by_key: dict[Key, list[int]] = {key: [] for _, keys in doomed for key in keys}
    for index, step in enumerate(steps):
        if step.key in by_key:
            by_key[step.key].append(index)
    return ((index, other) for index, keys in doomed for key in keys for other in by_key[key])


def find_successors(gone: Iterable[Record], bodies: Mapping[Key, bytes]) -> dict[Key, tuple[Key, ...]]:
    """The recorded workloads ``gone``, each with those of ``bodies`` that differ from it in nothing but the name."""
    by_content: dict[bytes, list[Key]] = {}
    for key, body in sorted(bodies.items()):
        by_content.setdefault(encode_without_name(key, body), []).append(key)
    pairs = ((record.key, by_content.get(encode_without_name(record.key, record.body))) for record in gone)
    return {before: tuple(after) for before, after in pairs if after}


def encode_without_name(key: Key, body: bytes) -> bytes:
    """What two resources have in common of which one is the renamed other one."""
    content: dict[str, Any] = msgspec.json.decode(body)
    name = content.pop("name")
    if content.get("description") == name:
        del content["description"]
    return msgspec.json.encode((key.kind, key.gvc, content), order="deterministic")


def _serves_traffic(records: Iterable[Record]) -> bool:
    """Whether the workload serves anybody now, who would miss it; it has no volumes that its successor needs."""
    recorded = list(records)
    if not any(record.key.kind is Kind.WORKLOAD and record.health.is_good for record in recorded):
        return False
    body: dict[str, Any] = msgspec.json.decode(recorded[0].body)
    spec = body.get("spec") or {}
    suspended = (spec.get("defaultOptions") or {}).get("suspend") is True
    return not suspended and spec.get("type") != _NEVER_SERVES and b"volumeset/" not in recorded[0].body
