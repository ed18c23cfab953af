"""What notifications record about what is wrong: open troubles, what was said about them, and mutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from reconciler.records.database import Database
from reconciler.records.sql import Expiry, time_of, time_parameters


class Trouble(msgspec.Struct, frozen=True):
    """Something that is wrong with ``key`` (a resource, ``source/NAME``, or "" for the daemon) since ``since``.

    ``event`` is the kind of it. ``once`` is true for a fact, which nothing ends. ``cause`` stays as it was at first.
    """

    event: str
    key: str
    location: str
    source: str
    reason: str
    message: str
    since: float
    once: bool = False
    cause: str = ""


class TroubleGroup(msgspec.Struct, frozen=True):
    """What a channel was sent about the troubles of one kind and cause.

    ``reported`` are the keys that the last message named as troubled, ``severity`` the worst that was said of them, and
    ``sources`` those that they had, in order. ``last`` is its time (0: there was none), ``due`` that of the next one,
    None if nothing changed. ``changes`` counts what changed since, ``incident`` the messages that said that all is well
    again. With ``is_inhibited``, something of it waits for the end of a suspension, or for a location.
    """

    channel: str
    event: str
    cause: str
    sources: tuple[str, ...] = ()
    incident: int = 0
    reported: tuple[str, ...] = ()
    severity: str = ""
    last: float = 0.0
    due: float | None = None
    changes: int = 0
    is_inhibited: bool = False


class Troubles:
    """What is wrong now, and what was said about it."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def open(self, trouble: Trouble) -> None:
        """Record ``trouble``; if it is there with its cause, its newest reason and message."""
        sql = """INSERT INTO troubles VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
            reason = excluded.reason, message = excluded.message, once = min(once, excluded.once),
            since = iif(min(once, excluded.once), excluded.since, since)"""
        self._db.write(sql, msgspec.structs.astuple(trouble))

    def move(self, trouble: Trouble, source: str) -> None:
        """Let ``trouble`` be one of ``source``."""
        sql = "UPDATE troubles SET source = ? WHERE event = ? AND key = ? AND location = ? AND cause = ?"
        self._db.write(sql, (source, trouble.event, trouble.key, trouble.location, trouble.cause))

    def find(self, event: str, key: str, location: str) -> Sequence[Trouble]:
        """The troubles of a kind with ``key`` at ``location``, in order of cause."""
        sql = "SELECT * FROM troubles WHERE event = ? AND key = ? AND location = ? ORDER BY cause"
        return [_read_trouble(row) for row in self._db.all(sql, (event, key, location))]

    def close(self, event: str, key: str, location: str | None = None, *, facts: bool = True) -> Sequence[Trouble]:
        """Remove the troubles of a kind with ``key`` at ``location`` (None: at all); returns them.

        Without ``facts``, those stay that nothing ends.
        """
        sql = """DELETE FROM troubles WHERE event = ? AND key = ? AND ifnull(?, location) = location AND once <= ?
            RETURNING *"""
        with self._db.transaction():
            return [_read_trouble(row) for row in self._db.write(sql, (event, key, location, facts)).fetchall()]

    def of_key(self, key: str) -> Sequence[Trouble]:
        """All troubles of ``key``."""
        sql = "SELECT * FROM troubles WHERE key = ? ORDER BY event, location"
        return [_read_trouble(row) for row in self._db.all(sql, (key,))]

    def all(self) -> Sequence[Trouble]:
        """All troubles, in order of kind, key and location."""
        return [_read_trouble(row) for row in self._db.all("SELECT * FROM troubles ORDER BY event, key, location")]

    def list(self, event: str, cause: str) -> Sequence[Trouble]:
        """The troubles of a kind and cause, in order of key and location."""
        sql = "SELECT * FROM troubles WHERE event = ? AND cause = ? ORDER BY key, location"
        return [_read_trouble(row) for row in self._db.all(sql, (event, cause))]

    def list_at(self, event: str, location: str) -> Sequence[Trouble]:
        """The troubles of a kind at ``location``, in order of key."""
        sql = "SELECT * FROM troubles WHERE event = ? AND location = ? ORDER BY key"
        return [_read_trouble(row) for row in self._db.all(sql, (event, location))]

    def list_keys(self, event: str, cause: str) -> Sequence[str]:
        """The keys of the troubles of a kind and cause."""
        return [
            row[0] for row in self._db.all("SELECT key FROM troubles WHERE event = ? AND cause = ?", (event, cause))
        ]

    def has_cause(self, event: str, cause: str) -> bool:
        """Whether there is a trouble of a kind and cause."""
        sql = "SELECT 1 FROM troubles WHERE event = ? AND cause = ? LIMIT 1"
        return self._db.one(sql, (event, cause)) is not None

    def merge_causes(self, event: str, causes: Sequence[str], cause: str) -> None:
        """Let ``causes`` of a kind be one ``cause``, also for the channels that were to be told of them."""
        names = msgspec.json.encode(causes).decode()
        chosen = "event = ? AND cause IN (SELECT value FROM json_each(?))"
        with self._db.transaction():
            self._db.write(f"UPDATE OR REPLACE troubles SET cause = ? WHERE {chosen}", (cause, event, names))
            sql = f"""SELECT channel, min(due), sum(changes) FROM trouble_groups WHERE {chosen} AND due IS NOT NULL
                GROUP BY channel"""
            for channel, due, changes in self._db.all(sql, (event, names)):
                group = self.group(channel, event, cause)
                first = due if group.due is None else min(group.due, due)
                self.put_group(msgspec.structs.replace(group, due=first, changes=group.changes + changes))
            self._db.write(f"DELETE FROM trouble_groups WHERE {chosen}", (event, names))

    def group(self, channel: str, event: str, cause: str) -> TroubleGroup:
        """What ``channel`` was sent about the troubles of a kind and cause."""
        sql = "SELECT * FROM trouble_groups WHERE channel = ? AND event = ? AND cause = ?"
        row = self._db.one(sql, (channel, event, cause))
        return TroubleGroup(channel, event, cause) if row is None else _read_group(row)

    def timer(self, channel: str, event: str, cause: str) -> TroubleGroup:
        """The group without what was reported, which may be much; for ``set_timer``."""
        sql = """SELECT due, last, changes, is_inhibited FROM trouble_groups
            WHERE channel = ? AND event = ? AND cause = ?"""
        row = self._db.one(sql, (channel, event, cause)) or (None, 0.0, 0, 0)
        group = TroubleGroup(channel, event, cause, due=row[0], last=row[1], changes=row[2])
        return msgspec.structs.replace(group, is_inhibited=bool(row[3]))

    def set_timer(self, group: TroubleGroup) -> None:
        """Record when ``group`` is due, and how much of it changed."""
        sql = """INSERT INTO trouble_groups VALUES (?, ?, ?, '', 0, '[]', '', 0, ?, ?, 0)
            ON CONFLICT DO UPDATE SET due = excluded.due, changes = excluded.changes"""
        self._db.write(sql, (group.channel, group.event, group.cause, group.due, group.changes))

    def due_groups(self, now: float) -> Sequence[TroubleGroup]:
        """The groups about which something is to be said at ``now``."""
        sql = "SELECT * FROM trouble_groups WHERE due <= ? ORDER BY due, channel, event, cause"
        return [_read_group(row) for row in self._db.all(sql, (now,))]

    def list_unreported(self, event: str) -> Sequence[str]:
        """The causes of a kind of which channels are to be told, and none was."""
        sql = """SELECT cause FROM trouble_groups WHERE event = ? GROUP BY cause
            HAVING max(reported <> '[]') = 0 AND count(due) > 0 ORDER BY cause"""
        return [row[0] for row in self._db.all(sql, (event,))]

    def wake_inhibited(self, now: float) -> None:
        """Look at once at the groups that wait for the end of a suspension, or for a location."""
        self._db.write("UPDATE trouble_groups SET due = ? WHERE is_inhibited AND due > ?", (now, now))

    def wake_reported(self, now: float) -> None:
        """Look at once at the groups that were reported: the rules changed, and some may be of no channel any more."""
        self._db.write("UPDATE trouble_groups SET due = ? WHERE due IS NULL AND reported <> '[]'", (now,))

    def sweep(self, before: float) -> None:
        """Forget facts that nobody is to be told of any more, and what was said before ``before`` and is over."""
        sql = """DELETE FROM troubles WHERE once AND NOT EXISTS (SELECT 1 FROM trouble_groups AS sent
            WHERE sent.event = troubles.event AND sent.cause = troubles.cause AND sent.due IS NOT NULL)"""
        self._db.write(sql)
        self._db.write("DELETE FROM trouble_groups WHERE due IS NULL AND reported = '[]' AND last < ?", (before,))

    def next_due(self) -> float | None:
        """When the next group is due."""
        due: float | None = self._db.value("SELECT min(due) FROM trouble_groups")
        return due

    def drop_groups(self, channels: Sequence[str]) -> None:
        """Forget what was said to channels that are none of ``channels``."""
        sql = "DELETE FROM trouble_groups WHERE channel NOT IN (SELECT value FROM json_each(?))"
        self._db.write(sql, (msgspec.json.encode(channels).decode(),))

    def put_group(self, group: TroubleGroup) -> None:
        """Record ``group``."""
        row = list(msgspec.structs.astuple(group))
        row[3] = " ".join(group.sources)
        row[5] = msgspec.json.encode(group.reported).decode()
        self._db.write("INSERT OR REPLACE INTO trouble_groups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", tuple(row))


def _read_trouble(row: tuple[Any, ...]) -> Trouble:
    values: tuple[Any, ...] = (*row[:7], bool(row[7]), row[8])
    return Trouble(*values)


def _read_group(row: tuple[Any, ...]) -> TroubleGroup:
    reported = msgspec.json.decode(row[5], type=tuple[str, ...])
    values: tuple[Any, ...] = (*row[:3], tuple(row[3].split()), row[4], reported, *row[6:10], bool(row[10]))
    return TroubleGroup(*values)


class Mute(msgspec.Struct, frozen=True):
    """Nothing is sent about ``target`` until ``until``. Times are in seconds since the epoch."""

    target: str
    reason: str
    by: str
    at: float
    until: float


class Mutes:
    """One row for each target: ``all``, ``rule/NAME``, ``source/NAME``, ``gvc/NAME``, or the key of a resource."""

    def __init__(self, database: Database, now: Callable[[], float], expiry: Expiry) -> None:
        self._db = database
        self._now = now
        self._expiry = expiry

    def put(self, target: str, reason: str, by: str, until: float) -> None:
        """Mute ``target``; replaces an earlier mute."""
        row = (target, reason, by, self._now(), until)
        self._db.write("INSERT OR REPLACE INTO mutes VALUES (?, ?, ?, ?, ?)", row)

    def remove(self, target: str) -> bool:
        """End the mute of ``target``; returns whether there was one."""
        return self._db.write("DELETE FROM mutes WHERE target = ?", (target,)).rowcount > 0

    def all(self) -> Sequence[Mute]:
        """All current mutes, by target."""
        sql = f'SELECT target, reason, "by", at, until FROM mutes WHERE until > {time_of("at")} ORDER BY target'
        return [Mute(*row) for row in self._db.all(sql, time_parameters(self._expiry()))]

    def sweep(self) -> None:
        """Remove mutes that are over."""
        self._db.write(f"DELETE FROM mutes WHERE until <= {time_of('at')}", time_parameters(self._expiry()))
