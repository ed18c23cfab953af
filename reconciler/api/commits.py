"""Changes of a source as requests of the API: their turn, their refusals, and what a caller may see of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from reconciler.api.call import Call
from reconciler.api.problems import Problem
from reconciler.api.service import Api
from reconciler.api.visibility import visible_findings, visible_text
from reconciler.changes.document import change_document
from reconciler.changes.edits import EditConflictError
from reconciler.changes.requests import ChangeRequest, EarlierChange
from reconciler.changes.write import CheckedChange, Outcome, RevisionRefused
from reconciler.documents.event_positions import pointers_by_position
from reconciler.model.finding import Finding
from reconciler.model.key import Key
from reconciler.model.resource import pointer_text
from reconciler.model.revision import is_json
from reconciler.planning.plan import Plan
from reconciler.render.findings import findings_document, format_place
from reconciler.settings import SourceSettings

IMMUTABLE_RULE = "immutable-field"


def write_changes(api: Api, source: SourceSettings, requests: Sequence[ChangeRequest]) -> list[Outcome]:
    """Write ``requests`` to ``source``, with one push; returns what became of each."""
    return api.writers.write(source, requests, is_review=api.writes == "branch")


async def submit_change(
    call: Call, source: SourceSettings, request: ChangeRequest, sees: Callable[[Key], bool]
) -> CheckedChange | EarlierChange | None:
    """Write ``request`` together with those of others that wait; None if there is nothing to change.

    Raises Problem, its words for a caller who ``sees`` resources.
    """
    queue = call.api.change_queue(source.name, lambda requests: write_changes(call.api, source, requests))
    outcome: Outcome = await queue.submit(request)
    if isinstance(outcome, RevisionRefused):
        raise refusal_of(outcome, sees)
    if isinstance(outcome, EditConflictError):
        raise Problem(409, str(outcome), {"yours": outcome.ours, "theirs": outcome.theirs})
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def refusal_of(refused: RevisionRefused, sees: Callable[[Key], bool]) -> Problem:
    """The answer to a refused change, for a caller who ``sees`` resources."""
    errors = visible_findings(refused.errors, refused.after.keys(), sees)
    places = "; ".join(f"{f'{format_place(error)}: ' if error.path else ''}{error.message}" for error in errors[:3])
    more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
    status = 405 if any(error.rule == IMMUTABLE_RULE for error in errors) else 400
    return Problem(status, f"the change is refused: {places}{more}", _list_error_details(errors, refused.after))


def _list_error_details(errors: list[Finding], after: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """The findings for programs; ``field`` is the JSON pointer of a value, by which a client finds it in its own text.

    Those in other files than the change have none.
    """
    fields = {
        path: pointers_by_position((after[path] or "").encode(), is_json=is_json(path))
        for path in {error.path for error in errors} & after.keys()
    }
    findings: list[dict[str, Any]] = findings_document(errors, 0, 0)["findings"]
    for mapping in findings:
        if mapping["path"] in fields:
            mapping["field"] = pointer_text(fields[mapping["path"]].get((mapping["line"], mapping["column"]), ()))
    return findings


def visible_change(change: CheckedChange, sees: Callable[[Key], bool], *, dry: bool) -> dict[str, Any]:
    """``change`` as the API shows it to a caller who ``sees`` resources."""
    plan = change.planned.plan
    assert plan is not None
    written = [edit.key for edit in change.edits]
    return change_document(
        change, _filter_visible_steps(plan, sees), lambda text: visible_text(text, written, sees), dry=dry
    )


def _filter_visible_steps(plan: Plan, sees: Callable[[Key], bool]) -> Plan:
    """``plan`` without what the caller does not see: steps of earlier changes can wait in it."""
    steps = (
        msgspec.structs.replace(step, waits_for=tuple(wait for wait in step.waits_for if sees(wait.key)))
        for step in plan.steps
        if sees(step.key)
    )
    retained = tuple(resource for resource in plan.retained if sees(resource.key))
    renames = tuple(rename for rename in plan.renames if sees(rename.before) and sees(rename.after))
    return msgspec.structs.replace(plan, steps=tuple(steps), retained=retained, renames=renames)
