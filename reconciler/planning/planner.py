"""From desired and recorded state to a Plan; the same input always gives the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from reconciler.model.key import Key
from reconciler.planning.graph import order_steps
from reconciler.planning.inputs import PlannerInput, Refusal
from reconciler.planning.plan import Action, Hold, Plan, RetainedResource, Step
from reconciler.planning.policy import find_retained_keys, is_under_way, renames_in, with_holds
from reconciler.planning.steps import steps_for
from reconciler.planning.successors import with_successors


def make_plan(scope: PlannerInput) -> tuple[Plan, tuple[Refusal, ...]]:
    """The plan for ``scope``, and the changes that the recorded state forbids (their keys have no steps)."""
    parts = [part for key in sorted(scope.keys) for part in steps_for(scope, key)]
    refusals = tuple(sorted({part for part in parts if isinstance(part, Refusal)}))
    refused = {refusal.key for refusal in refusals}
    steps = [part for part in parts if isinstance(part, Step) and part.key not in refused]
    deletes = [step for step in steps if step.action is Action.DELETE]
    stays = find_retained_keys(scope, deletes) if deletes else {}
    steps = [step for step in steps if step.action is not Action.DELETE or step.key not in stays]
    renames = renames_in([step for step in steps if step.key not in scope.successors], scope.records)
    steps = with_holds(scope, with_successors(scope, steps, renames), renames)
    del parts  # It would keep the steps that order_steps replaces: 14 MB of 100,000.
    order_steps(scope, steps)
    final = tuple(steps)
    waiting, released = _split_waiting_steps(scope, [step for step in final if step.hold.approvable])
    hold_digest = digest_of(waiting) if waiting else ""
    approved = hold_digest if _is_approved(scope, waiting) else ""
    released += waiting if approved else []
    if released:
        free = {step.id for step in released}
        final = tuple(_release_step(step) if step.id in free else step for step in final)
    plan = Plan(
        source=scope.source,
        revision=scope.revision,
        steps=final,
        digest=digest_of(final),
        hold_digest="" if approved else hold_digest,
        approved=approved,
        approved_digests=tuple(digest_of([step]) for step in released),
        retained=tuple(RetainedResource(key, reason) for key, reason in sorted(stays.items())),
        renames=renames,
        refusal="" if approved or not hold_digest else scope.refusals.get(f"{scope.source}/{hold_digest}", ""),
    )
    return plan, refusals


def _split_waiting_steps(scope: PlannerInput, steps: list[Step]) -> tuple[list[Step], list[Step]]:
    """The steps that wait for one approval, and those that go on by an earlier one: deletes that a run began by it."""
    if _is_approved(scope, steps):
        return steps, []
    released = [step for step in steps if is_under_way(scope, step) and _is_approved(scope, [step])]
    begun = {step.id for step in released}
    return [step for step in steps if step.id not in begun], released


def _is_approved(scope: PlannerInput, steps: list[Step]) -> bool:
    """Whether all ``steps`` are approved together, or each is, as a run leaves them so that the rest goes on."""
    if not steps or f"{scope.source}/{digest_of(steps)}" in scope.approved:
        return bool(steps)
    return all(f"{scope.source}/{digest_of([step])}" in scope.approved for step in steps)


def _release_step(step: Step) -> Step:
    return msgspec.structs.replace(step, hold=Hold.NONE, hold_until="")


def budgeted_deletes(plan: Plan) -> list[Key]:
    """Keys whose deletes count against the hourly budget: those that no operator approved."""
    approved = frozenset(plan.approved_digests)
    deletes = (step for step in plan.steps if step.action is Action.DELETE)
    return sorted({step.key for step in deletes if step.hold is Hold.NONE and digest_of([step]) not in approved})


def digest_of(steps: Iterable[Step]) -> str:
    """32 hex digits over the actions of the steps; commit, order and approvals do not change it."""
    digest = hashlib.blake2b(digest_size=16)
    for step in sorted(steps, key=lambda step: (step.key, step.location)):
        line = (step.action, str(step.key), step.location, step.engine, step.before, step.digest, step.version)
        digest.update(msgspec.json.encode(line))
    return digest.hexdigest()
