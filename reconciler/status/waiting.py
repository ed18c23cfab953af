"""Why nothing happens: reasons to wait, kept in the records for all that shows them, and what operators hold back."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.clock import iso
from reconciler.engines.protocol import Outcome, Result
from reconciler.model.key import Key
from reconciler.planning.plan import RetainedResource
from reconciler.records.store import Records
from reconciler.records.tables.pins import Pin
from reconciler.records.tables.suspensions import Suspension
from reconciler.status.conditions import WaitReason, truncate

WAITING = "Waiting"
"""Type of the condition in the records; its scope is the key."""

RETAINED = "Retained"
ORPHANED = "Orphaned"
PREEMPTED = "Preempted"


def save_wait_reasons(
    records: Records, outcomes: Iterable[Outcome], kept: Iterable[RetainedResource], at: float
) -> list[Key]:
    """Note why the resources of a run wait or stay; returns those of which it was not known, or for another reason.

    What was applied waits no longer. A step that only made way for a newer revision waits for nothing.
    """
    outcomes = list(outcomes)
    waits = {each.key: (RETAINED, f"no longer in Git, and not deleted: {each.reason}") for each in kept}
    for outcome in outcomes:
        if outcome.result in (Result.WAITING, Result.SKIPPED) and outcome.reason != PREEMPTED:
            waits.setdefault(outcome.id.key, (outcome.reason, truncate(outcome.message)))
    applied = {outcome.id.key for outcome in outcomes if outcome.result is Result.APPLIED}
    with records.transaction():
        for key in sorted(applied - waits.keys()):
            if wait_reason(records, key) is not None:
                records.conditions.set(str(key), WAITING, False, "Applied", "", at)
        return [
            key
            for key, (reason, message) in sorted(waits.items())
            if records.conditions.set(str(key), WAITING, True, reason, message, at)
        ]


def wait_reason(records: Records, key: Key) -> WaitReason | None:
    """What ``key`` was said to wait for last; ask only where Git and the record differ."""
    for condition in records.conditions.get(str(key)):
        if condition.type == WAITING and condition.status:
            return WaitReason(condition.reason, condition.message, kept=condition.reason == RETAINED)
    return None


def orphaned_by_settings(source: str, key: Key) -> WaitReason:
    """Why nothing is done about ``key``: its ``source`` is not in the settings any more."""
    adopt = f"reconciler adopt {key} --source NAME"
    message = f"its source {source} is not in the settings any more, so it stays as it is, until: {adopt}"
    return WaitReason(ORPHANED, message, kept=True)


def mark_status_dirty(records: Records, target: str) -> None:
    """Have the status of a resource written anew, since what an operator holds back has changed; a source has its own.

    ``target`` is as suspensions name it.
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


def pinned_by(pin: Pin) -> str:
    """``ada holds it at HEAD~1 (1a2b3c4d5e6f): broken release``."""
    return f"{pin.by} holds it at {pin.expression} ({pin.commit[:12]})" + _because(pin.reason)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
