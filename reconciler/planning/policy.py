"""Which deletes are allowed, which resources are retained, and which steps wait for an operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from reconciler.model.key import Key, Kind
from reconciler.model.platform import BUILT_IN_RESOURCES, PROTECTED_TAG
from reconciler.model.record import Health, Record
from reconciler.planning.inputs import PlannerInput
from reconciler.planning.plan import Action, Hold, Rename, Step
from reconciler.planning.recorded_references import recorded_targets
from reconciler.planning.successors import encode_without_name

PRUNE = "reconciler/prune"


def retention_reason(record: Record) -> str:
    """Why ``record`` is never deleted, "" if it may be."""
    if str(record.key) in BUILT_IN_RESOURCES:
        return "it is built in"
    tags = msgspec.json.decode(record.body).get("tags") or {}
    if tags.get(PROTECTED_TAG) == "true":
        return f"the tag {PROTECTED_TAG} keeps it"
    if tags.get(PRUNE) == "disabled":
        return f"the tag {PRUNE}: disabled keeps it"
    return ""


def find_retained_keys(scope: PlannerInput, deletes: Iterable[Step]) -> dict[Key, str]:
    """The keys of ``deletes`` that are retained, each with its reason, and the keys that they refer to."""
    going = {step.key for step in deletes}
    reasons: dict[Key, str] = {}
    fresh = []
    for key in sorted(going):
        reason = "" if scope.policy.enabled else "pruning is switched off"
        reason = reason or next(filter(None, map(retention_reason, scope.records.get(key, ()))), "")
        reason = reason or (f"{scope.orphans[key]} made it an orphan" if key in scope.orphans else "")
        reason = reason or scope.retention.get(key, "")
        if reason:
            reasons[key] = reason
            fresh.append(key)
    while fresh:
        key = fresh.pop()
        targets = {target for record in scope.records[key] for target in recorded_targets(record, scope.org)}
        for needed in sorted(going - reasons.keys()):
            if str(needed) in targets:
                reasons[needed] = f"{key} stays and needs it"
                fresh.append(needed)
    return reasons


def with_holds(scope: PlannerInput, steps: list[Step], renames: tuple[Rename, ...]) -> list[Step]:
    """``steps``, with a hold on each that needs an approval or is suspended."""
    deletes = [step for step in steps if step.action is Action.DELETE]
    if not (deletes or scope.suspended or scope.policy.approval == "always"):
        return steps
    begun = {step.id for step in deletes if is_under_way(scope, step) and str(step.key) in scope.recent_deletes}
    over_budget = _over_budget(scope, {step.key for step in deletes if step.id not in begun})
    hourly, until = _over_hourly_budget(scope, {step.key for step in deletes})
    with_volumes = {step.key.gvc for step in deletes if step.key.kind is Kind.VOLUMESET}
    renamed = {rename.after for rename in renames if rename.after.kind is Kind.VOLUMESET}

    def hold(step: Step) -> Hold:
        if step.key in scope.suspended:
            return Hold.SUSPENDED
        if step.id in begun:
            return Hold.NONE
        if step.action is Action.DELETE:
            volumes = step.key.kind is Kind.VOLUMESET or (step.key.kind is Kind.GVC and step.key.name in with_volumes)
            hold_kind = Hold.VOLUMES if volumes else Hold.BUDGET if step.key.kind in over_budget else hourly
            return hold_kind if hold_kind is not Hold.NONE or scope.policy.approval == "never" else Hold.DELETES
        if step.key in renamed and step.action is Action.CREATE:
            return Hold.RENAME
        return Hold.ALWAYS if step.hold is Hold.NONE and scope.policy.approval == "always" else step.hold

    holds = [(step, hold(step)) for step in steps]
    return [
        msgspec.structs.replace(step, hold=hold, hold_until=until if hold is Hold.HOURLY else "")
        for step, hold in holds
    ]


def is_under_way(scope: PlannerInput, step: Step) -> bool:
    """Whether the resource that the delete ``step`` concerns ends already, as an earlier run wanted or another tool."""
    place = (record for record in scope.records.get(step.key, ()) if record.location == step.location)
    return step.action is Action.DELETE and any(record.health is Health.DELETING for record in place)


def _over_budget(scope: PlannerInput, doomed: set[Key]) -> frozenset[Kind]:
    """Kinds whose deletes wait: all if the run deletes too many, else those above their own limit."""
    counts = Counter(key.kind for key in doomed)
    if len(doomed) > scope.policy.allowance(scope.inventory):
        return frozenset(counts)
    return frozenset(kind for kind, count in counts.items() if count > scope.policy.kinds.get(kind, count))


def _over_hourly_budget(scope: PlannerInput, doomed: set[Key]) -> tuple[Hold, str]:
    """The hold of deletes above the hourly budget, and the time at which it ends by itself ("": never).

    It ends when enough earlier deletes are older than an hour.
    """
    going = {str(key) for key in doomed}
    ends = sorted(end for key, end in scope.recent_deletes.items() if key not in going)
    excess = len(ends) + len(going) - scope.policy.hourly_allowance(scope.inventory + len(ends))
    if excess <= 0:
        return Hold.NONE, ""
    return Hold.HOURLY, ends[excess - 1] if excess <= len(ends) else ""


def renames_in(steps: list[Step], records: Mapping[Key, tuple[Record, ...]]) -> tuple[Rename, ...]:
    """Deletes and creates whose bodies differ only in the name."""
    gone = {step.key: step.body for step in steps if step.action is Action.DELETE}
    if not gone:
        return ()
    new = {step.key: step.body for step in steps if step.action is Action.CREATE and step.key not in records}
    by_content = {encode_without_name(key, body): key for key, body in sorted(gone.items(), reverse=True)}
    successors = {}
    for key, body in sorted(new.items()):
        before = by_content.pop(encode_without_name(key, body), None)
        if before is not None:
            successors[before] = key
    return tuple(Rename(before, after) for before, after in sorted(successors.items()))
