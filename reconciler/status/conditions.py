"""Derives conditions from outcomes and errors; only this module decides what is ready, in progress or stalled."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.engines.engine_state import message_of, record_conditions
from reconciler.errors import ReconcilerError
from reconciler.model.key import Key
from reconciler.model.record import Failure, Health, Record
from reconciler.printable import truncate_text
from reconciler.reasons import ConditionType, Reason
from reconciler.records.tables.conditions import Condition
from reconciler.status.rollup import find_worst_health


class WaitReason(msgspec.Struct, frozen=True, gc=False):
    """Why a resource stays different from Git: it waits for an approval or a dependency, or it is protected.

    ``retained`` means that the resource is no longer in Git and is never deleted.
    """

    reason: Reason
    message: str
    retained: bool = False


class DriftState(msgspec.Struct, frozen=True, gc=False):
    """A resource differs from what was applied at its locations; ``places`` describes how.

    ``in_conflict``: it was healed too often, and is not healed again. ``healed``: it will be healed.
    """

    places: str
    in_conflict: bool = False
    healed: bool = True


class ResourceFacts(msgspec.Struct, frozen=True, gc=False):
    """Everything that is known about one resource.

    ``digest`` is the desired one, empty if the resource is not in Git. ``unbound`` are the locations of its GVC that
    this host does not serve. ``members`` is the health of a GVC's resources. ``suspended`` names who suspended it,
    ``on_hold`` who holds its requests. A failure is final after ``attempts`` tries (0: never).
    """

    key: Key
    source: str
    digest: str = ""
    path: str = ""
    records: tuple[Record, ...] = ()
    failures: tuple[Failure, ...] = ()
    wait: WaitReason | None = None
    drift: DriftState | None = None
    unbound: tuple[str, ...] = ()
    members: tuple[Health, ...] = ()
    suspended: str = ""
    on_hold: str = ""
    attempts: int = 3

    @property
    def exists(self) -> bool:
        """Whether the resource is desired or still recorded."""
        return bool(self.digest or self.records)

    @property
    def health(self) -> Health:
        """The worst health of its locations and members."""
        return find_worst_health((*(record.health for record in self.records), *self.members))


def compute_conditions(facts: ResourceFacts) -> tuple[Condition, ...]:
    """The conditions of a resource: always Ready, and other types only if they apply.

    Ready: every record has the desired digest and is Healthy or Recorded. Reconciling: more will happen without
    intervention. Stalled: it needs intervention. Placed is False if locations of the GVC have no engine here
    (docs/platform/fields.md#what-a-link-may-lead-to). NotEnforced: not everything that the resource specifies has an
    effect. ClockJumped: the clock was set on its host. ScalingUnknown: its metric has no value. NotServed, NotVerified,
    CertificateMissing and CertificateExpiring are of domains. Messages contain no times but the end of a certificate,
    and no counts except of replicas during a rollout, so that an unchanged state keeps its message.
    """
    if not facts.exists:
        return ()
    if facts.failures:
        current = _make_failed_conditions(facts)
    elif facts.wait is not None:
        current = _make_waiting_conditions(facts, facts.wait)
    elif not facts.digest:
        current = _in_progress(Reason.DELETING, "no longer in Git; to be deleted")
    elif facts.drift is not None:
        current = _make_drift_conditions(facts.key, facts.drift)
    else:
        current = _make_declared_conditions(facts)
    if facts.suspended:
        current = (*current, make_condition(ConditionType.SUSPENDED, True, Reason.SUSPENDED, facts.suspended))
    if facts.on_hold:
        current = (
            *current,
            make_condition(ConditionType.HOLDING_REQUESTS, True, Reason.HOLDING_REQUESTS, facts.on_hold),
        )
    return (*current, *_make_unplaced_conditions(facts), *_of_engines(facts.records))


def make_condition(type: ConditionType, status: bool, reason: Reason, message: str = "") -> Condition:  # noqa: A002
    """A condition with its message on one line of at most 500 characters; every condition is created here."""
    return Condition(type, status, reason, truncate_text(message))


def ready(facts: ResourceFacts) -> bool:
    """Whether the resource is applied as in Git, and healthy."""
    return any(condition.type == ConditionType.READY and condition.status for condition in compute_conditions(facts))


def condition_from_error(type: ConditionType, error: ReconcilerError) -> Condition:  # noqa: A002
    """The condition ``type`` with the status False because of ``error``."""
    return make_condition(type, False, error.reason, str(error))


def _make_failed_conditions(facts: ResourceFacts) -> tuple[Condition, ...]:
    final = [failure for failure in facts.failures if _is_final(failure, facts.attempts)]
    first = (final or facts.failures)[0]
    where = f"at {first.location}: " if first.location else ""
    message = where + first.message
    not_ready = make_condition(ConditionType.READY, False, first.reason, message)
    outlook = ConditionType.STALLED if final else ConditionType.RECONCILING
    return not_ready, make_condition(outlook, True, first.reason, message)


def _is_final(failure: Failure, attempts: int) -> bool:
    return not failure.retry or (0 < attempts <= failure.attempts)


def _make_waiting_conditions(facts: ResourceFacts, wait: WaitReason) -> tuple[Condition, ...]:
    if not wait.retained:
        return _in_progress(wait.reason, wait.message)
    if facts.health.is_good:
        return (make_condition(ConditionType.READY, True, wait.reason, wait.message),)
    return _by_health(facts)


def _make_drift_conditions(key: Key, drift: DriftState) -> tuple[Condition, ...]:
    if drift.in_conflict:
        message = f"healed too often, and not healed again until: reconciler retry {key}; {drift.places}"
        not_ready = make_condition(ConditionType.READY, False, Reason.DRIFT_CONFLICT, message)
        return not_ready, make_condition(ConditionType.STALLED, True, Reason.DRIFT_CONFLICT, message)
    if drift.healed:
        return _in_progress(Reason.DRIFTED, drift.places)
    return (make_condition(ConditionType.READY, False, Reason.DRIFTED, drift.places),)


def _make_declared_conditions(facts: ResourceFacts) -> tuple[Condition, ...]:
    placed = [record for record in facts.records if record.location]
    if facts.unbound and not placed:
        return (make_condition(ConditionType.READY, False, Reason.LOCATION_NOT_BOUND, _not_bound(facts.unbound)),)
    behind = [record.location for record in facts.records if record.digest != facts.digest]
    if not facts.records:
        return _in_progress(Reason.PENDING, "not applied yet")
    if behind:
        return _in_progress(Reason.PENDING, f"the latest change is not applied yet{_format_locations(behind)}")
    return _by_health(facts)


def _by_health(facts: ResourceFacts) -> tuple[Condition, ...]:
    """Ready by the health that engines report, once the digests are equal."""
    own = find_worst_health(record.health for record in facts.records)
    places = [record.location for record in facts.records if record.health is own]
    if own is Health.HEALTHY:
        return (make_condition(ConditionType.READY, True, Reason.APPLIED, f"applied{_format_locations(places)}"),)
    if own is Health.RECORDED:
        running = [record.location for record in facts.records if record.health is Health.HEALTHY]
        applied = f"applied{_format_locations(running)}; " if running else ""
        message = f"{applied}recorded only{_format_locations(places)}: nothing runs there"
        return (make_condition(ConditionType.READY, True, Reason.RECORDED, message),)
    where = _by_location(facts.records, own)
    if own is Health.LOADING:
        return _in_progress(Reason.LOADING, f"loading{where}")
    if own is Health.DELETING:
        return _in_progress(Reason.DELETING, f"deleting{where}")
    if own is Health.UNKNOWN:
        return (make_condition(ConditionType.READY, False, Reason.HEALTH_UNKNOWN, f"health is not known{where}"),)
    return (make_condition(ConditionType.READY, False, Reason.UNHEALTHY, f"not healthy{where}"),)


def _by_location(records: Iterable[Record], health: Health) -> str:
    """`` at here: 1 of 2 replicas updated, 0 available; there``: locations with ``health`` and their messages."""
    messages = sorted((record.location, message_of(record.state)) for record in records if record.health is health)
    places = [f"{location}: {message}" if message else location for location, message in messages if location]
    if not places:
        return "".join(f": {message}" for location, message in messages if message)
    return f" at {('; ' if any(message for _, message in messages) else ', ').join(places)}"


def _of_engines(records: tuple[Record, ...]) -> tuple[Condition, ...]:
    """The conditions of engines in a fixed order, with the locations of each message."""
    places: dict[tuple[ConditionType, Reason], dict[str, list[str]]] = {}
    for record in records:
        for kind, reason, message, location in record_conditions(record):
            places.setdefault((kind, reason), {}).setdefault(message, []).append(location or record.location)
    return tuple(
        make_condition(kind, True, reason, _at_places(messages))
        for (kind, reason), messages in sorted(places.items(), reverse=True)
    )


def _at_places(messages: dict[str, list[str]]) -> str:
    """``at here, there: no limits; at far: no firewall``; what has no location is first."""
    everywhere = [message for message, at in sorted(messages.items()) if not any(at)]
    texts = [f"at {', '.join(sorted(at))}: {message}" for message, at in sorted(messages.items()) if any(at)]
    return "; ".join([" ".join(everywhere), *texts] if everywhere else texts)


def _in_progress(reason: Reason, message: str) -> tuple[Condition, ...]:
    not_ready = make_condition(ConditionType.READY, False, reason, message)
    return not_ready, make_condition(ConditionType.RECONCILING, True, reason, message)


def _make_unplaced_conditions(facts: ResourceFacts) -> tuple[Condition, ...]:
    if not facts.unbound or not facts.digest:
        return ()
    return (make_condition(ConditionType.PLACED, False, Reason.LOCATION_NOT_BOUND, _not_bound(facts.unbound)),)


def _not_bound(locations: Iterable[str]) -> str:
    return f"this host binds no location {', '.join(sorted(locations))}"


def _format_locations(locations: Iterable[str]) -> str:
    names = ", ".join(sorted(filter(None, locations)))
    return f" at {names}" if names else ""
