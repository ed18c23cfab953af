"""A plan as a JSON document, in the shape that scripts rely on."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.planning.plan import Plan, Step
from reconciler.planning.summary import changes_of, summary


def document(plan: Plan) -> dict[str, Any]:
    """Source, revision, digests, steps in order, and the summary; ``location`` is null for what has no place."""
    return {
        "source": plan.source,
        "revision": plan.revision,
        "digest": plan.digest,
        "held": plan.held,
        "steps": [_step(step) for step in plan.steps],
        "kept": [{"key": str(kept.key), "reason": kept.reason} for kept in plan.kept],
        "renames": [{"before": str(rename.before), "after": str(rename.after)} for rename in plan.renames],
        "summary": summary(plan),
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "action": str(step.action),
        "key": str(step.key),
        "location": step.location or None,
        "version": step.version,
        "changes": [msgspec.to_builtins(change) for change in changes_of(step)],
        "waits_for": [str(other) for other in step.waits_for],
        "hold": str(step.hold) or None,
        "heals": step.heals,
    }
