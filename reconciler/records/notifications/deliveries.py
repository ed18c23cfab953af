"""The outbox of notifications: outcomes that no message was made of yet, and deliveries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from reconciler.records.database import Database

KEEP_DELIVERIES = 100_000
"""The most deliveries that are remembered, those that wait included."""

KEEP_NOTICES = 10_000
"""The most outcomes that wait for a daemon to make messages of them."""

SEQUENCE, CURSOR = "notification_sequence", "notification_cursor"
"""Names of the rows in ``meta`` with the last sequence, and with the last event of which messages were made."""

APPLIED = "notification_applied/"
"""How the names of the rows in ``meta`` begin that have the commit which a source has, and since when."""

COMMIT = "notification_commit/"
"""The same for the commit that its runs are about, whether it was applied or not."""

_COLUMNS = (
    "rule, channel, thing, source, state, sequence, fingerprint, message, created, due, status, tries, may_repeat, "
    "ended, reference, answer, id"
)


class DeliveryStatus(StrEnum):
    """How far a delivery is; the last five are ends. What is collected becomes part of a digest, when that is due."""

    COLLECTED = "collected"
    WAITING = "waiting"
    SENDING = "sending"
    SENT = "sent"
    REFUSED = "refused"
    EXPIRED = "expired"
    DIGESTED = "digested"
    MUTED = "muted"


class Delivery(msgspec.Struct, frozen=True):
    """One message for one channel by one rule. Times are in seconds since the epoch.

    ``thing`` is what it is about, ``state`` how far that is, and ``fingerprint`` what of it counts as a change. It is
    sent from ``due``, for up to ``tries``; ``may_repeat`` says that one was cut off. ``reference`` is the name of the
    message at its receiver, ``answer`` what the receiver said last.
    """

    rule: str
    channel: str
    thing: str
    source: str
    state: str
    sequence: int
    fingerprint: str
    message: bytes
    created: float
    due: float
    status: DeliveryStatus = DeliveryStatus.WAITING
    tries: int = 0
    may_repeat: bool = False
    ended: float | None = None
    reference: str = ""
    answer: str = ""
    id: int = 0


class Deliveries:
    """Deliveries in the order in which they were made."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def next_sequence(self) -> int:
        """A number larger than any before."""
        sql = """INSERT INTO meta VALUES (?, 1) ON CONFLICT DO UPDATE SET value = value + 1 RETURNING value"""
        with self._db.transaction():
            return int(self._db.write(sql, (SEQUENCE,)).fetchone()[0])

    def add(self, delivery: Delivery) -> int:
        """Append ``delivery``, drop the oldest beyond KEEP_DELIVERIES, and return its number."""
        row = msgspec.structs.astuple(delivery)[:-1]
        marks = ", ".join("?" * len(row))
        sql = f"INSERT INTO deliveries ({_COLUMNS.removesuffix(', id')}) VALUES ({marks})"
        with self._db.transaction():
            number = int(self._db.write(sql, row).lastrowid or 0)
            self._db.write("DELETE FROM deliveries WHERE id <= ?", (number - KEEP_DELIVERIES,))
        return number

    def replace_waiting(self, delivery: Delivery) -> None:
        """Replace the content of a delivery that still waits."""
        sql = """UPDATE deliveries SET state = ?, sequence = ?, fingerprint = ?, message = ?
            WHERE id = ? AND status IN ('collected', 'waiting')"""
        content = (delivery.state, delivery.sequence, delivery.fingerprint, delivery.message)
        self._db.write(sql, (*content, delivery.id))

    def get(self, number: int) -> Delivery | None:
        """The delivery ``number``; None if there is none, or not any more."""
        return self._one("WHERE id = ?", (number,))

    def last(self, channel: str, thing: str) -> Delivery | None:
        """The newest delivery to ``channel`` about ``thing``."""
        return self._one("WHERE channel = ? AND thing = ? ORDER BY id DESC LIMIT 1", (channel, thing))

    def find_reference(self, delivery: Delivery) -> str:
        """What the receiver calls the last message about the same thing, "" if it has none."""
        sql = """SELECT reference FROM deliveries WHERE channel = ? AND thing = ? AND reference <> ''
            ORDER BY id DESC LIMIT 1"""
        return str(self._db.value(sql, (delivery.channel, delivery.thing)) or "")

    def list_unfinished(self, source: str) -> Sequence[Delivery]:
        """The newest delivery about each thing of ``source`` that was pending or running in it."""
        where = """AS mine WHERE source = ? AND state IN ('pending', 'running') AND NOT EXISTS (SELECT 1
            FROM deliveries AS later WHERE later.channel = mine.channel AND later.thing = mine.thing
            AND later.id > mine.id) ORDER BY id"""
        return self._all(where, (source,))

    def list_unfinished_sources(self) -> list[str]:
        """The sources of which something was ever pending or running, sorted."""
        # One step in the index for each: DISTINCT reads all of it.
        sql = "SELECT min(source) FROM deliveries WHERE source > ? AND state IN ('pending', 'running')"
        sources: list[str] = []
        while (source := self._db.value(sql, (sources[-1] if sources else "",))) is not None:
            sources.append(source)
        return sources

    def has_unfinished(self, channel: str, source: str) -> bool:
        """Whether anything of ``source`` is pending or running in ``channel``, or waits for it."""
        sql = "SELECT 1 FROM deliveries WHERE channel = ? AND source = ? AND status IN ('waiting', 'sending') LIMIT 1"
        is_waiting = self._db.value(sql, (channel, source)) is not None
        return is_waiting or any(one.channel == channel for one in self.list_unfinished(source))

    def next_waiting(self, channel: str, now: float, after: int = 0) -> Delivery | None:
        """The first delivery to ``channel`` with a number above ``after`` that is due at ``now``.

        Of several about one thing, only the first one is due: a thing proceeds.
        """
        where = """AS mine WHERE channel = ? AND status = 'waiting' AND due <= ? AND id > ? AND NOT EXISTS (SELECT 1
            FROM deliveries AS former WHERE former.channel = mine.channel AND former.thing = mine.thing
            AND former.id < mine.id AND former.status IN ('waiting', 'sending')) ORDER BY id LIMIT 1"""
        return self._one(where, (channel, now, after))

    def find_newer(self, delivery: Delivery) -> int | None:
        """The number of a later delivery about the same thing that waits, too."""
        sql = """SELECT max(id) FROM deliveries WHERE channel = ? AND thing = ? AND id > ? AND status = 'waiting'"""
        number: int | None = self._db.value(sql, (delivery.channel, delivery.thing, delivery.id))
        return number

    def list_collected(self, now: float) -> Sequence[Delivery]:
        """What is part of a digest that is due at ``now``, in order."""
        # In the order of the index: by number alone, SQLite reads all that were ever sent.
        return self._all("WHERE status = 'collected' AND due <= ? ORDER BY due, id", (now,))

    def next_due(self) -> float | None:
        """When the next delivery or digest is due, None if none waits."""
        sql = "SELECT min(due) FROM deliveries WHERE status = ?"
        times = (self._db.value(sql, (status,)) for status in ("waiting", "collected"))
        return min((due for due in times if due is not None), default=None)

    def begin(self, number: int) -> None:
        """Record that the delivery is being sent, before that begins."""
        self._db.write("UPDATE deliveries SET status = 'sending', tries = tries + 1 WHERE id = ?", (number,))

    def wait_again(self, number: int, answer: str, due: float, *, may_repeat: bool) -> None:
        """Record that a try failed with ``answer``, and that the delivery is tried again from ``due``."""
        sql = """UPDATE deliveries SET status = 'waiting', answer = ?, due = ?, may_repeat = max(may_repeat, ?)
            WHERE id = ?"""
        self._db.write(sql, (answer, due, may_repeat, number))

    def end(self, number: int, status: DeliveryStatus, at: float, answer: str = "", reference: str = "") -> None:
        """Record how a delivery ended."""
        sql = "UPDATE deliveries SET status = ?, ended = ?, answer = ?, reference = ? WHERE id = ?"
        self._db.write(sql, (str(status), at, answer, reference, number))

    def recover(self, channel: str | None = None) -> int:
        """Let what was cut off while it was sent, to ``channel`` or (None) to any, wait again, marked; returns the
        number."""
        sql = """UPDATE deliveries SET status = 'waiting', may_repeat = 1
            WHERE status = 'sending' AND ifnull(?, channel) = channel"""
        return self._db.write(sql, (channel,)).rowcount

    def drop_channels(self, channels: Sequence[str], at: float) -> None:
        """End what waits for a channel that is none of ``channels``: the settings have it no longer."""
        names = msgspec.json.encode(list(channels)).decode()
        with self._db.transaction():
            for status in ("collected", "waiting", "sending"):  # each has an index
                sql = f"""UPDATE deliveries SET status = 'expired', ended = ?,
                    answer = 'the settings have no such channel'
                    WHERE status = '{status}' AND channel NOT IN (SELECT value FROM json_each(?))"""
                self._db.write(sql, (at, names))

    def drop_rules(self, prefix: str, channels: Mapping[str, Sequence[str]], at: float) -> None:
        """End what waits by a rule whose name begins with ``prefix``, and for none of its ``channels``."""
        pairs = [f"{rule} {channel}" for rule, names in channels.items() for channel in names]
        names = msgspec.json.encode(pairs).decode()
        with self._db.transaction():
            for status in ("collected", "waiting"):
                sql = f"""UPDATE deliveries SET status = 'expired', ended = ?,
                    answer = 'its rule is no more, or does not name the channel'
                    WHERE status = '{status}' AND substr(rule, 1, ?) = ?
                    AND rule || ' ' || channel NOT IN (SELECT value FROM json_each(?))"""
                self._db.write(sql, (at, len(prefix), prefix, names))

    def list(self, limit: int = 100) -> Sequence[Delivery]:
        """The last ``limit`` deliveries, newest first."""
        return self._all("ORDER BY id DESC LIMIT ?", (limit,))

    def count_waiting(self, channel: str) -> int:
        """How many deliveries wait for ``channel``."""
        sql = "SELECT count(*) FROM deliveries WHERE channel = ? AND status IN ('waiting', 'sending')"
        return int(self._db.value(sql, (channel,)))

    def _one(self, where: str, args: Sequence[Any]) -> Delivery | None:
        row = self._db.one(f"SELECT {_COLUMNS} FROM deliveries {where}", args)
        return None if row is None else _read_delivery(row)

    def _all(self, where: str, args: Sequence[Any]) -> Sequence[Delivery]:
        return [_read_delivery(row) for row in self._db.all(f"SELECT {_COLUMNS} FROM deliveries {where}", args)]


def _read_delivery(row: tuple[Any, ...]) -> Delivery:
    status, tries, may_repeat = row[10:13]
    values: tuple[Any, ...] = (*row[:10], DeliveryStatus(status), tries, bool(may_repeat), *row[13:])
    return Delivery(*values)


class Notice(NamedTuple):
    """An outcome of ``source`` at ``at``; ``body`` is encoded by reconciler/notifications/outcomes.py."""

    id: int
    at: float
    source: str
    body: bytes


class Notices:
    """Outcomes, written with what they report, until messages are made of them."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def append(self, source: str, body: bytes) -> None:
        """Append an outcome with the current time; drop the oldest beyond KEEP_NOTICES."""
        with self._db.transaction():
            sql = "INSERT INTO notices (at, source, body) VALUES (?, ?, ?)"
            number = int(self._db.write(sql, (self._now(), source, body)).lastrowid or 0)
            self._db.write("DELETE FROM notices WHERE id <= ?", (number - KEEP_NOTICES,))

    def list(self, limit: int) -> Sequence[Notice]:
        """The first ``limit`` outcomes, oldest first."""
        sql = "SELECT id, at, source, body FROM notices ORDER BY id LIMIT ?"
        return [Notice(*row) for row in self._db.all(sql, (limit,))]

    def drop(self, until: int) -> None:
        """Drop the outcomes with numbers up to ``until``."""
        self._db.write("DELETE FROM notices WHERE id <= ?", (until,))

    def cursor(self) -> int | None:
        """The number of the last event of which messages were made, None if none were ever made."""
        number: int | None = self._db.value("SELECT value FROM meta WHERE name = ?", (CURSOR,))
        return number

    def set_cursor(self, event: int) -> None:
        """Record that messages were made of all events up to ``event``."""
        self._db.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (CURSOR, event))

    def follow_commit(self, source: str, commit: str, at: float, *, recovers: bool) -> float:
        """Record that ``source`` has ``commit`` at ``at``; returns since when, 0 for the first commit.

        A commit that ``recovers`` its source is a new one, though it was applied before.
        """
        name = f"{APPLIED}{source}"
        row = self._db.value("SELECT value FROM meta WHERE name = ?", (name,))
        former, since = ("", 0.0) if row is None else msgspec.json.decode(row, type=tuple[str, float])
        if former == commit and not recovers:
            return since
        since = at if former or recovers else 0.0
        self._db.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, msgspec.json.encode((commit, since))))
        return since

    def come_to_commit(self, source: str, commit: str, at: float) -> float:
        """Record that runs of ``source`` are about ``commit`` at ``at``; returns since when, 0 for the first commit."""
        former, since = self._find_commit(source)
        if former == commit:
            return since
        since = 0.0 if former is None else at
        self._put_commit(source, commit, since)
        return since

    def leave_commits(self, sources: Sequence[str], at: float) -> None:
        """Record that other sources than ``sources`` are at no commit: the settings have them no longer."""
        rows = self._db.all("SELECT name FROM meta WHERE substr(name, 1, ?) = ?", (len(COMMIT), COMMIT))
        for source in {name.removeprefix(COMMIT) for (name,) in rows}.difference(sources):
            if self._find_commit(source)[0]:
                self._put_commit(source, "", at)

    def _find_commit(self, source: str) -> tuple[str | None, float]:
        row = self._db.value("SELECT value FROM meta WHERE name = ?", (f"{COMMIT}{source}",))
        return (None, 0.0) if row is None else msgspec.json.decode(row, type=tuple[str, float])

    def _put_commit(self, source: str, commit: str, since: float) -> None:
        row = (f"{COMMIT}{source}", msgspec.json.encode((commit, since)))
        self._db.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", row)

    def skip_events(self) -> None:
        """Make no messages of the events so far."""
        self.set_cursor(int(self._db.value("SELECT coalesce(max(id), 0) FROM events")))

    def forget(self) -> None:
        """Forget what waits, and all that is open: the settings have no notifications."""
        if self.cursor() is None:
            return
        with self._db.transaction():
            self._db.write("DELETE FROM meta WHERE name = ?", (CURSOR,))
            for prefix in (APPLIED, COMMIT):
                self._db.write("DELETE FROM meta WHERE substr(name, 1, ?) = ?", (len(prefix), prefix))
            for table in ("notices", "troubles", "trouble_groups"):
                self._db.write(f"DELETE FROM {table}")
            self._db.write("DELETE FROM deliveries WHERE status IN ('collected', 'waiting', 'sending')")
