"""The hourly budget of deletes: what counts towards it, and when a run that it holds back may go on."""

from __future__ import annotations

import math

from reconciler.clock import iso
from reconciler.planning.plan import Action, Hold, Plan
from reconciler.planning.planner import digest_of
from reconciler.records.store import Records
from reconciler.records.tables.deletions import HOUR


def counted_deletes(records: Records, source: str, now: float) -> dict[str, str]:
    """The keys that ``source`` deleted within the hour before ``now``, each with the time until which it counts."""
    return {key: iso(math.ceil(at + HOUR)) for key, at in records.deletions.recent(source, now).items()}


def count_deletes(records: Records, plan: Plan, now: float) -> None:
    """Count the deletes of a plan that is about to be carried out; what an operator approved is no part of a budget.

    To be called before the first of them is journaled, so that a crash loses none. One that is tried again counts once.
    """
    deletes = [step for step in plan.steps if step.action is Action.DELETE]
    if deletes:
        alone = frozenset(plan.let_go)
        free = {step.key for step in deletes if step.hold is Hold.NONE and digest_of([step]) not in alone}
        records.deletions.add(plan.source, sorted(free), now)


def hold_ends(plan: Plan) -> str:
    """The time at which steps go by themselves that the hourly budget holds back, "" where none does."""
    return max((step.hold_until for step in plan.steps), default="")


def is_over(end: str, now: float) -> bool:
    """Whether ``end`` (as of ``hold_ends``) has come, or the clock was set back by more than the hour that it takes."""
    return bool(end) and not iso(now) < end <= iso(now + HOUR + 1)
