"""Writes changes to a source: each checked before it reaches the branch, and made anew on newer commits of others.

Changes that wait at the same time are written together: a commit each, one on top of the other, and one push.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from reconciler.changes.commits import REQUEST_TRAILER, REVIEW_BRANCH, Commit, SourceWriter, make_author
from reconciler.changes.edits import (
    EditConflictError,
    check_conflicts,
    edit_files,
    find_data,
    is_in_conflict,
)
from reconciler.changes.requests import ChangeRequest, Document, EarlierChange, ResourceEdit, SeenManifest
from reconciler.changes.sealed import Sealing
from reconciler.changes.text import format_document
from reconciler.clock import Clock
from reconciler.errors import PushBroken, PushConflict, ReconcilerError, RecordsError, RefusedError
from reconciler.logs import log
from reconciler.model.finding import Finding, Severity
from reconciler.model.key import Key, Kind
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.reasons import Reason
from reconciler.records.tables.events import NewEvent, WaitingEvents
from reconciler.secrets.host_files import keyring_of
from reconciler.settings import Settings
from reconciler.times import format_iso_time

TRIES = 10
"""How often a change is made anew on a newer commit."""
FEWER_AFTER = 2
"""The number of tries after which fewer changes are written together."""
PAUSE = 0.05
"""Seconds of the longest pause before the second try; it grows with each, up to ``LONGEST_PAUSE``."""
LONGEST_PAUSE = 1.0


class RevisionRefused(RefusedError):
    """The tree of a change would have ``errors``; ``after`` has the texts of its files."""

    def __init__(self, errors: list[Finding], after: Mapping[str, str | None]) -> None:
        super().__init__("the change is refused: its commit would have errors")
        self.errors = errors
        self.after = after


class CheckedChange(NamedTuple):
    """A checked change: the files before and after, the commit, and what the daemon would do with it."""

    before: Mapping[str, str | None]
    after: Mapping[str, str | None]
    commit: Commit
    planned: PlannedRevision
    branch: str
    edits: tuple[ResourceEdit, ...] = ()
    """What it changes, from what the commit before has to what is wanted."""
    review: str = ""
    """The link to open a review of the branch, as the forge names it; "" for none."""
    unchanged: frozenset[Key] = frozenset()
    """What is in ``edits`` and already as wanted."""

    def actions(self) -> dict[Key, str]:
        """What becomes of each resource: created, updated, deleted, or unchanged."""
        return {edit.key: "unchanged" if edit.key in self.unchanged else _name_action(edit) for edit in self.edits}


Outcome = CheckedChange | EarlierChange | Exception | None
"""What became of a request: a change, one that was made before, an error, or None if there is nothing to change."""


class _Attempt:
    """A request on its way: its edits on the newest commit, and the commits on which it was tried."""

    def __init__(self, request: ChangeRequest) -> None:
        self.request = request
        self.edits = request.edits
        self.first = self.last = ""
        self.conflicts = 0

    def try_on(self, tip: str, edits: tuple[ResourceEdit, ...]) -> None:
        """Continue with ``edits``, made for the commit ``tip``."""
        self.edits = edits
        self.first, self.last = self.first or tip, tip

    def count_conflict(self) -> None:
        """Count a commit of others that came between."""
        self.conflicts += 1


class ChangeWriter:
    """Writes changes by ``writer``; ``is_review``: each goes to a branch of its own, for a review."""

    def __init__(self, settings: Settings, writer: SourceWriter, clock: Clock, *, is_review: bool) -> None:
        self._settings = settings
        self._records = writer.records
        self._clock = clock
        self._is_review = is_review
        self._writer = writer

    def write(self, requests: Sequence[ChangeRequest]) -> list[Outcome]:
        """Write ``requests`` in their order, with one push; returns what became of each. An error of one is its own.

        Raises SourceError if the source cannot be read, so that nothing was written.
        """
        outcomes: dict[int, Outcome] = {}
        pending = {number: _Attempt(request) for number, request in enumerate(requests)}
        size, most = len(pending), len(pending)
        while pending:
            together = dict(islice(pending.items(), size))
            try:
                self._write_together(together, outcomes)
                size, most = min(2 * size, most), most + 1
            except PushConflict as error:
                self._resolve(together, outcomes, error)
                # After some tries, fewer changes are made sooner, before others push again; later, more are tried one
                # by one.
                if min(attempt.conflicts for attempt in together.values()) >= FEWER_AFTER:
                    size = most = max(1, size // 2)
            pending = {number: attempt for number, attempt in pending.items() if number not in outcomes}
        return [outcomes[number] for number in range(len(requests))]

    def _resolve(self, pending: Mapping[int, _Attempt], outcomes: dict[int, Outcome], error: PushConflict) -> None:
        """Wait a moment after a conflict with others, and give up what had too many."""
        for number, attempt in pending.items():
            attempt.count_conflict()
            if attempt.conflicts == TRIES:
                message = f"{error}; nothing was changed after {TRIES} attempts, try again later"
                outcomes[number] = RefusedError(message)
        conflicts = max(attempt.conflicts for attempt in pending.values())
        time.sleep(random.uniform(0, min(PAUSE * 2**conflicts, LONGEST_PAUSE)))

    def _write_together(self, pending: Mapping[int, _Attempt], outcomes: dict[int, Outcome]) -> None:
        """Write ``pending`` with one push; what becomes of them goes to ``outcomes``. Raises PushConflict."""
        changes = self._make_all(pending, outcomes)
        if not changes:
            return
        try:
            outcomes |= self._publish(pending, changes)
        except PushConflict:
            raise
        except PushBroken as error:  # the remote may have the commits, or get them yet
            outcomes |= dict.fromkeys(changes, error)
        except ReconcilerError as error:
            outcomes |= self._publish_alone({number: pending[number] for number in changes}, error)

    def _make_all(self, pending: Mapping[int, _Attempt], outcomes: dict[int, Outcome]) -> dict[int, CheckedChange]:
        """The changes of ``pending``, each on top of the one before; what ends without a push goes to ``outcomes``."""
        parent = tip = self._writer.tip()
        changes: dict[int, CheckedChange] = {}
        for number, attempt in pending.items():
            try:
                change = self._make(attempt, tip, parent)
            except Exception as error:  # noqa: BLE001 - its own request reports it
                outcomes[number] = error
                continue
            if not isinstance(change, CheckedChange) or attempt.request.dry:
                outcomes[number] = change
                continue
            changes[number] = change
            parent = tip if self._is_review else change.commit.id
        return changes

    def _publish_alone(self, pending: Mapping[int, _Attempt], error: ReconcilerError) -> dict[int, Outcome]:
        """Write what the source refused together one by one: it may refuse only some of them."""
        if len(pending) == 1:
            return dict.fromkeys(pending, error)
        outcomes: dict[int, Outcome] = {}
        for number, attempt in pending.items():
            try:
                [outcomes[number]] = self.write([attempt.request])
            except ReconcilerError as refused:
                outcomes[number] = refused
        return outcomes

    def _make(self, attempt: _Attempt, tip: str, parent: str) -> CheckedChange | EarlierChange | None:
        """The change of ``attempt`` on ``parent``; ``tip`` is what the branch has."""
        request, writer = attempt.request, self._writer
        if request.is_repeated and (commit := writer.find_request(request.id, tip, attempt.last)):
            return EarlierChange(writer.branch, commit)
        sealing = self._sealing(parent)
        before = {path: writer.read(parent, path) for path in {edit.path: None for edit in attempt.edits}}
        former = attempt.edits
        if not attempt.first:
            former = tuple(self._rebase_on_seen(edit, before[edit.path], tip) for edit in former)
        elif attempt.first != tip:
            check_conflicts(former, partial(writer.read, attempt.first), partial(writer.read, tip), sealing)
        attempt.try_on(tip, tuple(edit.on(writer.meaning(before[edit.path], edit.key)) for edit in former))
        after = edit_files(list(attempt.edits), before.get, sealing)
        if not after:
            return None
        unread = writer.admit(attempt.edits, before, after)
        change = self._check_commit(attempt, parent, before, after)
        if unread:
            raise RefusedError(f"{unread[0].key} cannot be read in {unread[0].path} after the change")
        return change

    def _sealing(self, commit: str) -> Sealing:
        """What encrypts secrets in a change on top of ``commit``."""
        rule = partial(self._writer.creation_rule, commit)
        policy = self._settings.secrets.policy
        return Sealing(keyring_of(self._settings), policy, rule, format_iso_time(self._clock.now()))

    def _rebase_on_seen(self, edit: ResourceEdit, text: str | None, tip: str) -> ResourceEdit:
        """``edit`` from what its client saw. Raises EditConflictError if it changes what the client did not see."""
        writer, key, desired = self._writer, edit.key, edit.wanted
        theirs = writer.meaning(text, key)
        if edit.seen is None or theirs is None:
            return edit
        seen = text if self._is_newest(edit.seen, text, key) else writer.find_seen(key, edit.path, tip, edit.seen)
        base = writer.meaning(seen, key)
        if edit.patch is not None and base is not None:
            desired = edit.patch(base)
        ours = None if desired is None else writer.normal_form(key, desired)
        if desired is not None and ours is None:
            return edit  # it has faults, with which the check refuses it
        has_data = key.kind is Kind.SECRET and "data" in (desired or {})
        if ours == theirs and not has_data:
            return edit._replace(was=theirs)
        # What an author wrote last is what they saw only as long as nobody else wrote since.
        is_all_lost = base != theirs and (bool(edit.seen.author) or ours in (None, base))
        is_lost = base is None or is_all_lost or is_in_conflict(base, ours, theirs)
        if is_lost or (has_data and find_data(seen, key) != find_data(text, key)):
            raise EditConflictError(key, *_show_versions(key, ours, theirs))
        return edit if edit.patch is not None else edit._replace(was=base)

    def _is_newest(self, seen: SeenManifest, text: str | None, key: Key) -> bool:
        newest = self._writer.resource(text, key)
        return bool(seen.digest) and newest is not None and newest.digest == seen.digest

    def _check_commit(
        self, attempt: _Attempt, parent: str, before: Mapping[str, str | None], after: Mapping[str, str | None]
    ) -> CheckedChange:
        """The commit of ``after``, if the tree that results has no errors and the plan is as expected."""
        request = attempt.request
        message = f"{request.subject}\n\n{REQUEST_TRAILER}: {request.id}"
        commit = self._writer.commit(parent, after, message, make_author(request.principal, self._settings.org))
        planned = self._writer.check(commit)
        errors = [finding for finding in planned.findings if finding.severity is Severity.ERROR]
        if planned.plan is None or errors:
            raise RevisionRefused(errors, after)
        if request.digest and request.digest != planned.plan.digest:
            raise RefusedError(
                f"the plan is {planned.plan.digest} now, and not {request.digest}: show the difference again"
            )
        unchanged = self._find_unchanged(attempt.edits, {**before, **after}, before)
        return CheckedChange(before, after, commit, planned, self._writer.branch, attempt.edits, unchanged=unchanged)

    def _find_unchanged(
        self, edits: Sequence[ResourceEdit], after: Mapping[str, str | None], before: Mapping[str, str | None]
    ) -> frozenset[Key]:
        """The resources of ``edits`` that both texts of their file declare alike."""
        if len(edits) == 1:
            return frozenset()
        texts = ((edit.key, before[edit.path], after[edit.path]) for edit in edits)
        digest = self._writer.digest
        return frozenset(key for key, old, new in texts if old == new or digest(old, key) == digest(new, key))

    def _publish(self, pending: Mapping[int, _Attempt], changes: Mapping[int, CheckedChange]) -> dict[int, Outcome]:
        """Bring ``changes`` into Git, with an event for each resource. Raises PushConflict and PushBroken."""
        if self._is_review:
            return {number: self._publish_review(pending[number].request, change) for number, change in changes.items()}
        waiting = [self._collect_events(pending[number].request, changes[number]) for number in changes]
        for events in waiting:
            self._records.outbox.add(events)
        commits = [change.commit for change in changes.values()]
        try:
            self._writer.publish(Commit(commits[-1].id, commits[0].parent))
        except PushBroken:
            raise
        except ReconcilerError:
            for events in waiting:
                self._records.outbox.discard(events)
            raise
        self._release(waiting)
        return dict(changes)

    def _publish_review(
        self, request: ChangeRequest, change: CheckedChange
    ) -> CheckedChange | EarlierChange | Exception:
        """Create the branch of ``request``. An error is its outcome."""
        writer, waiting = self._writer, self._collect_events(request, change)
        try:
            if request.is_repeated and (commit := writer.find_review(request.id)):
                return EarlierChange(f"{REVIEW_BRANCH}{request.id}", commit)
            self._records.outbox.add(waiting)
            branch, link = writer.publish_review(change.commit, request.id)
        except PushBroken as error:
            return error
        except ReconcilerError as error:
            self._records.outbox.discard(waiting)
            return error
        self._release([waiting])
        return change._replace(branch=branch, review=link)

    def _collect_events(self, request: ChangeRequest, change: CheckedChange) -> WaitingEvents:
        where = (
            f"for a review, in the branch {REVIEW_BRANCH}{request.id}" if self._is_review else f"in {self._writer.name}"
        )
        edits = [edit for edit in change.edits if edit.key not in change.unchanged]
        events = tuple(_make_events(request.principal, edits, f"{where} by the commit {change.commit.id[:12]}"))
        return WaitingEvents(request.id, self._writer.name, change.commit.id, self._clock.now(), events)

    def _release(self, waiting: Sequence[WaitingEvents]) -> None:
        for events in waiting:
            try:
                self._records.outbox.release(events)
            except RecordsError as error:  # the change is in Git, so the answer is not a failure
                log().warning("api", id=events.id, message=f"no event of the change yet: {error}")


def _show_versions(key: Key, ours: Document | None, theirs: Document) -> tuple[str, str]:
    """Both versions as YAML; nothing of a secret."""
    if key.kind is Kind.SECRET:
        return "", ""
    return "" if ours is None else format_document(ours), format_document(theirs)


def _make_events(principal: str, edits: Sequence[ResourceEdit], where: str) -> Iterator[NewEvent]:
    """An event with the caller for each resource: what a run does later has the commit alone."""
    for edit in edits:
        yield NewEvent(edit.key, Reason.CHANGE_COMMITTED, f"{principal}: {_name_action(edit)} {where}")


def _name_action(edit: ResourceEdit) -> str:
    return "deleted" if edit.wanted is None else "created" if edit.was is None else "updated"
