"""A plan as a JSON document, in a stable shape for scripts."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.planning.blame import WHOLE, Blame, Blames
from reconciler.planning.plan import Action, Plan, Step, causes_of_waiting
from reconciler.render.plan.summary import changes_of, count_actions

FORMAT_VERSION = 2
"""The version of plan documents. Those without one have version 1, with other names for three fields of the plan."""


def build_plan_document(plan: Plan, blames: Blames | None = None) -> dict[str, Any]:
    """Source, revision, digests, steps in order, and the summary; ``location`` is null where there is none.

    With ``blames`` each changed field, and each create and delete, has a ``blame``, or null.
    """
    causes = causes_of_waiting(plan.steps)
    return {
        "format_version": FORMAT_VERSION,
        "source": plan.source,
        "revision": plan.revision,
        "digest": plan.digest,
        "hold_digest": plan.hold_digest,
        "refusal": plan.refusal or None,
        "steps": [_build_step(step, causes.get(step.id), blames) for step in plan.steps],
        "retained": [{"key": str(resource.key), "reason": resource.reason} for resource in plan.retained],
        "renames": [{"before": str(rename.before), "after": str(rename.after)} for rename in plan.renames],
        "summary": count_actions(plan),
    }


def _build_step(step: Step, cause: Step | None, blames: Blames | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "action": str(step.action),
        "key": str(step.key),
        "location": step.location or None,
        "version": step.version,
        "changes": [msgspec.to_builtins(change) for change in changes_of(step)],
        "waits_for": [str(other) for other in step.waits_for],
        "hold": str(step.hold) or None,
        "hold_until": step.hold_until or None,
        "blocked_by": None if cause is None else str(cause.id),
        "heals": step.heals,
    }
    if blames is not None and step.action in (Action.CREATE, Action.DELETE):
        fields["blame"] = _build_blame(blames.get((step.id, WHOLE)))
    elif blames is not None:
        fields["changes"] = [
            {**change, "blame": _build_blame(blames.get((step.id, change["path"])))} for change in fields["changes"]
        ]
    return fields


def _build_blame(blame: Blame | None) -> dict[str, Any] | None:
    """Commit and author are null where the commit is older than the search, the line where there is none."""
    if blame is None:
        return None
    return {
        "commit": blame.commit or None,
        "author": blame.author or None,
        "path": blame.path,
        "line": blame.line or None,
    }
