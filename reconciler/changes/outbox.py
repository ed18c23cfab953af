"""Events of changes whose request had no end: released once their commit is in Git, dropped if it never gets there."""

from __future__ import annotations

from contextlib import closing

from reconciler.changes.writers import SourceWriters
from reconciler.clock import Clock
from reconciler.errors import SourceError
from reconciler.logs import log
from reconciler.records.store import Records
from reconciler.records.tables.events import WaitingEvents
from reconciler.settings import Settings, SourceSettings

PUSH_SECONDS = 600.0
"""Seconds after which no remote takes a commit any more whose push broke."""


def release_events(settings: Settings, writers: SourceWriters, clock: Clock) -> None:
    """Append the events of changes that are in Git, and whose request ended before: the process did, or a push broke.

    A change that is not in Git after ``PUSH_SECONDS`` was never made.
    """
    with closing(Records.open_existing(settings.state, clock)) as records:
        for waiting in records.outbox.all():
            source = next((source for source in settings.sources if source.name == waiting.source), None)
            try:
                is_made = source is not None and _find_commit(writers, source, waiting)
            except SourceError as error:
                log().warning("api", source=waiting.source, message=f"no event of the change {waiting.id} yet: {error}")
                continue
            if is_made:
                records.outbox.release(waiting)
            elif source is None or clock.expiry().is_over(waiting.at + PUSH_SECONDS, waiting.at):
                records.outbox.discard(waiting)


def _find_commit(writers: SourceWriters, source: SourceSettings, waiting: WaitingEvents) -> bool:
    """Whether the commit of ``waiting`` is in its branch, or in one for a review."""
    with writers.borrow(source) as writer:
        in_branch = writer.find_request(waiting.id, writer.tip())
        return waiting.revision == in_branch or waiting.revision == writer.find_review(waiting.id)
