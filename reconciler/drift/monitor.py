"""Detects changes made outside of reconciler by observing the locations, and records them for the next plan."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from reconciler.bugs import internal_error
from reconciler.clock import Clock
from reconciler.drift.observations import ObservationRecorder
from reconciler.engines.calls import EngineCall
from reconciler.engines.protocol import Engine, Observation, SupportsWatch
from reconciler.engines.registry import make_engines
from reconciler.errors import EngineError, RecordsError, RefusedError
from reconciler.model.drift_policy import Ignore
from reconciler.model.key import Key
from reconciler.planning.drift import (
    Drift,
    DriftKind,
    ObservedState,
    describe,
    drift_of,
    encode,
    location_suffix,
    without_ignored,
)
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.records.tables.applied import VersionRow
from reconciler.records.tables.drift import DriftCheck, DriftRow
from reconciler.records.tables.events import NewEvent
from reconciler.secrets.store import SecretStore
from reconciler.settings import Settings

OBSERVE_TIMEOUT_SECONDS = 60.0
"""Seconds that an engine may take to observe its location."""


Parts = Mapping[str, frozenset[Key]]
"""Resources by location."""

MAX_EVENTS = 100
"""The most events of one scan; of the rest only the number is reported."""


class DriftScan(msgspec.Struct, frozen=True):
    """The drifts found by a scan, each with the source that owns it (``""``: none).

    ``seen`` are the observed locations, ``unreachable`` the others, each with the reason; ``answers`` contains what
    each location returned. ``parts`` are the resources that were observed where not all were. Of a scan that is not
    ``complete``, nothing follows for other locations.
    """

    drifts: list[tuple[Drift, str]]
    seen: frozenset[str]
    unreachable: dict[str, str]
    answers: dict[str, list[Observation]] = {}
    calls: tuple[EngineCall, ...] = ()
    parts: Parts = {}
    complete: bool = True

    def covers(self, key: str, location: str) -> bool:
        """Whether a drift of ``key`` at ``location`` that was not found is over."""
        if location in self.parts:
            return Key.parse(key) in self.parts[location]
        return location not in self.unreachable if self.complete else location in self.seen


async def scan(
    settings: Settings, records: Records, engines: Mapping[str, Engine], only: Parts | None = None
) -> DriftScan:
    """Observe every location whose resources can drift; changes nothing. Raises RecordsError.

    ``only`` names locations, and resources there: without any, the location is observed as a whole.
    """
    places = [place for place, engine in engines.items() if engine.can_drift and (only is None or place in only)]
    parts = {place: keys for place, keys in (only or {}).items() if keys and place in places}
    calls: list[EngineCall] = []
    answers = await asyncio.gather(*(_observed(place, engines[place], calls, parts.get(place)) for place in places))
    found: list[tuple[Drift, str]] = []
    unseen, shown = {}, {}
    for place, answer in zip(places, answers, strict=True):
        if isinstance(answer, str):
            unseen[place] = answer
            continue
        try:
            found += await asyncio.to_thread(_compared, settings, records, place, answer, parts.get(place))
            shown[place] = answer
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - nothing is concluded about this location; the others are compared
            bug = internal_error(error, f"drift at {place}")
            unseen[place] = f"{bug.reason}: {bug}"
    parts = {place: keys for place, keys in parts.items() if place in shown}
    seen = frozenset(shown.keys() - parts.keys())
    return DriftScan(sorted(found), seen, unseen, shown, tuple(calls), parts, only is None)


async def check_now(settings: Settings, records: Records, clock: Clock) -> DriftCheck:
    """Observe every location once and record nothing. Raises RefusedError if a location does not answer."""
    engines = make_engines(settings, records, clock, SecretStore(records, settings).read)
    found = await scan(settings, records, engines)
    if found.unreachable:
        failures = "; ".join(f"{place}: {message}" for place, message in sorted(found.unreachable.items()))
        raise RefusedError(f"not every location can be observed: {failures}")
    return DriftCheck(clock.now() if found.seen else None, rows_of(records, found, clock.now()))


def rows_of(records: Records, found: DriftScan, now: float) -> list[DriftRow]:
    """``found`` as rows, with what is already recorded about each drift."""
    known = {(row.key, row.location): row for row in records.drifts.all()}
    return [_row(drift, source, known.get((str(drift.key), drift.location)), now) for drift, source in found.drifts]


def _row(drift: Drift, source: str, old: DriftRow | None, now: float) -> DriftRow:
    since, in_conflict = (old.since, old.in_conflict) if old is not None else (now, False)
    return DriftRow(str(drift.key), drift.location, source, since, encode(drift), in_conflict)


async def _observed(
    place: str, engine: Engine, calls: list[EngineCall], keys: frozenset[Key] | None
) -> list[Observation] | str:
    """The observed resources, of ``keys`` or all, or why that failed, after which the location counts as unknown."""
    try:
        async with asyncio.timeout(OBSERVE_TIMEOUT_SECONDS):
            if keys is not None and isinstance(engine, SupportsWatch):
                seen = await engine.observe_some(keys)
            else:
                seen = await engine.observe()
        calls.append(EngineCall(place, "observe"))
        return seen
    except EngineError as error:
        calls.append(EngineCall(place, "observe", str(error.reason)))
        return f"{error.reason}: {error}"
    except TimeoutError:
        calls.append(EngineCall(place, "observe", str(Reason.LOCATION_UNREACHABLE)))
        return f"no answer in {OBSERVE_TIMEOUT_SECONDS:.0f} s"
    except RecordsError:
        raise
    except Exception as error:  # noqa: BLE001 - an engine's bug must not take the daemon down
        bug = internal_error(error, f"engine {engine.name}")
        calls.append(EngineCall(place, "observe", str(bug.reason)))
        return f"{bug.reason}: {bug}"


def _compared(
    settings: Settings, records: Records, place: str, seen: Iterable[Observation], keys: frozenset[Key] | None
) -> list[tuple[Drift, str]]:
    there = {str(each.key): each for each in seen if each.location == place and (keys is None or each.key in keys)}
    suspects: dict[str, Observation | None] = {}
    for key, digest, version in _list_recorded(records, place, settings.locations[place].engine, keys):
        each = there.pop(key, None)
        if each is None or each.digest != digest or each.version != version:
            suspects[key] = each
    ignores = settings.drift.ignore
    return [
        *_drifted(records, place, suspects, ignores),
        *(_unmanaged(settings, records, there.values(), ignores) if there else ()),
    ]


def _list_recorded(records: Records, place: str, engine: str, keys: frozenset[Key] | None) -> Iterator[VersionRow]:
    """What ``engine`` has at ``place``, of ``keys`` or all."""
    if keys is None:
        yield from records.applied.scan_at(place, engine)
        return
    for key, found in records.applied.get_many(keys, bodies=False).items():
        at_place = (record for record in found if (record.location, record.engine) == (place, engine))
        yield from ((key, record.digest, record.version) for record in at_place)


def _drifted(
    records: Records, place: str, suspects: Mapping[str, Observation | None], ignores: Sequence[Ignore]
) -> Iterator[tuple[Drift, str]]:
    """Drifts of resources that are applied as Git wants them; a change in progress is no drift."""
    for key, found in records.applied.get_many(suspects).items():
        record = next(each for each in found if each.location == place)
        wanted = records.desired.get(key)
        if wanted is None or wanted.digest != record.digest:
            continue
        drift = drift_of(record, _observed_state(suspects[key]))
        drift = without_ignored(drift, record.body, ignores) if drift is not None else None
        if drift is not None:
            yield drift, record.source


def _observed_state(seen: Observation | None) -> ObservedState | None:
    return None if seen is None else ObservedState(seen.digest, seen.version, seen.body)


def _unmanaged(
    settings: Settings, records: Records, seen: Iterable[Observation], ignores: Sequence[Ignore]
) -> Iterator[tuple[Drift, str]]:
    """Unexpected resources: with our label, but neither recorded nor in Git. Requires that all sources have been read.

    After a loss of the records every resource would look unexpected, so these are reported and never deleted.
    """
    if {source.name for source in settings.sources} - set(records.sources.names()):
        return
    for each in seen:
        if records.desired.get(each.key) is None and not records.applied.exists(each.key):
            drift = without_ignored(
                Drift(each.key, each.location, DriftKind.UNEXPECTED, each.digest), each.body, ignores
            )
            if drift is not None:
                yield drift, ""


class DriftMonitor:
    """Records the drifts of the last scan. Every method raises RecordsError."""

    def __init__(self, settings: Settings, records: Records, clock: Clock, engines: Mapping[str, Engine]) -> None:
        self._settings = settings
        self._records = records
        self._clock = clock
        self.engines = engines
        self.unreachable: dict[str, str] = {}
        """Locations that the last scan could not observe, each with the reason."""
        self.health_changed = False
        """Whether the last scan found any change of health."""
        self.calls: Counter[EngineCall] = Counter()
        self._notes = ObservationRecorder(records, settings)
        self._noticed: dict[str, frozenset[Key]] = {}

    def notice(self, place: str, keys: frozenset[Key]) -> None:
        """Resources may have changed at ``place``; without ``keys``, any of them may have."""
        known = self._noticed.get(place)
        self._noticed[place] = keys if known is None else known | keys if known and keys else frozenset()

    async def check(self) -> set[str]:
        """Scan all locations and record the drifts; returns the names of the sources that have something to heal."""
        self._noticed = {}
        return await self._check(None)

    async def check_noticed(self) -> set[str]:
        """As ``check``, of what was noticed since the last one. A location that is not known yet is observed whole."""
        noticed, self._noticed = self._noticed, {}
        unknown = {place for place in noticed if place in self.unreachable or not self._notes.has_observed(place)}
        return await self._check({place: frozenset() if place in unknown else noticed[place] for place in noticed})

    async def _check(self, only: Parts | None) -> set[str]:
        found = await scan(self._settings, self._records, self.engines, only)
        self.calls.update(found.calls)
        self._append_location_events(found)
        # A single failure of a location that was observed a moment ago says nothing about what runs there.
        lost = {
            place: why
            for place, why in found.unreachable.items()
            if place in self.unreachable or not self._notes.has_observed(place)
        }
        others = {place: why for place, why in self.unreachable.items() if only is not None and place not in only}
        self.unreachable = others | found.unreachable
        drifting = {place: engine for place, engine in self.engines.items() if engine.can_drift}
        reachable = {place: engine for place, engine in drifting.items() if place not in self.unreachable}
        self.health_changed = await asyncio.to_thread(self._notes.record, found.answers, reachable, found.parts)
        if lost:
            self.health_changed |= await asyncio.to_thread(self._notes.record_unknown, lost)
        if not (found.seen or found.parts) and not self._records.drifts.all():
            return set()
        return await asyncio.to_thread(self._keep, found)

    def _keep(self, found: DriftScan) -> set[str]:
        records, now = self._records, self._clock.now()
        known = {(row.key, row.location): row for row in records.drifts.all()}
        changed: list[DriftRow] = []
        events: list[NewEvent] = []
        to_heal: set[str] = set()
        for drift, source in found.drifts:
            old = known.pop((str(drift.key), drift.location), None)
            row = self._judged(drift, _row(drift, source, old, now))
            if row != old:
                changed.append(row)
                events += self._drift_events(drift, row, old)
            if self._worth_a_run(row, old):
                to_heal.add(source)
        over = [row for row in known.values() if found.covers(row.key, row.location)]
        events += [
            NewEvent(row.key, Reason.DRIFT_RESOLVED, f"nothing differs{location_suffix(row.location)}", row.location)
            for row in over
        ]
        with records.transaction() if changed or over else records.repeatable():
            if found.seen:
                records.drifts.check(now)
            records.drifts.put_many(changed)
            for row in over:
                records.drifts.remove(row.key, row.location)
            for row in (each for each in (*changed, *over) if each.source):
                records.status_queue.add_many(row.source, [row.key])
            self._append_events(events)
        return to_heal

    def _append_location_events(self, found: DriftScan) -> None:
        """Append events for locations that became unreachable, and for those that are reachable again."""
        lost = [(place, why) for place, why in found.unreachable.items() if place not in self.unreachable]
        events = [NewEvent(f"location/{place}", Reason.LOCATION_UNREACHABLE, why) for place, why in lost]
        back = sorted(self.unreachable.keys() & found.seen)
        events += [
            NewEvent(f"location/{place}", Reason.LOCATION_REACHABLE, "its engine answers again") for place in back
        ]
        if events:
            self._append_events(events)

    def _judged(self, drift: Drift, row: DriftRow) -> DriftRow:
        """``row``, marked as ``in_conflict`` if it was healed too often."""
        if row.in_conflict or not row.source or not self._settings.drift.heal:
            return row
        record = self._records.applied.at(drift.key, drift.location)
        assert record is not None
        healed = self._records.heal_counts.count(drift.key, drift.location, record.digest, self._clock.expiry())
        return msgspec.structs.replace(row, in_conflict=healed >= self._settings.drift.most_heals)

    def _drift_events(self, drift: Drift, row: DriftRow, old: DriftRow | None) -> Iterator[NewEvent]:
        if old is None or old.packed != row.packed:
            yield NewEvent(row.key, Reason.DRIFT_DETECTED, describe(drift), row.location)
        if row.in_conflict and (old is None or not old.in_conflict):
            often = f"healed {self._settings.drift.most_heals} times within an hour and changed again"
            message = f"{often}; it is left alone until: reconciler retry {row.key}"
            yield NewEvent(row.key, Reason.DRIFT_CONFLICT, message, row.location)

    def _append_events(self, events: list[NewEvent]) -> None:
        """Append the first of ``events`` and the number of the rest: a lost location causes thousands."""
        more = len(events) - MAX_EVENTS
        first = events[:MAX_EVENTS]
        if more > 0:
            first.append(NewEvent("", Reason.DRIFT_DETECTED, f"and {more} more; see: reconciler drift"))
        self._records.events.append_many(first)
        if first:
            self._records.events.trim(self._settings.events.keep)

    def _worth_a_run(self, row: DriftRow, old: DriftRow | None) -> bool:
        """Whether a run can heal it now: not if it waits for an approval, or if a failed step waits for its retry."""
        if not row.source or row.in_conflict or not self._settings.drift.heal:
            return False
        waits = self._settings.approval == "always" and row == old
        failed = any(each.location == row.location for each in self._records.failures.get(row.key))
        return not (waits or failed or self._records.suspensions.get(row.key))
