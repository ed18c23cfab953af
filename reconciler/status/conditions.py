"""Derives conditions from outcomes and errors; only this module decides what is ready, in progress or stalled."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.errors import ReconcilerError
from reconciler.model.key import Key
from reconciler.model.record import Failure, Health, Record
from reconciler.status.engine_state import CLOCK_JUMPED, NOT_ENFORCED, engine_condition_messages, message_of
from reconciler.status.rollup import worst

READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"
PLACED = "Placed"
SOURCE_REACHABLE = "SourceReachable"
SOURCE_STALE = "SourceStale"
STATUS_PUSHED = "StatusPushed"
STATUS_STALE = "StatusStale"
SETTINGS_LOADED = "SettingsLoaded"
SUSPENDED = "Suspended"
PINNED = "Pinned"
DISK_FULL = "DiskFull"

_MESSAGE_LENGTH = 500


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A condition of a resource or source: whether it holds, a CamelCase reason, and a message for people."""

    type: str
    status: bool
    reason: str
    message: str


class WaitReason(msgspec.Struct, frozen=True, gc=False):
    """Why a resource stays different from Git: it waits for an approval or a dependency, or it is protected.

    ``kept`` means that it stays this way: the resource is no longer in Git, and is not deleted.
    """

    reason: str
    message: str
    kept: bool = False


class DriftState(msgspec.Struct, frozen=True, gc=False):
    """A resource differs from what was applied at its locations; ``places`` describes how.

    ``fought``: it was healed too often, and is not healed again. ``healed``: it will be healed.
    """

    places: str
    fought: bool = False
    healed: bool = True


class ResourceFacts(msgspec.Struct, frozen=True, gc=False):
    """Everything that is known about one resource.

    ``digest`` is the desired one, empty if the resource is not in Git. ``unbound`` are the locations of its GVC that
    this host does not serve. ``members`` is the health of a GVC's resources. ``suspended`` names who suspended it. A
    failure is final after ``attempts`` tries (0: never).
    """

    key: Key
    source: str
    digest: str = ""
    path: str = ""
    records: tuple[Record, ...] = ()
    failures: tuple[Failure, ...] = ()
    wait: WaitReason | None = None
    astray: DriftState | None = None
    unbound: tuple[str, ...] = ()
    members: tuple[Health, ...] = ()
    suspended: str = ""
    attempts: int = 3

    @property
    def exists(self) -> bool:
        """Whether the resource is desired or still recorded."""
        return bool(self.digest or self.records)

    @property
    def health(self) -> Health:
        """The worst health of its locations and members."""
        return worst((*(record.health for record in self.records), *self.members))


def conditions(facts: ResourceFacts) -> tuple[Condition, ...]:
    """The conditions of a resource: always Ready, and other types only if they apply.

    Ready: every record has the desired digest and is Healthy or Recorded. Reconciling: more will happen without
    intervention. Stalled: it needs intervention. Placed is False if locations of the GVC have no engine here
    (docs/platform/fields.md#what-a-link-may-lead-to). NotEnforced: an engine cannot enforce everything that the
    resource specifies. ClockJumped: the clock was set on its host. Messages contain no times, and no counts except of
    replicas during a rollout, so that an unchanged state keeps its message.
    """
    if not facts.exists:
        return ()
    if facts.failures:
        found = _failed(facts)
    elif facts.wait is not None:
        found = _waiting(facts, facts.wait)
    elif not facts.digest:
        found = _at_work("Deleting", "no longer in Git; to be deleted")
    elif facts.astray is not None:
        found = _astray(facts.key, facts.astray)
    else:
        found = _wanted(facts)
    held = (Condition(SUSPENDED, True, SUSPENDED, truncate(facts.suspended)),) if facts.suspended else ()
    return (*found, *held, *_unplaced(facts), *_of_engines(facts.records))


def ready(facts: ResourceFacts) -> bool:
    """Whether the resource is applied as in Git, and healthy."""
    return any(condition.type == READY and condition.status for condition in conditions(facts))


def condition_from_error(kind: str, fault: ReconcilerError) -> Condition:
    """The condition ``kind``, with the status False because of ``fault``."""
    return Condition(kind, False, fault.reason, truncate(str(fault)))


def truncate(text: str) -> str:
    """``text`` on one line, with at most 500 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_LENGTH else line[: _MESSAGE_LENGTH - 1] + "…"


def _failed(facts: ResourceFacts) -> tuple[Condition, ...]:
    final = [failure for failure in facts.failures if _is_final(failure, facts.attempts)]
    first = (final or facts.failures)[0]
    place = f"at {first.location}: " if first.location else ""
    message = truncate(place + first.message)
    not_ready = Condition(READY, False, first.reason, message)
    return not_ready, Condition(STALLED if final else RECONCILING, True, first.reason, message)


def _is_final(failure: Failure, attempts: int) -> bool:
    return not failure.retry or (0 < attempts <= failure.attempts)


def _waiting(facts: ResourceFacts, wait: WaitReason) -> tuple[Condition, ...]:
    message = truncate(wait.message)
    if not wait.kept:
        return _at_work(wait.reason, message)
    if facts.health.is_good:
        return (Condition(READY, True, wait.reason, message),)
    return _by_health(facts)


def _astray(key: Key, astray: DriftState) -> tuple[Condition, ...]:
    if astray.fought:
        message = f"healed again and again, and left alone until: reconciler retry {key}; {astray.places}"
        return Condition(READY, False, "DriftConflict", message), Condition(STALLED, True, "DriftConflict", message)
    if astray.healed:
        return _at_work("Drifted", astray.places)
    return (Condition(READY, False, "Drifted", astray.places),)


def _wanted(facts: ResourceFacts) -> tuple[Condition, ...]:
    placed = [record for record in facts.records if record.location]
    if facts.unbound and not placed:
        return (Condition(READY, False, "LocationNotBound", _not_bound(facts.unbound)),)
    behind = [record.location for record in facts.records if record.digest != facts.digest]
    if not facts.records:
        return _at_work("Pending", "not applied yet")
    if behind:
        return _at_work("Pending", f"the latest change is not applied yet{_at(behind)}")
    return _by_health(facts)


def _by_health(facts: ResourceFacts) -> tuple[Condition, ...]:
    """Ready by the health that engines report, once the digests are equal."""
    own = worst(record.health for record in facts.records)
    places = [record.location for record in facts.records if record.health is own]
    if own is Health.HEALTHY:
        return (Condition(READY, True, "Applied", f"applied{_at(places)}"),)
    if own is Health.RECORDED:
        running = [record.location for record in facts.records if record.health is Health.HEALTHY]
        applied = f"applied{_at(running)}; " if running else ""
        return (
            Condition(READY, True, "Recorded", truncate(f"{applied}recorded only{_at(places)}: nothing runs there")),
        )
    if own in (Health.LOADING, Health.DELETING):
        return _at_work(str(own), truncate(f"{str(own).lower()}{_told(facts.records, own)}"))
    words = "health is not known" if own is Health.UNKNOWN else "not healthy"
    reason = f"Health{own}" if own is Health.UNKNOWN else str(own)
    return (Condition(READY, False, reason, truncate(words + _told(facts.records, own))),)


def _told(records: Iterable[Record], health: Health) -> str:
    """`` at here: 1 of 2 replicas updated, 0 available; there``: where that is so, and what engines say about it."""
    found = sorted((each.location, message_of(each.state)) for each in records if each.health is health)
    told = [f"{place}: {message}" if message else place for place, message in found if place]
    return f" at {('; ' if any(message for _, message in found) else ', ').join(told)}" if told else ""


def _of_engines(records: tuple[Record, ...]) -> tuple[Condition, ...]:
    return tuple(condition for kind in (NOT_ENFORCED, CLOCK_JUMPED) for condition in _held(records, kind))


def _held(records: tuple[Record, ...], kind: str) -> tuple[Condition, ...]:
    """The condition ``kind`` from the engines; messages are listed with their locations."""
    places: dict[str, list[str]] = {}
    for record in records:
        for message in engine_condition_messages(record.state, kind):
            places.setdefault(message, []).append(record.location)
    if not places:
        return ()
    told = "; ".join(f"at {', '.join(sorted(at))}: {message}" for message, at in sorted(places.items()))
    return (Condition(kind, True, kind, truncate(told)),)


def _at_work(reason: str, message: str) -> tuple[Condition, ...]:
    return Condition(READY, False, reason, message), Condition(RECONCILING, True, reason, message)


def _unplaced(facts: ResourceFacts) -> tuple[Condition, ...]:
    if not facts.unbound or not facts.digest:
        return ()
    return (Condition(PLACED, False, "LocationNotBound", _not_bound(facts.unbound)),)


def _not_bound(locations: Iterable[str]) -> str:
    return f"this host binds no location {', '.join(sorted(locations))}"


def _at(locations: Iterable[str]) -> str:
    names = ", ".join(sorted(filter(None, locations)))
    return f" at {names}" if names else ""
