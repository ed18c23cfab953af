"""A plan that somebody saved and read: a run goes by it only where it would do just that."""

from __future__ import annotations

from pathlib import Path

import msgspec

from reconciler.errors import UsageError
from reconciler.planning.plan import Action, FieldChange, Plan, Step
from reconciler.render.json import document

MOST_NAMED = 5
"""Steps that are named of those that differ."""


class Change(msgspec.Struct, frozen=True):
    """What a step of a saved plan does; its changes as they were written down, whoever asked for them."""

    action: str
    key: str
    location: str | None = None
    changes: list[FieldChange] = []

    @property
    def name(self) -> str:
        """``update workload/shop/api@here``."""
        return f"{self.action} {self.key}" + (f"@{self.location}" if self.location else "")


class SavedPlan(msgspec.Struct, frozen=True):
    """A plan as `reconciler plan --out FILE` writes it, as far as it is compared."""

    source: str
    revision: str
    digest: str
    steps: list[Change]

    def difference_from(self, plan: Plan) -> str:
        """What ``plan`` does otherwise than what was read, in words; empty where it is the same."""
        if plan.digest == self.digest:
            return ""
        now = msgspec.convert(document(plan)["steps"], list[Change])
        then, after = {step.name: step for step in self.steps}, {step.name: step for step in now}
        found = [f"now also: {name}" for name in after.keys() - then.keys()]
        found += [f"no longer: {name}" for name in then.keys() - after.keys()]
        found += [f"with other changes: {name}" for name in then.keys() & after.keys() if then[name] != after[name]]
        if not found and self.revision == plan.revision and all(map(_first, plan.steps)):
            return ""
        shown = "; ".join(sorted(found)[:MOST_NAMED]) or "values of secrets, or what is recorded, changed meanwhile"
        more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        return f"the plan is not the one that was saved: {shown}{more}; read it again: reconciler plan --out FILE"


def _first(step: Step) -> bool:
    """Whether ``step`` makes what nothing is recorded of.

    A plan that was saved before there were records has digests of its own, since those of secrets are keyed in the
    records: there the commit says what shall be made.
    """
    return step.action is Action.CREATE and not step.before


def load_saved_plans(path: Path) -> dict[str, SavedPlan]:
    """The plans in the file ``path``, by source. Raises UsageError where it is not what `plan --out` writes."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"the plan {path} cannot be read: {error.strerror}") from None
    try:
        plans = msgspec.json.decode(raw, type=SavedPlan | list[SavedPlan])
    except msgspec.DecodeError:
        raise UsageError(f"{path} holds no plan; make one with: reconciler plan --out {path}") from None
    return {plan.source: plan for plan in (plans if isinstance(plans, list) else [plans])}
