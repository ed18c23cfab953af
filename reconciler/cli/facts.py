"""All that the records say about a resource, gathered for the commands that show it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from reconciler.model.key import PLACED, Key, Kind
from reconciler.model.record import Health
from reconciler.planning.placement import locations_of
from reconciler.records.store import Records
from reconciler.settings import Settings
from reconciler.status.conditions import Facts
from reconciler.status.health import worst


class Gathering:
    """Facts by key; what resources share (the locations of their GVC, the failures) is read once."""

    def __init__(self, records: Records, settings: Settings) -> None:
        self._records = records
        self._settings = settings
        self._unbound: dict[str, tuple[str, ...]] = {}

    def facts(self, key: Key) -> Facts:
        """What is known of ``key``; ``exists`` is False where nothing is."""
        records = self._records.applied.get(key)
        entry = self._records.desired.get(key)
        owner = entry.source if entry else next((record.source for record in records), "")
        return Facts(
            key,
            owner,
            digest=entry.digest if entry else "",
            path=entry.path if entry else "",
            records=records,
            failures=self._records.failures.get(key),
            unbound=self._unbound_of(key.gvc) if key.kind in PLACED else (),
            members=self._members(key.name) if key.kind is Kind.GVC else (),
            attempts=self._settings.retry.attempts,
        )

    def _unbound_of(self, gvc: str) -> tuple[str, ...]:
        if gvc not in self._unbound:
            bodies = self._bodies(Kind.GVC, gvc)
            places = locations_of(bodies[0], lambda: self._locations) if bodies else ()
            self._unbound[gvc] = tuple(place for place in places if place not in self._settings.locations)
        return self._unbound[gvc]

    @cached_property
    def _locations(self) -> list[dict[str, Any]]:
        return self._bodies(Kind.LOCATION)

    def _bodies(self, kind: Kind, name: str | None = None) -> list[dict[str, Any]]:
        return [msgspec.json.decode(record.body) for record in self._records.applied.items(kind, name=name)]

    def _members(self, gvc: str) -> tuple[Health, ...]:
        members = self._records.applied.get_many(self._records.applied.keys_of_gvc(gvc))
        return tuple(worst(record.health for record in records) for records in members.values())
