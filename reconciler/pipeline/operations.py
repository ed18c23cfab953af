"""What operators say: suspend, resume, roll back, retry, adopt, orphan. Each is a row in the records and an event.

A wake-up tells the daemon, where one runs; else the next run goes by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from reconciler.clock import Clock, iso
from reconciler.errors import RefusedError
from reconciler.model.key import Key
from reconciler.model.revision import Revision
from reconciler.pipeline.line import Line
from reconciler.records.events import Event
from reconciler.records.store import FILE, Records
from reconciler.records.suspensions import source_target
from reconciler.settings import Settings


class Operations:
    """Verbs over one set of records; ``by`` is who says them. Each returns what to tell the operator.

    All raise RefusedError where what is named does not exist, and RecordsError.
    """

    def __init__(self, settings: Settings, records: Records, clock: Clock, by: str) -> None:
        self._settings = settings
        self._records = records
        self._clock = clock
        self._by = by

    def suspend(self, target: str, reason: str, until: float | None) -> str:
        """Leave a source or a resource as it is, until ``until`` (seconds since the epoch; None: until resumed)."""
        name = self._target(target)
        end = f" until {iso(until)}" if until is not None else ""
        with self._said(name, "Suspended", f"{self._by}{end}{_because(reason)}"):
            self._records.suspensions.put(name, reason, self._by, until)
        return f"{target} is suspended{end}; go on with it: reconciler resume {target}"

    def resume(self, target: str) -> str:
        """End the suspension of ``target``, and let a source that was rolled back follow its branch again."""
        name = self._target(target)
        with self._said(name, "Resumed", self._by):
            was = self._records.suspensions.remove(name)
            was |= name == source_target(target) and self._records.pins.remove(target)
            if not was:
                raise RefusedError(f"{target} is neither suspended nor rolled back")
        return f"{target} goes on"

    def rollback(self, source: str, expression: str, reason: str) -> str:
        """Hold ``source`` at the revision that ``expression`` names. Raises SourceError where there is none."""
        revision = self._revision(source, expression)
        with self._said(source_target(source), "RolledBack", f"{self._by}: {expression} ({revision.commit[:12]})"):
            self._records.pins.put(source, revision.commit, expression, reason, self._by)
        return f"{source} is held at {revision.commit[:12]} ({revision.subject}); follow the branch again: " \
               f"reconciler resume {source}"  # fmt: skip

    def retry(self, key: Key) -> str:
        """Try the failed steps of ``key`` again at once, and heal again what was fought over."""
        with self._said(str(key), "RetryRequested", self._by):
            count = self._records.failures.hasten(key, self._clock.now())
            if not count + self._records.heals.forget(key):
                raise RefusedError(f"nothing of {key} has failed; see: reconciler describe {key}")
        return f"{key} is tried again"

    def orphan(self, key: Key) -> str:
        """Keep ``key`` where it is when it leaves Git."""
        self._target(str(key))
        with self._said(str(key), "Orphaned", self._by):
            self._records.orphans.put(key, self._by)
        return f"{key} stays when it leaves Git; take it back: reconciler adopt {key}"

    def adopt(self, key: Key, source: str = "") -> str:
        """Treat an orphan like any other resource again, or let ``source`` own what a removed source left behind."""
        self._target(str(key))
        records = self._records.applied.get(key)
        owner = records[0].source if records else ""
        known = {each.name for each in self._settings.sources}
        with self._said(str(key), "Adopted", self._by):
            was = self._records.orphans.remove(key)
            if owner not in known and records:
                taker = source or self._only_source()
                self._records.applied.put_many(msgspec.structs.replace(each, source=taker) for each in records)
                return f"{key} belongs to the source {taker}, which deletes it where it is not in its Git"
            if not was:
                raise RefusedError(f"{key} is no orphan: the source {owner} owns it")
        return f"{key} is deleted again when it leaves Git"

    def _only_source(self) -> str:
        names = [each.name for each in self._settings.sources]
        if len(names) != 1:
            raise RefusedError(f"say which source takes it, with --source: {', '.join(names)}")
        return names[0]

    def _target(self, text: str) -> str:
        """``text`` as suspensions name it: a source, or a key that is desired or recorded."""
        if any(source.name == text for source in self._settings.sources):
            return source_target(text)
        try:
            key = Key.parse(text)
        except ValueError as error:
            raise RefusedError(f"there is no source {text!r}, and {error}") from None
        if self._records.desired.get(str(key)) is None and not self._records.applied.get(key):
            raise RefusedError(f"there is no {key}, neither in Git nor in the records")
        return str(key)

    def _revision(self, source: str, expression: str) -> Revision:
        found = next((each for each in self._settings.sources if each.name == source), None)
        if found is None:
            raise RefusedError(f"there is no source {source!r}")
        line = Line(self._settings, found, self._records, self._clock)
        line.source.refresh()
        return line.source.revision(expression)

    @contextmanager
    def _said(self, key: str, reason: str, message: str) -> Iterator[None]:
        """What is written within, together with the event that tells it."""
        with self._records.transaction():
            yield
            self._records.events.add_many([Event(self._clock.now(), 0, key, "", "Normal", reason, message)])


def operate(settings: Settings, clock: Clock, by: str, verb: Callable[[Operations], str]) -> str:
    """Carry out ``verb`` on the records of ``settings``, which must exist; returns what to tell the operator."""
    path = settings.state / FILE
    Records.open(path, read_only=True).close()  # where there are none, none are made
    records = Records.open(path, clock_now=clock.now)
    try:
        return verb(Operations(settings, records, clock, by))
    finally:
        records.close()


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
