"""Makes the commit of a change: checked before it reaches a branch, and made anew on each newer commit of others."""

from __future__ import annotations

import difflib
import random
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from reconciler.api.call import Call, EarlierChange
from reconciler.api.problems import Problem
from reconciler.api.visibility import visible_findings, visible_text
from reconciler.clock import Clock
from reconciler.documents.event_positions import pointers_by_position
from reconciler.errors import PushBroken, PushConflict, ReconcilerError, RecordsError, RefusedError, SourceError
from reconciler.logs import log
from reconciler.model.finding import Finding, Severity
from reconciler.model.key import Key
from reconciler.model.resource import pointer_text
from reconciler.operations.commands import open_existing
from reconciler.operations.manifest_commits import REQUEST_TRAILER, REVIEW_BRANCH, Commit, SourceWriter, author_of
from reconciler.operations.manifest_edits import (
    Document,
    EditConflictError,
    ResourceEdit,
    check_conflict,
    edited_files,
    has_secrets,
)
from reconciler.operations.sealed_documents import Sealing
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.planning.plan import Plan
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.records.tables.events import NewEvent, WaitingEvents
from reconciler.render.findings import findings_document, place
from reconciler.render.plan.json import document as plan_document
from reconciler.secrets.host_files import keyring_of
from reconciler.settings import Settings, SourceSettings
from reconciler.times import iso

TRIES = 10
"""How often a change is made anew on a newer commit."""
PAUSE = 0.05
"""Seconds of the longest pause before the second try; it grows with each, up to ``LONGEST_PAUSE``."""
LONGEST_PAUSE = 1.0
PUSH_SECONDS = 600.0
"""Seconds after which no remote takes a commit any more whose push broke."""
IMMUTABLE_RULE = "immutable-field"


class RefusedChange(Problem):
    """A change whose tree would have ``errors``; ``after`` has the texts of its files. It names neither."""

    def __init__(self, errors: list[Finding], after: Mapping[str, str | None]) -> None:
        super().__init__(400, "the change is refused: its commit would have errors")
        self.errors = errors
        self.after = after


class Change(NamedTuple):
    """A checked change: the files before and after, the commit, and what the daemon would do with it."""

    before: Mapping[str, str | None]
    after: Mapping[str, str | None]
    commit: Commit
    planned: PlannedRevision
    branch: str
    wanted: Document | None = None
    """The first manifest that is changed, as it is wanted; None if it is deleted."""
    review: str = ""
    """The link to open a review of the branch, as the forge names it; "" for none."""
    written: tuple[Key, ...] = ()
    """The resources that it changes."""


def write_change(
    call: Call, source: SourceSettings, edits: list[ResourceEdit], subject: str, *, dry: bool
) -> Change | EarlierChange | None:
    """Commit ``edits``, made anew on each newer commit of others; None if there is nothing to change."""
    with open_existing(call.api.settings, call.api.clock) as records:
        writer = SourceWriter(call.api.settings, source, records, call.api.clock)
        first = last = conflict = ""
        for attempt in range(TRIES):
            tip = writer.tip()
            if call.is_repeated and (found := writer.find_request(call.change_id, tip, last)):
                return EarlierChange(writer.branch, found)
            sealing = _sealing(call, writer, tip)
            before = {edit.path: writer.read(tip, edit.path) for edit in edits}
            former, edits = (
                edits,
                [edit.on(writer.meaning(before[edit.path], edit.key)) if edit.patch else edit for edit in edits],
            )
            if first and first != tip:
                for edit in former:
                    _refuse_conflict(edit, writer.read(first, edit.path), before[edit.path], sealing)
            first, last = first or tip, tip
            after = edited_files(edits, before.get, sealing)
            if not after:
                _refuse_unapplied(writer, edits, before)
                return None
            unread = writer.admit(edits, before, after)
            change = _checked(call, writer, tip, before, after, subject)._replace(
                wanted=edits[0].wanted, written=tuple(edit.key for edit in edits)
            )
            if unread:
                raise RefusedError(f"{unread[0].key} cannot be read in {unread[0].path} after the change")
            if dry:
                return change
            try:
                return _published(call, writer, change, records, edits)
            except PushConflict as error:
                conflict = str(error)
                time.sleep(random.uniform(0, min(PAUSE * 2**attempt, LONGEST_PAUSE)))
        raise Problem(409, f"{conflict}; nothing was changed after {TRIES} attempts, try again later")


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


def _sealing(call: Call, writer: SourceWriter, tip: str) -> Sealing:
    """What encrypts secrets in a change on top of ``tip``."""
    settings = call.api.settings
    rule = partial(writer.creation_rule, tip)
    return Sealing(keyring_of(settings), settings.secrets.policy, rule, iso(call.api.clock.now()))


def _checked(
    call: Call,
    writer: SourceWriter,
    tip: str,
    before: Mapping[str, str | None],
    after: Mapping[str, str | None],
    subject: str,
) -> Change:
    """The commit of ``after``, if the tree that results has no errors."""
    message = f"{subject}\n\n{REQUEST_TRAILER}: {call.change_id}"
    commit = writer.commit(tip, after, message, author_of(call.caller.principal, call.org))
    planned = writer.check(commit)
    errors = [each for each in planned.findings if each.severity is Severity.ERROR]
    if planned.plan is None or errors:
        raise RefusedChange(errors, after)
    return Change(before, after, commit, planned, writer.branch)


def refusal_of(refused: RefusedChange, sees: Callable[[Key], bool]) -> Problem:
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
        path: pointers_by_position((after[path] or "").encode())
        for path in {each.path for each in errors} & after.keys()
    }
    found: list[dict[str, Any]] = findings_document(errors, 0, 0)["findings"]
    for each in found:
        if each["path"] in fields:
            each["field"] = pointer_text(fields[each["path"]].get((each["line"], each["column"]), ()))
    return found


def _published(
    call: Call, writer: SourceWriter, change: Change, records: Records, edits: list[ResourceEdit]
) -> Change | EarlierChange:
    """``change``, once it is in Git, with an event of each resource; or the one that an earlier attempt made."""
    is_review = call.api.writes == "branch"
    branch = f"{REVIEW_BRANCH}{call.change_id}"
    if is_review and call.is_repeated and (found := writer.find_review(call.change_id)):
        return EarlierChange(branch, found)
    where = f"for a review, in the branch {branch}" if is_review else f"in {writer.name}"
    events = tuple(_events(call, edits, f"{where} by the commit {change.commit.id[:12]}"))
    waiting = WaitingEvents(call.change_id, writer.name, change.commit.id, call.api.clock.now(), events)
    records.outbox.add(waiting)
    try:
        if is_review:
            made, link = writer.publish_review(change.commit, call.change_id)
            change = change._replace(branch=made, review=link)
        else:
            writer.publish(change.commit)
    except PushBroken:  # the remote may have the commit, or get it yet
        raise
    except ReconcilerError:
        records.outbox.discard(waiting)
        raise
    try:
        records.outbox.release(waiting)
    except RecordsError as error:  # the change is in Git, so the answer is not a failure
        log().warning("api", id=call.request_id, message=f"no event of the change yet: {error}")
    return change


def _events(call: Call, edits: list[ResourceEdit], where: str) -> Iterator[NewEvent]:
    """An event with the caller for each resource: what a run does later has the commit alone."""
    for edit in edits:
        action = "deleted" if edit.wanted is None else "created" if edit.was is None else "updated"
        yield NewEvent(edit.key, Reason.CHANGE_COMMITTED, f"{call.caller.principal}: {action} {where}")


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
            elif source is None or clock.now() - waiting.at > PUSH_SECONDS:
                records.outbox.discard(waiting)


def _is_made(writer: SourceWriter, waiting: WaitingEvents) -> bool:
    return waiting.revision == writer.find_request(waiting.id, writer.tip()) or (
        waiting.revision == writer.find_review(waiting.id)
    )


def _refuse_unapplied(writer: SourceWriter, edits: list[ResourceEdit], before: Mapping[str, str | None]) -> None:
    """Refuse to leave everything as it is where the client wants what it saw, and a newer commit has something else."""
    for edit in edits:
        newest = writer.meaning(before[edit.path], edit.key)
        if edit.was == edit.wanted and newest is not None and newest != edit.was:
            raise Problem(409, f"{edit.key} was changed in Git, and that is not applied yet: try again after it is")


def _refuse_conflict(edit: ResourceEdit, base: str | None, theirs: str | None, sealing: Sealing) -> None:
    try:
        check_conflict(edit, base, theirs, sealing)
    except EditConflictError as error:
        raise Problem(409, str(error), {"yours": error.ours, "theirs": error.theirs}) from None


def change_document(change: Change, sees: Callable[[Key], bool], *, dry: bool) -> dict[str, Any]:
    """``change`` as the API shows it to a caller who ``sees`` resources; no diff of a file with secrets."""
    plan = change.planned.plan
    assert plan is not None
    texts = [text for files in (change.before, change.after) for text in files.values() if text is not None]
    paths = sorted(change.after)
    return {
        "branch": change.branch,
        "review": change.review or None,
        "commit": None if dry else change.commit.id,
        "files": paths,
        "diff": "" if any(map(has_secrets, texts)) else "".join(_diff(path, change, sees) for path in paths),
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
    """The difference in a file, as far as the caller sees its documents."""
    before, after = (
        visible_text(files.get(path) or "", change.written, sees) for files in (change.before, change.after)
    )
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
