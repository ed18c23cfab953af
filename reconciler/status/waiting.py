"""Wait reasons: recorded for all displays, together with what operators suspend or pin."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reconciler.engines.protocol import Outcome, Result
from reconciler.model.key import Key
from reconciler.planning.plan import RetainedResource
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.conditions import Condition
from reconciler.records.tables.events import NewEvent
from reconciler.records.tables.pins import Pin
from reconciler.records.tables.suspensions import Suspension, TrafficHold
from reconciler.status.conditions import WaitReason, condition
from reconciler.times import iso


def save_wait_reasons(records: Records, outcomes: Iterable[Outcome], retained: Iterable[RetainedResource]) -> list[Key]:
    """Record why resources of a run wait or stay; returns those with a new or changed reason.

    The records keep it in the condition Waiting, whose scope is the key.

    Applied resources no longer wait. A step that was skipped for a newer revision has no wait reason.
    """
    outcomes = list(outcomes)
    waits = {
        each.key: _waits(Reason.RETAINED, f"no longer in Git, and not deleted: {each.reason}") for each in retained
    }
    for outcome in outcomes:
        if outcome.result in (Result.WAITING, Result.SKIPPED) and outcome.reason is not Reason.PREEMPTED:
            waits.setdefault(outcome.id.key, _waits(outcome.reason, outcome.message))
    applied = (one.id.key for one in outcomes if one.result is Result.APPLIED and one.id.key not in waits)
    with records.transaction():
        for scope in records.conditions.scopes_where(ConditionType.WAITING, map(str, applied)):
            records.conditions.set(scope, condition(ConditionType.WAITING, False, Reason.APPLIED))
        return [key for key, waiting in sorted(waits.items()) if records.conditions.set(str(key), waiting)]


def _waits(reason: Reason, message: str) -> Condition:
    return condition(ConditionType.WAITING, True, reason, message)


def wait_reason(records: Records, key: Key) -> WaitReason | None:
    """The last recorded wait reason of ``key``; ask only if Git and the record differ."""
    for each in records.conditions.get(str(key)):
        if each.type == ConditionType.WAITING and each.status:
            reason = Reason.stored(each.reason)
            return WaitReason(reason, each.message, retained=reason is Reason.RETAINED)
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
    owner = entry.source if entry is not None else next((each.source for each in owned), "")
    if owner:
        records.status_queue.add_many(owner, [target])


def suspended_by(found: Suspension) -> str:
    """``suspended by ada until 2026-01-31T12:00:00Z: a look inside``."""
    until = f" until {iso(found.until)}" if found.until is not None else ""
    return f"suspended by {found.by}{until}" + _because(found.reason)


def requests_on_hold_by(hold: TrafficHold) -> str:
    """``ada holds its requests until 2026-01-31T12:00:00Z: a migration``."""
    return f"{hold.by} holds its requests until {iso(hold.until)}" + _because(hold.reason)


def end_expired(records: Records, append: Callable[[Iterable[NewEvent]], None]) -> None:
    """Remove the suspensions and holds of requests whose time is over, and ``append`` an event for each."""
    suspensions, holds = records.suspensions.over(), records.traffic_holds.over()
    if not suspensions and not holds:
        return
    events = [NewEvent(each.target, Reason.RESUMED, f"its time is over: {suspended_by(each)}") for each in suspensions]
    events += [
        NewEvent(each.key, Reason.REQUESTS_RELEASED, f"its time is over: {requests_on_hold_by(each)}") for each in holds
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
    return f"{pin.by} rolled it back to {pin.expression} ({pin.commit[:12]})" + _because(pin.reason)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
