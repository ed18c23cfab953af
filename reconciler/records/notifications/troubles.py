"""What notifications record about what is wrong: open troubles, what was said about them, and mutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from reconciler.records.database import Database
from reconciler.records.sql import Expiry, time_of, time_parameters


class Trouble(msgspec.Struct, frozen=True):
    """Something that is wrong with ``key`` (a resource, ``source/NAME``, or "" for the daemon) since ``since``.

    ``event`` is the kind of it. ``once`` is true for a fact, which nothing ends.
    """

    event: str
    key: str
    location: str
    source: str
    reason: str
    message: str
    since: float
    once: bool = False


class TroubleGroup(msgspec.Struct, frozen=True):
    """What a channel was sent about the troubles of one kind and source.

    ``reported`` are the keys that the last message named as troubled. ``last`` is its time (0: there was none), ``due``
    that of the next one, None if nothing changed. ``changes`` counts what changed since, ``incident`` the messages that
    said that all is well again.
    """

    channel: str
    event: str
    source: str
    incident: int = 0
    reported: tuple[str, ...] = ()
    last: float = 0.0
    due: float | None = None
    changes: int = 0


class Troubles:
    """What is wrong now, and what was said about it."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def open(self, trouble: Trouble) -> bool:
        """Record ``trouble``, or its newest reason and message; returns whether it is new."""
        sql = """INSERT INTO troubles VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
        if self._db.write(sql, msgspec.structs.astuple(trouble)).rowcount:
            return True
        sql = """UPDATE troubles SET reason = ?, message = ?, once = min(once, ?)
            WHERE event = ? AND key = ? AND location = ?"""
        name = (trouble.event, trouble.key, trouble.location)
        self._db.write(sql, (trouble.reason, trouble.message, trouble.once, *name))
        return False

    def close(self, event: str, key: str, location: str | None = None) -> Sequence[Trouble]:
        """Remove the troubles of a kind with ``key`` at ``location`` (None: at all); returns them."""
        sql = "DELETE FROM troubles WHERE event = ? AND key = ? AND ifnull(?, location) = location RETURNING *"
        with self._db.transaction():
            return [_read_trouble(row) for row in self._db.write(sql, (event, key, location)).fetchall()]

    def of_key(self, key: str) -> Sequence[Trouble]:
        """All troubles of ``key``."""
        sql = "SELECT * FROM troubles WHERE key = ? ORDER BY event, location"
        return [_read_trouble(row) for row in self._db.all(sql, (key,))]

    def all(self) -> Sequence[Trouble]:
        """All troubles, in order of kind, key and location."""
        return [_read_trouble(row) for row in self._db.all("SELECT * FROM troubles ORDER BY event, key, location")]

    def list(self, event: str, source: str) -> Sequence[Trouble]:
        """The troubles of a kind and source, in order of key and location."""
        sql = "SELECT * FROM troubles WHERE event = ? AND source = ? ORDER BY key, location"
        return [_read_trouble(row) for row in self._db.all(sql, (event, source))]

    def group(self, channel: str, event: str, source: str) -> TroubleGroup:
        """What ``channel`` was sent about the troubles of a kind and source."""
        sql = "SELECT * FROM trouble_groups WHERE channel = ? AND event = ? AND source = ?"
        row = self._db.one(sql, (channel, event, source))
        return TroubleGroup(channel, event, source) if row is None else _read_group(row)

    def due_groups(self, now: float) -> Sequence[TroubleGroup]:
        """The groups about which something is to be said at ``now``."""
        sql = "SELECT * FROM trouble_groups WHERE due <= ? ORDER BY due, channel, event, source"
        return [_read_group(row) for row in self._db.all(sql, (now,))]

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
        head = (group.channel, group.event, group.source, group.incident)
        row = (*head, msgspec.json.encode(group.reported).decode(), group.last, group.due, group.changes)
        self._db.write("INSERT OR REPLACE INTO trouble_groups VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def _read_trouble(row: tuple[Any, ...]) -> Trouble:
    values: tuple[Any, ...] = (*row[:7], bool(row[7]))
    return Trouble(*values)


def _read_group(row: tuple[Any, ...]) -> TroubleGroup:
    values: tuple[Any, ...] = (*row[:4], msgspec.json.decode(row[4], type=tuple[str, ...]), *row[5:])
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
