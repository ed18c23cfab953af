"""Tracks the unready resources of a source and the unhealthy members of its GVCs, which saves a recount."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from reconciler.model.key import PLACED, Key
from reconciler.model.record import Health
from reconciler.records.sql import stored_key
from reconciler.records.store import Records
from reconciler.status.conditions import ResourceFacts, ready
from reconciler.status.facts import FactsReader
from reconciler.status.rollup import find_worst_health


class ReadinessIndex:
    """Its size depends on the number of problems, not of resources."""

    def __init__(self) -> None:
        self._unready: set[str] = set()
        self._unhealthy: dict[str, dict[str, Health]] = {}

    @classmethod
    def of_records(cls, records: Records, source: str, gathering: FactsReader) -> ReadinessIndex:
        """Build the index from the records; reads the index of all resources, so use it only at the start."""
        index = cls()
        index._unready.update(str(failure.key) for failure in records.failures.all(source))
        index._unready.update(row.key for row in records.drifts.all(source))
        index._unready.update(_list_outdated_keys(records, source, gathering))
        ill = {kind for kind, health in records.applied.counts(source) if not health.is_good}
        for kind in sorted(ill):
            for record in records.applied.items(kind):
                if record.source == source and not record.health.is_good:
                    index._unready.add(str(record.key))
                    index._add_unhealthy(record.key, record.health)
        return index

    @property
    def unready(self) -> int:
        """The number of unready resources."""
        return len(self._unready)

    def first(self, count: int) -> list[Key]:
        """The first ``count`` unready resources, sorted by their text."""
        return [stored_key(key, "applied") for key in heapq.nsmallest(count, self._unready)]

    def members(self, gvc: str) -> tuple[Health, ...]:
        """The health of the members of ``gvc`` that are neither Healthy nor Recorded."""
        return tuple(self._unhealthy.get(gvc, {}).values())

    def add(self, facts: ResourceFacts) -> bool:
        """Add the state of a resource; returns whether the health of its GVC may have changed."""
        key = str(facts.key)
        if not facts.exists or ready(facts):
            self._unready.discard(key)
        else:
            self._unready.add(key)
        if not facts.key.gvc:
            return False
        before = self._unhealthy.get(facts.key.gvc, {}).pop(key, Health.HEALTHY)
        after = facts.health if facts.records and not facts.health.is_good else Health.HEALTHY
        if after is not Health.HEALTHY:
            self._unhealthy.setdefault(facts.key.gvc, {})[key] = after
        return before is not after

    def _add_unhealthy(self, key: Key, health: Health) -> None:
        if key.gvc:
            there = self._unhealthy.setdefault(key.gvc, {})
            there[str(key)] = find_worst_health((health, there.get(str(key), Health.HEALTHY)))


def _list_outdated_keys(records: Records, source: str, gathering: FactsReader) -> Iterator[str]:
    """Keys whose record is missing or differs from Git."""
    desired = dict(records.desired.scan(source))
    seen = set()
    for key, location, digest, _ in records.applied.scan(source):
        desired_digest = desired.get(key)
        seen.add(key)
        # A resource that is no longer in Git may be retained, and one of a placed kind may lack a location. Both need
        # their facts.
        if desired_digest is None or (not location and stored_key(key, "applied").kind in PLACED):
            if not ready(gathering.facts(stored_key(key, "applied"))):
                yield key
        elif desired_digest != digest or gathering.has_left(key.split("/", 2)[1], location):
            yield key
    yield from desired.keys() - seen
