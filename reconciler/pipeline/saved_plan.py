"""A saved and reviewed plan: a run executes only if its own plan is the same."""

from __future__ import annotations

from pathlib import Path

import msgspec

from reconciler.errors import UsageError
from reconciler.planning.plan import Action, FieldChange, Plan, Step
from reconciler.render.plan.json import FORMAT_VERSION, build_plan_document

MOST_NAMED = 5
"""The most differing steps that a message names."""


class SavedStep(msgspec.Struct, frozen=True):
    """A step of a saved plan, with its changes as in the file, without blame."""

    action: str
    key: str
    location: str | None = None
    changes: list[FieldChange] = []

    @property
    def name(self) -> str:
        """``update workload/shop/api@here``."""
        return f"{self.action} {self.key}" + (f"@{self.location}" if self.location else "")


class SavedPlan(msgspec.Struct, frozen=True):
    """The compared fields of a plan that `reconciler plan --out FILE` wrote."""

    source: str
    revision: str
    digest: str
    steps: list[SavedStep]
    format_version: int = 1

    def difference_from(self, plan: Plan) -> str:
        """Describe how ``plan`` differs from this saved plan; "" if it is the same."""
        if plan.digest == self.digest:
            return ""
        now = msgspec.convert(build_plan_document(plan)["steps"], list[SavedStep])
        then, after = {step.name: step for step in self.steps}, {step.name: step for step in now}
        texts = [f"now also: {name}" for name in after.keys() - then.keys()]
        texts += [f"no longer: {name}" for name in then.keys() - after.keys()]
        texts += [f"with other changes: {name}" for name in then.keys() & after.keys() if then[name] != after[name]]
        if not texts and self.revision == plan.revision and all(map(_is_first_create, plan.steps)):
            return ""
        # Values of secrets are in the digest, but not in the file.
        shown = "; ".join(sorted(texts)[:MOST_NAMED]) or "values of secrets, or the records, changed meanwhile"
        more = f"; and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
        return f"the plan is not the one that was saved: {shown}{more}; read it again: reconciler plan --out FILE"


def _is_first_create(step: Step) -> bool:
    """Whether ``step`` creates a resource that is not recorded.

    A plan saved before the records existed has other digests, since the key of secret digests is in the records: such
    plans are compared by their commit.
    """
    return step.action is Action.CREATE and not step.before


def load_saved_plans(path: Path) -> dict[str, SavedPlan]:
    """Return the plans in the file ``path``, by source. Raises UsageError if `plan --out` did not write it."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"the plan {path} cannot be read: {error.strerror}") from None
    try:
        plans = msgspec.json.decode(raw, type=SavedPlan | list[SavedPlan])
    except msgspec.DecodeError:
        raise UsageError(f"{path} contains no plan; make one with: reconciler plan --out {path}") from None
    saved = plans if isinstance(plans, list) else [plans]
    if (newest := max((plan.format_version for plan in saved), default=0)) > FORMAT_VERSION:
        raise UsageError(
            f"{path} has format version {newest}, made by a newer reconciler; this one reads versions up to "
            f"{FORMAT_VERSION}: make the plan again with: reconciler plan --out {path}"
        )
    return {plan.source: plan for plan in saved}
