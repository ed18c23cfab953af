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
from reconciler.engines.registry import engines_for
from reconciler.errors import EngineError, RecordsError, RefusedError
from reconciler.model.drift_policy import Ignore
from reconciler.model.key import Key
from reconciler.planning.drift import (
    Drift,
    DriftKind,
    ObservedState,
    describe_drift,
    drift_of,
    encode_drift,
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


async def scan_drift(
    settings: Settings, records: Records, engines: Mapping[str, Engine], only: Parts | None = None
) -> DriftScan:
    """Observe every location whose resources can drift; changes nothing. Raises RecordsError.

    ``only`` names locations, and resources there: without any, the location is observed as a whole.
    """
    places = [
        location for location, engine in engines.items() if engine.can_drift and (only is None or location in only)
    ]
    parts = {location: keys for location, keys in (only or {}).items() if keys and location in places}
    calls: list[EngineCall] = []
    answers = await asyncio.gather(
        *(_observe_location(location, engines[location], calls, parts.get(location)) for location in places)
    )
    drifts: list[tuple[Drift, str]] = []
    unseen, shown = {}, {}
    for location, answer in zip(places, answers, strict=True):
        if isinstance(answer, str):
            unseen[location] = answer
            continue
        try:
            drifts += await asyncio.to_thread(
                _compare_location, settings, records, location, answer, parts.get(location)
            )
            shown[location] = answer
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - nothing is concluded about this location; the others are compared
            bug = internal_error(error, f"drift at {location}")
            unseen[location] = f"{bug.reason}: {bug}"
    parts = {location: keys for location, keys in parts.items() if location in shown}
    seen = frozenset(shown.keys() - parts.keys())
    return DriftScan(sorted(drifts), seen, unseen, shown, tuple(calls), parts, only is None)


async def check_now(settings: Settings, records: Records, clock: Clock) -> DriftCheck:
    """Observe every location once and record nothing. Raises RefusedError if a location does not answer."""
    engines = engines_for(settings, records, clock, SecretStore(records, settings).read)
    drift_scan = await scan_drift(settings, records, engines)
    if drift_scan.unreachable:
        failures = "; ".join(f"{location}: {message}" for location, message in sorted(drift_scan.unreachable.items()))
        raise RefusedError(f"not every location can be observed: {failures}")
    return DriftCheck(clock.now() if drift_scan.seen else None, rows_of(records, drift_scan, clock.now()))


def rows_of(records: Records, scan: DriftScan, now: float) -> list[DriftRow]:
    """``scan_drift`` as rows, with what is already recorded about each drift."""
    drift_rows = {(row.key, row.location): row for row in records.drifts.all()}
    return [
        _make_row(drift, source, drift_rows.get((str(drift.key), drift.location)), now) for drift, source in scan.drifts
    ]


def _make_row(drift: Drift, source: str, old: DriftRow | None, now: float) -> DriftRow:
    since, in_conflict = (old.since, old.in_conflict) if old is not None else (now, False)
    return DriftRow(str(drift.key), drift.location, source, since, encode_drift(drift), in_conflict)


async def _observe_location(
    location: str, engine: Engine, calls: list[EngineCall], keys: frozenset[Key] | None
) -> list[Observation] | str:
    """The observed resources, of ``keys`` or all, or why that failed, after which the location counts as unknown."""
    try:
        async with asyncio.timeout(OBSERVE_TIMEOUT_SECONDS):
            if keys is not None and isinstance(engine, SupportsWatch):
                seen = await engine.observe_some(keys)
            else:
                seen = await engine.observe()
        calls.append(EngineCall(location, "observe"))
        return seen
    except EngineError as error:
        calls.append(EngineCall(location, "observe", str(error.reason)))
        return f"{error.reason}: {error}"
    except TimeoutError:
        calls.append(EngineCall(location, "observe", str(Reason.LOCATION_UNREACHABLE)))
        return f"no answer in {OBSERVE_TIMEOUT_SECONDS:.0f} s"
    except RecordsError:
        raise
    except Exception as error:  # noqa: BLE001 - an engine's bug must not take the daemon down
        bug = internal_error(error, f"engine {engine.name}")
        calls.append(EngineCall(location, "observe", str(bug.reason)))
        return f"{bug.reason}: {bug}"


def _compare_location(
    settings: Settings, records: Records, location: str, seen: Iterable[Observation], keys: frozenset[Key] | None
) -> list[tuple[Drift, str]]:
    there = {
        str(observation.key): observation
        for observation in seen
        if observation.location == location and (keys is None or observation.key in keys)
    }
    suspects: dict[str, Observation | None] = {}
    for key, digest, version in _recorded_at(records, location, settings.locations[location].engine, keys):
        observed = there.pop(key, None)
        if observed is None or observed.digest != digest or observed.version != version:
            suspects[key] = observed
    ignores = settings.drift.ignore
    return [
        *_find_drifts(records, location, suspects, ignores),
        *(_find_unexpected_resources(settings, records, there.values(), ignores) if there else ()),
    ]


def _recorded_at(records: Records, location: str, engine: str, keys: frozenset[Key] | None) -> Iterator[VersionRow]:
    """What ``engine`` has at ``location``, of ``keys`` or all."""
    if keys is None:
        yield from records.applied.scan_at(location, engine)
        return
    for key, found in records.applied.get_many(keys, bodies=False).items():
        at_place = (record for record in found if (record.location, record.engine) == (location, engine))
        yield from ((key, record.digest, record.version) for record in at_place)


def _find_drifts(
    records: Records, location: str, suspects: Mapping[str, Observation | None], ignores: Sequence[Ignore]
) -> Iterator[tuple[Drift, str]]:
    """Drifts of resources that are applied as Git wants them; a change in progress is no drift."""
    for key, candidates in records.applied.get_many(suspects).items():
        record = next(record for record in candidates if record.location == location)
        entry = records.desired.get(key)
        if entry is None or entry.digest != record.digest:
            continue
        drift = drift_of(record, _observed_state(suspects[key]))
        drift = without_ignored(drift, record.body, ignores) if drift is not None else None
        if drift is not None:
            yield drift, record.source


def _observed_state(seen: Observation | None) -> ObservedState | None:
    return None if seen is None else ObservedState(seen.digest, seen.version, seen.body)


def _find_unexpected_resources(
    settings: Settings, records: Records, seen: Iterable[Observation], ignores: Sequence[Ignore]
) -> Iterator[tuple[Drift, str]]:
    """Unexpected resources: with our label, but neither recorded nor in Git. Requires that all sources have been read.

    After a loss of the records every resource would look unexpected, so these are reported and never deleted.
    """
    if {source.name for source in settings.sources} - set(records.sources.names()):
        return
    for observation in seen:
        if records.desired.get(observation.key) is None and not records.applied.exists(observation.key):
            drift = without_ignored(
                Drift(observation.key, observation.location, DriftKind.UNEXPECTED, observation.digest),
                observation.body,
                ignores,
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

    def notice(self, location: str, keys: frozenset[Key]) -> None:
        """Resources may have changed at ``location``; without ``keys``, any of them may have."""
        former = self._noticed.get(location)
        self._noticed[location] = keys if former is None else former | keys if former and keys else frozenset()

    async def check(self) -> set[str]:
        """Scan all locations and record the drifts; returns the names of the sources that have something to heal."""
        self._noticed = {}
        return await self._check(None)

    async def check_noticed(self) -> set[str]:
        """As ``check``, of what was noticed since the last one. A location that is not known yet is observed whole."""
        noticed, self._noticed = self._noticed, {}
        unknown = {
            location for location in noticed if location in self.unreachable or not self._notes.has_observed(location)
        }
        return await self._check(
            {location: frozenset() if location in unknown else noticed[location] for location in noticed}
        )

    async def _check(self, only: Parts | None) -> set[str]:
        drift_scan = await scan_drift(self._settings, self._records, self.engines, only)
        self.calls.update(drift_scan.calls)
        self._append_location_events(drift_scan)
        # A single failure of a location that was observed a moment ago says nothing about what runs there.
        lost = {
            location: why
            for location, why in drift_scan.unreachable.items()
            if location in self.unreachable or not self._notes.has_observed(location)
        }
        others = {
            location: why for location, why in self.unreachable.items() if only is not None and location not in only
        }
        self.unreachable = others | drift_scan.unreachable
        drifting = {location: engine for location, engine in self.engines.items() if engine.can_drift}
        reachable = {location: engine for location, engine in drifting.items() if location not in self.unreachable}
        self.health_changed = await asyncio.to_thread(
            self._notes.record, drift_scan.answers, reachable, drift_scan.parts
        )
        if lost:
            self.health_changed |= await asyncio.to_thread(self._notes.record_unknown, lost)
        if not (drift_scan.seen or drift_scan.parts) and not self._records.drifts.all():
            return set()
        return await asyncio.to_thread(self._keep, drift_scan)

    def _keep(self, scan: DriftScan) -> set[str]:
        records, now = self._records, self._clock.now()
        drift_rows = {(row.key, row.location): row for row in records.drifts.all()}
        changed: list[DriftRow] = []
        events: list[NewEvent] = []
        to_heal: set[str] = set()
        for drift, source in scan.drifts:
            old = drift_rows.pop((str(drift.key), drift.location), None)
            row = self._judge(drift, _make_row(drift, source, old, now))
            if row != old:
                changed.append(row)
                events += self._drift_events(drift, row, old)
            if self._worth_a_run(row, old):
                to_heal.add(source)
        over = [row for row in drift_rows.values() if scan.covers(row.key, row.location)]
        events += [
            NewEvent(row.key, Reason.DRIFT_RESOLVED, f"nothing differs{location_suffix(row.location)}", row.location)
            for row in over
        ]
        with records.transaction() if changed or over else records.repeatable():
            if scan.seen:
                records.drifts.check(now)
            records.drifts.put_many(changed)
            for row in over:
                records.drifts.remove(row.key, row.location)
            for row in (drift_row for drift_row in (*changed, *over) if drift_row.source):
                records.status_queue.add_many(row.source, [row.key])
            self._append_events(events)
        return to_heal

    def _append_location_events(self, scan: DriftScan) -> None:
        """Append events for locations that became unreachable, and for those that are reachable again."""
        lost = [(location, why) for location, why in scan.unreachable.items() if location not in self.unreachable]
        events = [NewEvent(f"location/{location}", Reason.LOCATION_UNREACHABLE, why) for location, why in lost]
        back = sorted(self.unreachable.keys() & scan.seen)
        events += [
            NewEvent(f"location/{location}", Reason.LOCATION_REACHABLE, "its engine answers again") for location in back
        ]
        if events:
            self._append_events(events)

    def _judge(self, drift: Drift, row: DriftRow) -> DriftRow:
        """``row``, marked as ``in_conflict`` if it was healed too often."""
        if row.in_conflict or not row.source or not self._settings.drift.heal:
            return row
        record = self._records.applied.at(drift.key, drift.location)
        assert record is not None
        healed = self._records.heal_counts.count(drift.key, drift.location, record.digest, self._clock.expiry())
        return msgspec.structs.replace(row, in_conflict=healed >= self._settings.drift.most_heals)

    def _drift_events(self, drift: Drift, row: DriftRow, old: DriftRow | None) -> Iterator[NewEvent]:
        if old is None or old.packed != row.packed:
            yield NewEvent(row.key, Reason.DRIFT_DETECTED, describe_drift(drift), row.location)
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
        failed = any(failure.location == row.location for failure in self._records.failures.get(row.key))
        return not (waits or failed or self._records.suspensions.get(row.key))
