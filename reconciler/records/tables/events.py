"""Events for people, in a bounded list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from reconciler.printable import truncate_text
from reconciler.reasons import Reason
from reconciler.records.database import Database
from reconciler.records.sql import AnyKey


class NewEvent(NamedTuple):
    """An event to append. ``key`` is empty for an event of the daemon, ``run`` is 0 without a run."""

    key: AnyKey
    reason: Reason
    message: str
    location: str = ""
    run: int = 0


class Event(msgspec.Struct, frozen=True):
    """Something that happened to ``key`` (``""``: to the daemon) at ``at``, seconds since the epoch.

    ``type`` is Normal or Warning. ``id`` increases with every event.
    """

    at: float
    run: int
    key: str
    location: str
    type: str
    reason: str
    message: str
    id: int = 0


class Events:
    """Events in the order in which they were added."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def append(self, key: AnyKey, reason: Reason, message: str, *, location: str = "", run: int = 0) -> None:
        """Append an event with the current time. Its type is that of ``reason``; the message becomes one line of 500
        characters."""
        self.append_many([NewEvent(key, reason, message, location, run)])

    def append_many(self, events: Iterable[NewEvent]) -> None:
        """Append each of ``events`` as ``append`` does, all or none."""
        now = self._now()
        self._db.write_many(
            "INSERT INTO events (at, run, key, location, type, reason, message) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (now, run, str(key), location, reason.event_type.value, reason.value, truncate_text(message))
                for key, reason, message, location, run in events
            ),
        )

    def list(self, key: AnyKey | None = None, after_id: int | None = None, limit: int = 1000) -> Sequence[Event]:
        """Events of ``key`` or of all, oldest first: the first ``limit`` after ``after_id``, or (None) the last."""
        order = "DESC" if after_id is None else "ASC"
        where, args = ("", ()) if key is None else ("key = ? AND ", (str(key),))
        rows = self._db.all(
            f"""SELECT at, run, key, location, type, reason, message, id FROM events
            WHERE {where}id > ? ORDER BY id {order} LIMIT ?""",
            (*args, after_id or 0, limit),
        )
        return [Event(*row) for row in (reversed(rows) if after_id is None else rows)]

    def first_warning_since(self, key: AnyKey, reason: Reason) -> float | None:
        """When ``key`` had its first warning after its last event with ``reason``; None if it has had none since."""
        sql = """SELECT min(at) FROM events WHERE key = ?1 AND type = 'Warning'
            AND id > coalesce((SELECT max(id) FROM events WHERE key = ?1 AND reason = ?2), 0)"""
        row = self._db.one(sql, (str(key), str(reason)))
        return row[0] if row is not None else None

    def of_run(self, run: int, limit: int) -> Sequence[Event]:
        """The first ``limit`` events of ``run``, oldest first; reads all events."""
        sql = "SELECT at, run, key, location, type, reason, message, id FROM events WHERE run = ? ORDER BY id LIMIT ?"
        return [Event(*row) for row in self._db.all(sql, (run, limit))]

    def mentions(self, key: AnyKey) -> bool:
        """Whether there is any event of ``key``."""
        return self._db.one("SELECT 1 FROM events WHERE key = ? LIMIT 1", (str(key),)) is not None

    def mentions_gvc(self, name: str) -> bool:
        """Whether there is any event of the GVC ``name`` or its resources; reads all events, so use it only for error
        cases."""
        sql = "SELECT 1 FROM events WHERE key = ? OR instr(key, ?) LIMIT 1"
        return self._db.one(sql, (f"gvc/{name}", f"/{name}/")) is not None

    def trim(self, keep: int) -> None:
        """Drop all but the last ``keep`` events."""
        self._db.write("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (keep,))


class WaitingEvents(NamedTuple):
    """Events of the change ``id``, which are true once ``source`` has its commit ``revision``.

    ``at`` is seconds since the epoch.
    """

    id: str
    source: str
    revision: str
    at: float
    events: tuple[NewEvent, ...]


class _StoredEvent(msgspec.Struct, frozen=True, array_like=True):
    key: str
    reason: str
    message: str


class Outbox:
    """Events that are stored before what they report, so that they are appended once even after a crash."""

    def __init__(self, database: Database, events: Events) -> None:
        self._db = database
        self._events = events

    def add(self, waiting: WaitingEvents) -> None:
        """Store ``waiting``, in place of those of an earlier attempt."""
        stored = [_StoredEvent(str(event.key), event.reason.value, event.message) for event in waiting.events]
        row = (waiting.id, waiting.source, waiting.revision, waiting.at, msgspec.json.encode(stored))
        self._db.write("INSERT OR REPLACE INTO outbox VALUES (?, ?, ?, ?, ?)", row)

    def all(self) -> list[WaitingEvents]:
        """What waits, oldest first."""
        rows = self._db.all("SELECT id, source, revision, at, events FROM outbox ORDER BY at, id")
        return [
            WaitingEvents(id_, source, revision, at, tuple(_decode_waiting_events(events)))
            for id_, source, revision, at, events in rows
        ]

    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return self._db.one("SELECT 1 FROM outbox LIMIT 1") is None

    def release(self, waiting: WaitingEvents) -> None:
        """Append the events of ``waiting``, unless that was done before."""
        with self._db.transaction():
            if self.discard(waiting):
                self._events.append_many(waiting.events)

    def discard(self, waiting: WaitingEvents) -> bool:
        """Forget ``waiting``; returns whether it was still there."""
        sql = "DELETE FROM outbox WHERE id = ? AND revision = ?"
        return self._db.write(sql, (waiting.id, waiting.revision)).rowcount > 0


def _decode_waiting_events(stored: bytes) -> Iterable[NewEvent]:
    events = msgspec.json.decode(stored, type=list[_StoredEvent])
    return (NewEvent(event.key, Reason.from_stored(event.reason), event.message) for event in events)
