"""Commands on resources that operators request: what the daemon has to perform, and what became of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from enum import StrEnum
from typing import Any

import msgspec

from reconciler.model.key import Key
from reconciler.records.database import Database
from reconciler.records.sql import AnyKey, Expiry, stored_row, time_of, time_parameters

KEEP = 1000
"""The number of finished commands that are remembered."""
KEEP_SECONDS = 30 * 86_400.0
"""How long a finished command is remembered."""

_COLUMNS = 'id, key, location, type, spec, stage, messages, "by", created, started, finished, precondition'
_OPEN = "stage IN ('pending', 'running')"


class CommandStage(StrEnum):
    """The ``lifecycleStage`` of a command (docs/platform/fields.md#http-api)."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Precondition(msgspec.Struct, frozen=True):
    """The command waits until ``source`` is at ``commit`` and has applied the workload ``key`` of it."""

    source: str
    commit: str
    key: Key


class NewCommand(msgspec.Struct, frozen=True):
    """A command to add; ``spec`` must be JSON."""

    key: AnyKey
    location: str
    type: str
    spec: Mapping[str, Any]
    by: str
    precondition: Precondition | None = None


class StoredCommand(msgspec.Struct, frozen=True):
    """A command ``type`` on ``key`` at ``location``. Times are seconds since the epoch, None until then.

    ``spec`` is as requested while the command is open, and without secret values afterwards.
    """

    id: str
    key: Key
    location: str
    type: str
    spec: dict[str, Any]
    stage: CommandStage
    messages: tuple[str, ...]
    by: str
    created: float
    started: float | None
    finished: float | None
    precondition: Precondition | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is still to be performed, or is being performed."""
        return self.stage in (CommandStage.PENDING, CommandStage.RUNNING)


class Commands:
    """Commands in the order of their requests. One that runs while the daemon is killed stays ``running``."""

    def __init__(self, database: Database, now: Callable[[], float], expiry: Expiry) -> None:
        self._db = database
        self._now = now
        self._expiry = expiry

    def add(self, command: NewCommand) -> str:
        """Add a pending command. Returns its id, which no other command ever had.

        A number that is counted on would be used again after a backup is restored.
        """
        name, wait = os.urandom(6).hex(), command.precondition
        self._db.write(
            """INSERT INTO commands (id, key, location, type, spec, stage, messages, "by", created, precondition)
            VALUES (?, ?, ?, ?, ?, 'pending', x'5b5d', ?, ?, ?)""",
            (
                name,
                str(command.key),
                command.location,
                command.type,
                msgspec.json.encode(dict(command.spec)),
                command.by,
                self._now(),
                None if wait is None else msgspec.json.encode(wait),
            ),
        )
        return name

    def open(self, key: AnyKey | None = None) -> Sequence[StoredCommand]:
        """The commands that have not ended, of ``key`` or of all, oldest first."""
        where, args = ("", ()) if key is None else (" AND key = ?", (str(key),))
        rows = self._db.all(f"SELECT {_COLUMNS} FROM commands WHERE {_OPEN}{where} ORDER BY number", args)
        return [_decode_command(row) for row in rows]

    def list(self, key: AnyKey, limit: int = KEEP) -> Sequence[StoredCommand]:
        """The last ``limit`` commands on ``key``, newest first."""
        sql = f"SELECT {_COLUMNS} FROM commands WHERE key = ? ORDER BY number DESC LIMIT ?"
        return [_decode_command(row) for row in self._db.all(sql, (str(key), limit))]

    def get(self, name: str) -> StoredCommand | None:
        """The command with the id ``name``, None if it never existed or ended long ago."""
        row = self._db.one(f"SELECT {_COLUMNS} FROM commands WHERE id = ?", (name,))
        return None if row is None else _decode_command(row)

    def is_open(self, name: str) -> bool:
        """Whether the command with the id ``name`` is still to be performed, or is being performed."""
        command = self.get(name)
        return command is not None and command.is_open

    def start(self, name: str) -> bool:
        """Record that it is being performed; returns False if it was cancelled before."""
        sql = f"UPDATE commands SET stage = 'running', started = ? WHERE id = ? AND {_OPEN}"
        with self._db.overwriting():  # the spec may have secrets
            return self._db.write(sql, (self._now(), name)).rowcount > 0

    def finish(self, name: str, stage: CommandStage, messages: Sequence[str], spec: Mapping[str, Any]) -> None:
        """Record its end, with a ``spec`` that has no secret values, and forget commands that ended long ago."""
        now = self._now()
        packed = (msgspec.json.encode(list(messages)), msgspec.json.encode(dict(spec)))
        former = self._db.value("SELECT spec FROM commands WHERE id = ?", (name,))
        with self._db.transaction(), self._db.dropping_secrets() if former != packed[1] else nullcontext():
            self._db.write(
                "UPDATE commands SET stage = ?, finished = ?, messages = ?, spec = ? WHERE id = ?",
                (stage.value, now, *packed, name),
            )
            self._db.write(
                f"""DELETE FROM commands WHERE NOT {_OPEN} AND (finished + ? < {time_of("finished")}
                OR number <= (SELECT max(number) FROM commands) - ?)""",
                (KEEP_SECONDS, *time_parameters(self._expiry()), KEEP),
            )


def _decode_command(row: tuple[Any, ...]) -> StoredCommand:
    name, key, location, type_, spec, stage, messages, by, created, started, finished, wait = row
    with stored_row("commands", name):
        return StoredCommand(
            name,
            Key.parse(key),
            location,
            type_,
            msgspec.json.decode(spec, type=dict[str, Any]),
            CommandStage(stage),
            msgspec.json.decode(messages, type=tuple[str, ...]),
            by,
            created,
            started,
            finished,
            None if wait is None else msgspec.json.decode(wait, type=Precondition),
        )
