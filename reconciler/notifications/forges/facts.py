"""What the records say of a source: its applied commit, and how the runs of merged commits ended."""

from __future__ import annotations

import msgspec

from reconciler.errors import ReconcilerError
from reconciler.model.finding import Finding
from reconciler.model.record import Failure
from reconciler.model.revision import shorten_revision
from reconciler.notifications.links import make_linker
from reconciler.notifications.message import EventType, Message, MessageResource, State
from reconciler.notifications.outbox import decode_message
from reconciler.records.store import FILE, Records
from reconciler.records.tables.runs import REFUSED, UNREADABLE, Run
from reconciler.records.tables.sources import SourceRow
from reconciler.settings import Settings, SourceSettings
from reconciler.source.repository import Repository
from reconciler.source.source import open_source

MOST_RUNS = 50
"""The most runs in which the outcome of a merged commit is searched."""
MOST_FAILURES = 10
_STATES = {"applied": State.SUCCESS, "unchanged": State.SUCCESS, "failed": State.FAILURE, REFUSED: State.FAILURE}


class SourceFacts(msgspec.Struct, frozen=True):
    """``applied`` is the last loaded commit of a source, "" for none; ``key`` is for digests that nobody can forge.

    ``outcomes`` has the message about each merged commit that a run has reached, by the commit.
    """

    applied: str
    key: bytes
    outcomes: dict[str, Message] = {}


def read_facts(settings: Settings, source: SourceSettings, merged: list[str]) -> SourceFacts:
    """The facts about ``source``; for the commits ``merged`` their outcomes. Raises RecordsError."""
    records = Records.open(settings.state / FILE, read_only=True)
    try:
        row = records.sources.get(source.name)
        outcomes = _find_outcomes(records, settings, source, row, merged) if merged else {}
        return SourceFacts(row.commit if row is not None else "", records.secret_key, outcomes)
    finally:
        records.close()


def read_key(settings: Settings) -> bytes:
    """The key for digests that nobody can forge. Raises RecordsError."""
    records = Records.open(settings.state / FILE, read_only=True)
    try:
        return records.secret_key
    finally:
        records.close()


def _find_outcomes(
    records: Records, settings: Settings, source: SourceSettings, row: SourceRow | None, merged: list[str]
) -> dict[str, Message]:
    try:
        repository = open_source(source, settings.state).repository
    except ReconcilerError:
        return {}
    runs = [run for run in records.runs.list(MOST_RUNS, source.name) if run.finished and run.outcome != UNREADABLE]
    outcomes, make_link = {}, make_linker(settings)
    for commit in merged:
        reached = next((run for run in runs if _has_commit(repository, run.commit, commit)), None)
        if reached is not None:
            failures = records.failures.all(source.name) if reached.outcome == "failed" else []
            message = _describe_run(reached, failures)
            findings = _list_findings(records, settings, message) if reached.outcome == REFUSED else ()
            outcomes[commit] = msgspec.structs.replace(message, findings=findings, link=make_link(message))
        elif row is not None and _has_commit(repository, row.commit, commit):
            outcomes[commit] = _describe_row(row)
    return outcomes


def _has_commit(repository: Repository, newer: str, older: str) -> bool:
    """Whether ``older``, of which the first digits suffice, is ``newer`` or one of its ancestors."""
    if newer.startswith(older):
        return True
    try:
        full = older if len(older) == len(newer) else repository.resolve(older).commit
        return repository.contains(newer, full)
    except ReconcilerError:
        return False


def _describe_run(run: Run, failures: list[Failure]) -> Message:
    state = _STATES.get(run.outcome, State.RUNNING)
    resources = tuple(
        MessageResource(str(failure.key), "", failure.location, str(failure.reason), failure.message)
        for failure in failures[:MOST_FAILURES]
    )
    return Message(
        id=f"run/{run.source}/{run.commit}",
        sequence=run.id,
        event=EventType.RUN,
        state=state,
        title=f"{run.source}: {run.outcome}",
        at=run.finished or run.started,
        source=run.source,
        revision=shorten_revision(run.revision),
        commit=run.commit,
        lines=(run.message,) if run.message else (),
        counts=run.counts,
        resources=resources,
        left_out=max(len(failures) - MOST_FAILURES, 0),
        digest=run.digest,
    )


def _list_findings(records: Records, settings: Settings, message: Message) -> tuple[Finding, ...]:
    """What was found in a refused revision, by what forges are told of it; () if that is not known (any more)."""
    forges = settings.notifications.forges if settings.notifications is not None else ()
    deliveries = (records.deliveries.last(forge, message.id) for forge in forges)
    return next((decode_message(delivery).findings for delivery in deliveries if delivery is not None), ())


def _describe_row(row: SourceRow) -> Message:
    return Message(
        id=f"run/{row.name}/{row.commit}",
        sequence=0,
        event=EventType.RUN,
        state=State.SUCCESS,
        title=f"{row.name}: nothing to do",
        at=0.0,
        source=row.name,
        revision=shorten_revision(f"{row.ref}@sha1:{row.commit}"),
        commit=row.commit,
    )
