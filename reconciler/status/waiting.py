"""Wait reasons: recorded for all displays, together with what operators suspend or pin."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reconciler.engines.protocol import Outcome, Result
from reconciler.model.key import Key
from reconciler.model.revision import explain_expression
from reconciler.planning.plan import RetainedResource
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.conditions import Condition
from reconciler.records.tables.events import NewEvent
from reconciler.records.tables.pins import Pin
from reconciler.records.tables.suspensions import Suspension, TrafficHold
from reconciler.status.conditions import WaitReason, make_condition
from reconciler.times import format_iso_time


def save_wait_reasons(records: Records, outcomes: Iterable[Outcome], retained: Iterable[RetainedResource]) -> list[Key]:
    """Record why resources of a run wait or stay; returns those with a new or changed reason.

    The records keep it in the condition Waiting, whose scope is the key.

    Applied resources no longer wait. A step that was skipped for a newer revision has no wait reason.
    """
    outcomes = list(outcomes)
    waits = {
        resource.key: _make_waiting_condition(Reason.RETAINED, f"no longer in Git, and not deleted: {resource.reason}")
        for resource in retained
    }
    for outcome in outcomes:
        if outcome.result in (Result.WAITING, Result.SKIPPED) and outcome.reason is not Reason.PREEMPTED:
            waits.setdefault(outcome.id.key, _make_waiting_condition(outcome.reason, outcome.message))
    applied = (one.id.key for one in outcomes if one.result is Result.APPLIED and one.id.key not in waits)
    with records.transaction():
        for scope in records.conditions.scopes_where(ConditionType.WAITING, map(str, applied)):
            records.conditions.set(scope, make_condition(ConditionType.WAITING, False, Reason.APPLIED))
        return [key for key, waiting in sorted(waits.items()) if records.conditions.set(str(key), waiting)]


def _make_waiting_condition(reason: Reason, message: str) -> Condition:
    return make_condition(ConditionType.WAITING, True, reason, message)


def wait_reason(records: Records, key: Key) -> WaitReason | None:
    """The last recorded wait reason of ``key``; ask only if Git and the record differ."""
    for scope_condition in records.conditions.get(str(key)):
        if scope_condition.type == ConditionType.WAITING and scope_condition.status:
            reason = Reason.from_stored(scope_condition.reason)
            return WaitReason(reason, scope_condition.message, retained=reason is Reason.RETAINED)
    return None


def orphaned_by_settings(source: str, key: Key) -> WaitReason:
    """The wait reason for ``key``, whose ``source`` is no longer in the settings."""
    adopt = f"reconciler adopt {key} --source NAME"
    message = f"its source {source} is no longer in the settings, so it stays unchanged until: {adopt}"
    return WaitReason(Reason.ORPHANED, message, retained=True)


def mark_status_dirty(records: Records, target: str) -> None:
    """Queue the status of a resource for rewriting after an operator's hold changed; a source has its own status.

    ``target`` is named as in suspensions.
    """
    entry = records.desired.get(target)
    owned = () if target.startswith("source/") else records.applied.get(target)
    owner = entry.source if entry is not None else next((record.source for record in owned), "")
    if owner:
        records.status_queue.add_many(owner, [target])


def suspended_by(suspension: Suspension) -> str:
    """``suspended by ada until 2026-01-31T12:00:00Z: a look inside``."""
    until = f" until {format_iso_time(suspension.until)}" if suspension.until is not None else ""
    return f"suspended by {suspension.by}{until}" + _format_cause(suspension.reason)


def requests_on_hold_by(hold: TrafficHold) -> str:
    """``ada holds its requests until 2026-01-31T12:00:00Z: a migration``."""
    return f"{hold.by} holds its requests until {format_iso_time(hold.until)}" + _format_cause(hold.reason)


def end_expired(records: Records, append: Callable[[Iterable[NewEvent]], None]) -> None:
    """Remove the suspensions and holds of requests whose time is over, and ``append`` an event for each."""
    suspensions, holds = records.suspensions.over(), records.traffic_holds.over()
    if not suspensions and not holds:
        return
    events = [
        NewEvent(suspension.target, Reason.RESUMED, f"its time is over: {suspended_by(suspension)}")
        for suspension in suspensions
    ]
    events += [
        NewEvent(hold.key, Reason.REQUESTS_RELEASED, f"its time is over: {requests_on_hold_by(hold)}") for hold in holds
    ]
    with records.transaction():
        for suspension in suspensions:
            records.suspensions.remove(suspension.target)
        for hold in holds:
            records.traffic_holds.remove(hold.key)
        for event in events:
            mark_status_dirty(records, str(event.key))
        append(events)


def next_expiry(records: Records) -> float | None:
    """The seconds until the next suspension or hold of requests ends, None if none does."""
    return min(filter(None, (records.suspensions.seconds_left(), records.traffic_holds.seconds_left())), default=None)


def pinned_by(pin: Pin) -> str:
    """``ada rolled it back to HEAD~1 (1a2b3c4d5e6f): broken release``."""
    return f"{pin.by} rolled it back to {explain_expression(pin.expression, pin.commit)}{_format_cause(pin.reason)}"


def _format_cause(reason: str) -> str:
    return f": {reason}" if reason else ""
