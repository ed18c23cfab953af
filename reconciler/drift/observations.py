"""Records observations between two steps: health and state of resources, and events of engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from reconciler.engines.domain_status import DomainReport, update_domain_state
from reconciler.engines.engine_state import engine_conditions, health_with_conditions, message_of
from reconciler.engines.protocol import Engine, EngineEvent, Observation, SupportsDomains, SupportsLifecycle
from reconciler.model.key import Key, Kind
from reconciler.model.record import Health, Record
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.events import NewEvent
from reconciler.settings import Settings

_HEALTH_NEWS = {
    Health.HEALTHY: (Reason.HEALTHY, "healthy"),
    Health.UNHEALTHY: (Reason.UNHEALTHY, "not healthy"),
}
"""Health values whose beginning is an event."""
_CONDITION_NEWS = {
    ConditionType.CERTIFICATE_EXPIRING: (Reason.CERTIFICATE_EXPIRING, Reason.CERTIFICATE_RENEWED),
    ConditionType.VOLUME_NEARLY_FULL: (Reason.VOLUME_NEARLY_FULL, Reason.VOLUME_HAS_ROOM),
}
"""Conditions of engines whose beginning and end are events, though the resource stays healthy."""


class ObservationRecorder:
    """Updates the records from observations. A repeated observation writes nothing."""

    def __init__(self, records: Records, settings: Settings) -> None:
        self._records = records
        self._settings = settings
        self._known: dict[str, dict[str, Observation]] = {}
        self._unknown: set[str] = set()
        self._domains: set[Key] | None = None

    def record(
        self,
        answers: Mapping[str, Sequence[Observation]],
        engines: Mapping[str, Engine],
        parts: Mapping[str, frozenset[Key]],
    ) -> bool:
        """Record changed observations; returns whether the health of any resource changed, or any resource is gone.

        ``engines`` are all that can be observed; what they report about domains is recorded. Where ``parts`` has keys
        for a location, only these were asked for.

        Only events require a sync to disk: health is observed again after a power cut. Raises RecordsError.
        """
        self._unknown -= answers.keys()
        turned = self._record_domains(engines)
        gone = turned | any(
            self._is_any_gone(location, seen, parts.get(location)) for location, seen in answers.items()
        )
        news = [(answer, event) for answer in answers for event in self._news(engines[answer])]
        fresh = [
            observation
            for location, seen in answers.items()
            for observation in self._fresh(location, seen, parts.get(location))
        ]
        if not (news or fresh):
            return gone
        records = self._records
        many = records.applied.get_many({observation.key for observation in fresh}, bodies=False)
        turned = gone
        with records.transaction() if news else records.repeatable():
            events = [NewEvent(event.key, event.reason, event.message, location) for location, event in news]
            for seen in fresh:
                for record in many.get(str(seen.key), ()):
                    if _is_of(record, seen):
                        turned |= record.health is not _health_of(seen)
                        self._write(record, _health_of(seen), seen.state)
                        events += _list_events(record, _health_of(seen), seen.state)
            records.events.append_many(events)
            records.events.trim(self._settings.events.keep)
        return turned

    def has_observed(self, location: str) -> bool:
        """Whether the health that is recorded at ``location`` was observed by this process."""
        return location in self._known

    def record_unknown(self, unreachable: Mapping[str, str]) -> bool:
        """Record that nothing is known of the locations ``unreachable`` (location → reason); returns if that is news.

        What was healthy may be dead. Raises RecordsError.
        """
        # Resources without a location need none to be reached.
        records, lost = self._records, (unreachable.keys() & self._settings.locations.keys()) - self._unknown
        self._unknown |= lost
        affected = [
            record
            for location in sorted(lost)
            for record in records.applied.items_at(location, self._settings.locations[location].engine)
            # An observation without a state would not be recorded when the location is back.
            if record.health is not Health.UNKNOWN and record.state != b"{}"
        ]
        for location in lost:
            self._known.pop(location, None)
        if affected:
            with records.repeatable():
                for record in affected:
                    state = _unknown_state(
                        record.state, f"the location cannot be observed: {unreachable[record.location]}"
                    )
                    records.applied.update_seen(record.key, record.location, Health.UNKNOWN, state)
                    records.status_queue.add_many(record.source, [record.key])
        return bool(affected)

    def _record_domains(self, engines: Mapping[str, Engine]) -> bool:
        """Record what the locations of ``engines`` report about domains; whether the health of any changed.

        At other locations nothing is known.

        Domains that nothing is reported about any more are compared once; the first time all with a former report.
        """
        reported: dict[Key, list[DomainReport]] = {}
        unknown = self._settings.locations.keys() - engines.keys()
        for location, engine in engines.items():
            reports = engine.domains() if isinstance(engine, SupportsDomains) else {}
            if reports is None:
                unknown.add(location)
                continue
            for key, report in reports.items():
                reported.setdefault(key, []).append(report)
        if self._domains is None:
            self._domains = set(map(Key.parse, self._records.applied.keys_with_state(Kind.DOMAIN)))
        keys, self._domains = reported.keys() | self._domains, set(reported)
        recorded = self._records.applied.get_many(keys, bodies=False).values() if keys else ()
        changed = [
            (record, state)
            for same in recorded
            for record in same
            if (state := update_domain_state(record.state, reported.get(record.key, ()), unknown)) != record.state
        ]
        if not changed:
            return False
        # What runs nowhere by itself is as healthy as what is reported about it.
        found_health = {str(record.key): health_with_conditions(Health.HEALTHY, state) for record, state in changed}
        with self._records.repeatable():
            events = list[NewEvent]()
            for record, state in changed:
                self._write(record, found_health[str(record.key)], state)
                events += _list_events(record, found_health[str(record.key)], state)
            self._records.events.append_many(events)
        return any(record.health is not found_health[str(record.key)] for record, _ in changed)

    def _is_any_gone(self, location: str, answer: Sequence[Observation], part: frozenset[Key] | None) -> bool:
        keys = self._known.get(location, {}).keys()
        asked = keys if part is None else keys & set(map(str, part))
        return bool(asked - {str(observation.key) for observation in answer})

    def _fresh(self, location: str, answer: Sequence[Observation], part: frozenset[Key] | None) -> list[Observation]:
        """New or changed observations; those of resources without a record yet count as new every time."""
        recorded = self._known.setdefault(location, {})
        fresh = [observation for observation in answer if recorded.get(str(observation.key)) != observation]
        there = {
            key: observation
            for observation in answer
            if (key := str(observation.key)) in recorded or self._records.applied.exists(key)
        }
        # What was not asked for stays, and costs nothing: there may be many of it.
        asked = recorded.keys() if part is None else set(map(str, part))
        for key in asked - there.keys():
            recorded.pop(key, None)
        recorded.update(there)
        return fresh

    def _news(self, engine: Engine) -> list[EngineEvent]:
        return engine.news() if isinstance(engine, SupportsLifecycle) else []

    def _write(self, record: Record, health: Health, state: bytes) -> None:
        self._records.applied.update_seen(record.key, record.location, health, state)
        self._records.status_queue.add_many(record.source, [record.key])


def _is_of(record: Record, seen: Observation) -> bool:
    """Whether ``seen`` differs from the record of the same version; an observation without a state changes nothing."""
    same = (record.location, record.digest, record.version) == (seen.location, seen.digest, seen.version)
    return same and (record.health, record.state) != (_health_of(seen), seen.state) and seen.state != b"{}"


def _health_of(seen: Observation) -> Health:
    return health_with_conditions(seen.health, seen.state)


def _unknown_state(state: bytes, message: str) -> bytes:
    """``state``, the JSON of a deployment or a volume set, as far as it does not claim that anything runs."""
    content = msgspec.json.decode(state)
    content["status"] = {**content.get("status", {}), "message": message}
    if "ready" in content["status"]:
        content["status"]["ready"] = False
    if "workload" in content:
        content["workload"] = {**content["workload"], "health": str(Health.UNKNOWN)}
    return msgspec.json.encode(content)


def _list_events(record: Record, health: Health, state: bytes) -> Iterator[NewEvent]:
    yield from _health_events(record, health, state)
    yield from _condition_events(record, state)


def _condition_events(record: Record, state: bytes) -> Iterator[NewEvent]:
    """An event for each condition that begins or ends; another message of the same one is none."""
    before, after = (
        {one.type: one for one in engine_conditions(one_state) if one.type in _CONDITION_NEWS}
        for one_state in (record.state, state)
    )
    suffix = f" at {record.location}" if record.location else ""
    for kind, (begins, ends) in _CONDITION_NEWS.items():
        if kind in after and kind not in before:
            yield NewEvent(record.key, begins, after[kind].message, record.location)
        elif kind in before and kind not in after:
            yield NewEvent(record.key, ends, f"no longer{suffix}: {before[kind].message}", record.location)


def _health_events(record: Record, health: Health, state: bytes) -> Iterator[NewEvent]:
    if record.health is health or health not in _HEALTH_NEWS:
        return
    if record.health is Health.UNKNOWN and health is Health.HEALTHY:
        return  # a location that is back is one event
    reason, word = _HEALTH_NEWS[health]
    message = message_of(state)
    suffix = f" at {record.location}" if record.location else ""
    yield NewEvent(record.key, reason, f"{word}{suffix}" + (f": {message}" if message else ""), record.location)
