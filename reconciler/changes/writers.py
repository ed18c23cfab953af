"""The writers of all sources: made once a process, each used by one thread at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from reconciler.changes.requests import ChangeRequest, EarlierChange
from reconciler.clock import Clock
from reconciler.errors import SourceError
from reconciler.model.key import Key
from reconciler.settings import Settings, SourceSettings

if TYPE_CHECKING:  # what only writes need takes 15 MB: the first write loads it
    from reconciler.changes.commits import SourceWriter
    from reconciler.changes.write import Outcome


class SourceWriters:
    """Writes to the sources of ``settings``. Methods may be called in any thread; they raise RecordsError.

    An idle writer of each source stays open, with its own connection to the records, so that a change opens neither
    again. One whose use raised an error is closed instead.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = Lock()
        self._idle: dict[str, SourceWriter] = {}
        self._is_closed = False

    def write(self, source: SourceSettings, requests: Sequence[ChangeRequest], *, is_review: bool) -> list[Outcome]:
        """Write ``requests`` to ``source``, with one push; see ``ChangeWriter``. Raises SourceError."""
        from reconciler.changes.write import ChangeWriter

        with self.borrow(source) as writer:
            return ChangeWriter(self._settings, writer, self._clock, is_review=is_review).write(requests)

    def find_declaring_source(self, key: Key) -> SourceSettings | None:
        """The source whose newest commit adds ``key``, which no run has read yet; None if none does."""
        for source in self._writable():
            try:
                with self.borrow(source) as writer:
                    if writer.adds(key):
                        return source
            except SourceError:  # what cannot be read declares nothing here, and its own condition says why
                continue
        return None

    def find_change(self, request_id: str) -> EarlierChange | None:
        """The change of ``request_id`` as far as this host knows; to write asks the remotes too. Raises SourceError."""
        for source in self._writable():
            with self.borrow(source) as writer:
                if commit := writer.find_request(request_id, writer.known_tip()):
                    return EarlierChange(writer.branch, commit)
        return None

    @contextmanager
    def borrow(self, source: SourceSettings) -> Iterator[SourceWriter]:
        """A writer of ``source`` for this thread. Raises RefusedError if nothing can be written there, SourceError."""
        with self._lock:
            writer = self._idle.pop(source.name, None)
        is_new = writer is None
        writer = writer or self._open(source)
        try:
            if not is_new:
                writer.renew()
            yield writer
        except BaseException:
            writer.close()
            raise
        with self._lock:
            if not self._is_closed and source.name not in self._idle:
                self._idle[source.name] = writer
                return
        writer.close()

    def close(self) -> None:
        """Close the idle writers; each other one is closed after its use."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = [*self._idle.values()], {}
        for writer in idle:
            writer.close()

    def _writable(self) -> Iterator[SourceSettings]:
        return (source for source in self._settings.sources if source.branch and not source.read_only)

    def _open(self, source: SourceSettings) -> SourceWriter:
        from reconciler.changes.commits import SourceWriter
        from reconciler.records.store import Records

        records = Records.open_existing(self._settings.state, self._clock)
        try:
            return SourceWriter(self._settings, source, records, self._clock)
        except BaseException:
            records.close()
            raise
