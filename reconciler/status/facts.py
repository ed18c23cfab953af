"""Gathers everything that the records contain about a resource, as input for its conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from reconciler.engines.engine_state import SHOWN_BY_BODY
from reconciler.engines.plugin import RECORDED
from reconciler.model.key import PLACED, Key, Kind
from reconciler.model.record import Health, Record
from reconciler.planning.placement import locations_of
from reconciler.printable import truncate_text
from reconciler.records.sql import stored_row
from reconciler.records.store import Records
from reconciler.records.tables.desired import DesiredEntry
from reconciler.records.tables.drift import DriftRow
from reconciler.settings import Settings
from reconciler.status.conditions import DriftState, ResourceFacts, WaitReason
from reconciler.status.waiting import orphaned_by_settings, requests_on_hold_by, suspended_by, wait_reason


class FactsReader:
    """Facts by key; shared data (the locations of a GVC, whether anything failed) is read once.

    With ``source``, only what that source wants and owns is visible. Valid for one reading; create another one for the
    next.
    """

    def __init__(self, records: Records, settings: Settings, source: str = "") -> None:
        self._records = records
        self._settings = settings
        self._source = source
        self._sources = frozenset(source.name for source in settings.sources)
        self._failed = records.failures.count() > 0
        self._suspended = {suspension.target: suspension for suspension in records.suspensions.all()}
        self._on_hold = {traffic_hold.key: traffic_hold for traffic_hold in records.traffic_holds.all()}
        self._drifts: dict[str, list[DriftRow]] = {}
        for row in records.drifts.all():
            self._drifts.setdefault(row.key, []).append(row)
        self._places: dict[str, tuple[str, ...] | None] = {}
        self._expected: frozenset[str] = frozenset()
        self._entries: dict[str, DesiredEntry] = {}
        self._applied: Mapping[str, tuple[Record, ...]] = {}

    def expect(self, keys: Iterable[Key]) -> None:
        """Prefetch the records for the next calls of ``facts``; replaces the previous prefetch."""
        keys = list(keys)
        shown = {str(key) for key in keys if key.kind in SHOWN_BY_BODY}
        others = {str(key) for key in keys} - shown
        applied = self._records.applied
        records = applied.get_many(others, bodies=False) if others else {}
        self.expect_applied(others | shown, records | applied.get_many(shown) if shown else records)
        self._read_places({key.gvc for key in keys if key.kind in PLACED} - self._places.keys())

    def expect_applied(self, keys: Iterable[str], applied: Mapping[str, tuple[Record, ...]]) -> None:
        """As ``expect``, for a caller that has the applied records of ``keys``."""
        self._expected = frozenset(keys)
        self._entries = self._records.desired.get_many(self._expected)
        self._applied = applied

    def facts(
        self, key: Key, members: tuple[Health, ...] | None = None, records: tuple[Record, ...] | None = None
    ) -> ResourceFacts:
        """The facts on ``key``; ``exists`` is False if there are none.

        ``members`` is the health of a GVC's resources and ``records`` are its own, if the caller knows them; otherwise
        they are read.
        """
        entry = self._entry(key)
        if records is None:
            records = self._select_owned(key)
        digest = entry.digest if entry is not None else ""
        if members is None:
            members = self._records.applied.member_healths(key.name) if key.kind is Kind.GVC else ()
        if key.kind is Kind.GVC and self._is_recorded(key.name):
            members = (*members, Health.RECORDED)
        owner = entry.source if entry is not None else next((record.source for record in records), "")
        return ResourceFacts(
            key,
            owner or self._source,
            digest=digest,
            path=entry.path if entry is not None else "",
            records=records,
            failures=self._records.failures.get(key) if self._failed else (),
            wait=self._find_orphan_reason(owner, key) or self._wait(key, digest, records),
            drift=self._drift(key),
            unbound=self._unbound_of(key.gvc) if key.kind in PLACED else (),
            members=members,
            suspended=suspended_by(self._suspended[str(key)]) if str(key) in self._suspended else "",
            on_hold=requests_on_hold_by(self._on_hold[key]) if key in self._on_hold else "",
            attempts=self._settings.retry.attempts,
        )

    def _find_orphan_reason(self, owner: str, key: Key) -> WaitReason | None:
        return orphaned_by_settings(owner, key) if owner and owner not in self._sources else None

    def _entry(self, key: Key) -> DesiredEntry | None:
        name = str(key)
        entry = self._entries.get(name) if name in self._expected else self._records.desired.get(name)
        return entry if entry is not None and self._source in ("", entry.source) else None

    def _select_owned(self, key: Key) -> tuple[Record, ...]:
        name = str(key)
        records = self._applied.get(name, ()) if name in self._expected else self._records.applied.get(name)
        if not self._source or all(record.source == self._source for record in records):
            return records
        return tuple(record for record in records if record.source == self._source)

    def _wait(self, key: Key, digest: str, records: tuple[Record, ...]) -> WaitReason | None:
        is_current = records and all(record.digest == digest for record in records)
        if not is_current or any(self.has_left(key.gvc, record.location) for record in records):
            return wait_reason(self._records, key)
        waits = str(key) in self._drifts and (self._settings.approval == "always" or str(key) in self._suspended)
        return wait_reason(self._records, key) if waits else None

    def has_left(self, gvc: str, location: str) -> bool:
        """Whether ``gvc`` no longer has ``location``, so that resources there are to be deleted."""
        places = self._places_of(gvc) if location else None
        return places is not None and location not in places

    def _drift(self, key: Key) -> DriftState | None:
        rows = self._drifts.get(str(key), [])
        if not rows:
            return None
        from reconciler.planning.drift import describe_drift, parse_drift

        with stored_row("drifts", key):
            places = truncate_text("; ".join(describe_drift(parse_drift(row.packed)) for row in rows))
        return DriftState(places, any(row.in_conflict for row in rows), self._settings.drift.heal)

    def _unbound_of(self, gvc: str) -> tuple[str, ...]:
        return tuple(location for location in self._places_of(gvc) or () if location not in self._settings.locations)

    def _is_recorded(self, gvc: str) -> bool:
        """Whether ``gvc`` has a location at which nothing runs: its members there are Recorded."""
        bound = self._settings.locations
        return any(location in bound and bound[location].engine == RECORDED for location in self._places_of(gvc) or ())

    def _places_of(self, gvc: str) -> tuple[str, ...] | None:
        """Every location of ``gvc`` as applied; None if it is not applied."""
        if gvc not in self._places:
            self._read_places([gvc])
        return self._places[gvc]

    def _read_places(self, gvcs: Iterable[str]) -> None:
        keys = {gvc: Key(Kind.GVC, "", gvc) for gvc in gvcs}
        applied = self._records.applied.get_many(keys.values()) if keys else {}
        for gvc, key in keys.items():
            records = applied.get(str(key))
            self._places[gvc] = (
                locations_of(_decode_body(records[0]), lambda: self._locations, self._settings.org) if records else None
            )

    @cached_property
    def _locations(self) -> list[dict[str, Any]]:
        return [_decode_body(record) for record in self._records.applied.items(Kind.LOCATION)]


def _decode_body(record: Record) -> dict[str, Any]:
    with stored_row("applied", record.key):
        return msgspec.json.decode(record.body, type=dict[str, Any])
