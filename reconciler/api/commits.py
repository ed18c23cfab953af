"""Changes of a source as requests of the API: their turn, their refusals, and what a caller may see of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from reconciler.api.call import Call
from reconciler.api.problems import Problem
from reconciler.api.service import Api
from reconciler.api.visibility import visible_findings, visible_text
from reconciler.clock import Clock
from reconciler.documents.event_positions import pointers_by_position
from reconciler.errors import SourceError
from reconciler.logs import log
from reconciler.model.finding import Finding
from reconciler.model.key import Key
from reconciler.model.resource import pointer_text
from reconciler.model.revision import is_json
from reconciler.operations.change_requests import ChangeRequest, EarlierChange
from reconciler.operations.change_writer import Change, ChangeWriter, Outcome, RevisionRefused
from reconciler.operations.commands import open_existing
from reconciler.operations.manifest_commits import SourceWriter
from reconciler.operations.manifest_edits import EditConflictError, has_secrets
from reconciler.planning.plan import Plan
from reconciler.records.tables.events import WaitingEvents
from reconciler.render.findings import findings_document, place
from reconciler.render.plan.json import document as plan_document
from reconciler.settings import Settings, SourceSettings

PUSH_SECONDS = 600.0
"""Seconds after which no remote takes a commit any more whose push broke."""
IMMUTABLE_RULE = "immutable-field"


def write_changes(api: Api, source: SourceSettings, requests: Sequence[ChangeRequest]) -> list[Outcome]:
    """Write ``requests`` to ``source``, with one push; returns what became of each."""
    with open_existing(api.settings, api.clock) as records:
        writer = ChangeWriter(api.settings, source, records, api.clock, is_review=api.writes == "branch")
        return writer.write(requests)


async def submit_change(
    call: Call, source: SourceSettings, request: ChangeRequest, sees: Callable[[Key], bool]
) -> Change | EarlierChange | None:
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


def find_declaring_source(call: Call, key: Key) -> SourceSettings | None:
    """The source whose newest commit adds ``key``, which no run has read yet; None if none does."""
    with open_existing(call.api.settings, call.api.clock) as records:
        for source in call.api.settings.sources:
            if not source.branch or source.read_only:
                continue
            try:
                if SourceWriter(call.api.settings, source, records, call.api.clock).adds(key):
                    return source
            except SourceError:  # what cannot be read declares nothing here, and its own condition says why
                continue
    return None


def refusal_of(refused: RevisionRefused, sees: Callable[[Key], bool]) -> Problem:
    """The answer to a refused change, for a caller who ``sees`` resources."""
    errors = visible_findings(refused.errors, refused.after.keys(), sees)
    places = "; ".join(f"{f'{place(each)}: ' if each.path else ''}{each.message}" for each in errors[:3])
    more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
    status = 405 if any(each.rule == IMMUTABLE_RULE for each in errors) else 400
    return Problem(status, f"the change is refused: {places}{more}", _details(errors, refused.after))


def _details(errors: list[Finding], after: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """The findings for programs; ``field`` is the JSON pointer of a value, by which a client finds it in its own text.

    Those in other files than the change have none.
    """
    fields = {
        path: pointers_by_position((after[path] or "").encode(), is_json=is_json(path))
        for path in {each.path for each in errors} & after.keys()
    }
    found: list[dict[str, Any]] = findings_document(errors, 0, 0)["findings"]
    for each in found:
        if each["path"] in fields:
            each["field"] = pointer_text(fields[each["path"]].get((each["line"], each["column"]), ()))
    return found


def release_events(settings: Settings, clock: Clock) -> None:
    """Append the events of changes that are in Git, and whose request ended before: the process did, or a push broke.

    A change that is not in Git after ``PUSH_SECONDS`` was never made.
    """
    with open_existing(settings, clock) as records:
        for waiting in records.outbox.all():
            source = next((each for each in settings.sources if each.name == waiting.source), None)
            try:
                is_made = source is not None and _is_made(SourceWriter(settings, source, records, clock), waiting)
            except SourceError as error:
                log().warning("api", source=waiting.source, message=f"no event of the change {waiting.id} yet: {error}")
                continue
            if is_made:
                records.outbox.release(waiting)
            elif source is None or clock.expiry().is_over(waiting.at + PUSH_SECONDS, waiting.at):
                records.outbox.discard(waiting)


def _is_made(writer: SourceWriter, waiting: WaitingEvents) -> bool:
    return waiting.revision == writer.find_request(waiting.id, writer.tip()) or (
        waiting.revision == writer.find_review(waiting.id)
    )


def change_document(change: Change, sees: Callable[[Key], bool], *, dry: bool) -> dict[str, Any]:
    """``change`` as the API shows it to a caller who ``sees`` resources; no diff of a file with secrets."""
    plan = change.planned.plan
    assert plan is not None
    paths = sorted(change.after)
    return {
        "branch": change.branch,
        "review": change.review or None,
        "commit": None if dry else change.commit.id,
        "files": paths,
        "diff": "".join(_diff(path, change, sees) for path in paths),
        "plan": plan_document(_seen(plan, sees)),
    }


def _seen(plan: Plan, sees: Callable[[Key], bool]) -> Plan:
    """``plan`` without what the caller does not see: steps of earlier changes can wait in it."""
    steps = (
        msgspec.structs.replace(step, waits_for=tuple(each for each in step.waits_for if sees(each.key)))
        for step in plan.steps
        if sees(step.key)
    )
    retained = tuple(each for each in plan.retained if sees(each.key))
    renames = tuple(each for each in plan.renames if sees(each.before) and sees(each.after))
    return msgspec.structs.replace(plan, steps=tuple(steps), retained=retained, renames=renames)


def _diff(path: str, change: Change, sees: Callable[[Key], bool]) -> str:
    """The difference in a file, as far as the caller sees its documents; "" for a file with secrets."""
    texts = [files.get(path) or "" for files in (change.before, change.after)]
    if any(map(has_secrets, texts)):
        return ""
    written = [edit.key for edit in change.edits]
    before, after = (visible_text(text, written, sees) for text in texts)
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
