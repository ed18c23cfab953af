"""The records: one SQLite file, and a small class for each table."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from reconciler.clock import Clock
from reconciler.errors import RecordsError
from reconciler.model.key import Key
from reconciler.records.backup_times import Backups
from reconciler.records.database import FILE as FILE
from reconciler.records.database import Database
from reconciler.records.migrations import schema_versions
from reconciler.records.notifications.deliveries import Deliveries, Notices
from reconciler.records.notifications.repositories import ForgeRepositories
from reconciler.records.notifications.troubles import Mutes, Troubles
from reconciler.records.reserve import DiskReserve
from reconciler.records.sql import Expiry, prefix_range
from reconciler.records.tables.applied import Applied
from reconciler.records.tables.approvals import Approvals
from reconciler.records.tables.commands import Commands
from reconciler.records.tables.conditions import Conditions
from reconciler.records.tables.deletions import Deletions
from reconciler.records.tables.desired import Desired
from reconciler.records.tables.document_cache import DocumentCache
from reconciler.records.tables.drift import Drifts, HealCounts
from reconciler.records.tables.events import Events, Outbox
from reconciler.records.tables.failures import Failures
from reconciler.records.tables.journal import Journal
from reconciler.records.tables.orphans import Orphans
from reconciler.records.tables.pins import Pins
from reconciler.records.tables.requests import Requests, Restarts
from reconciler.records.tables.runs import Runs, Timelines
from reconciler.records.tables.schedules import Schedules
from reconciler.records.tables.secret_data import SecretData
from reconciler.records.tables.sources import Sources
from reconciler.records.tables.status_queue import Changes, StatusQueue
from reconciler.records.tables.suspensions import Suspensions, TrafficHolds
from reconciler.times import ExpiryTime

_KEY_IN_MEMORY = bytes(32)
"""Digests in memory are not stored, so their key protects nothing; a fixed key makes plans reproducible."""


class Records:
    """All records over one connection, to be used by one thread at a time.

    Every write is durable when its method returns, or is part of the surrounding ``transaction()``. All methods raise
    RecordsError, or DiskFull on a full disk.
    """

    def __init__(self, database: Database, now: Callable[[], float], expiry: Expiry) -> None:
        self._database = database
        self.sources = Sources(database)
        self.documents = DocumentCache(database)
        self.desired = Desired(database)
        self.applied = Applied(database)
        self.secret_data = SecretData(database)
        self.failures = Failures(database)
        self.journal = Journal(database)
        self.events = Events(database, now)
        self.outbox = Outbox(database, self.events)
        self.runs = Runs(database, now)
        self.timelines = Timelines(database)
        self.requests = Requests(database, now, expiry)
        self.commands = Commands(database, now, expiry)
        self.approvals = Approvals(database, now)
        self.status_queue = StatusQueue(database)
        self.conditions = Conditions(database, now)
        self.suspensions = Suspensions(database, now, expiry)
        self.pins = Pins(database, now)
        self.orphans = Orphans(database, now)
        self.drifts = Drifts(database)
        self.heal_counts = HealCounts(database)
        self.deletions = Deletions(database)
        self.restarts = Restarts(database, now)
        self.schedules = Schedules(database)
        self.traffic_holds = TrafficHolds(database, now, expiry)
        self.changes = Changes(database)
        self.notices = Notices(database, now)
        self.deliveries = Deliveries(database)
        self.forge_repositories = ForgeRepositories(database)
        self.troubles = Troubles(database)
        self.backups = Backups(database)
        self.mutes = Mutes(database, now, expiry)

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        read_only: bool = False,
        clock_now: Callable[[], float] = time.time,
        expiry: Expiry | None = None,
    ) -> Records:
        """Open the records at ``path`` (None: in memory); create or migrate them if needed.

        Without ``expiry``, rows expire by ``clock_now``.

        Raises RecordsError if they cannot be opened, are newer than this program, or (``read_only``) do not exist.
        """
        database = Database.open(path, schema_versions(), read_only=read_only)
        if not read_only:
            key = _KEY_IN_MEMORY if path is None else os.urandom(32)
            database.write("INSERT OR IGNORE INTO meta VALUES ('secret_key', ?)", (key,))
        return cls(database, clock_now, expiry or (lambda: ExpiryTime(now := clock_now(), now)))

    @classmethod
    def open_existing(cls, state: Path, clock: Clock) -> Records:
        """Open the records of the directory ``state`` for writing. Raises RecordsError if there are none."""
        path = state / FILE
        cls.open(path, read_only=True).close()  # raises if there are none, so none are created
        return cls.open(path, clock_now=clock.now, expiry=clock.expiry)

    @property
    def path(self) -> Path | None:
        """The file, None in memory."""
        return self._database.path

    @property
    def reserve(self) -> DiskReserve:
        """The reserve on their disk."""
        return self._database.reserve

    @property
    def secret_key(self) -> bytes:
        """32 random bytes, created with the file: the key of digests over secret data."""
        key: bytes | None = self._database.value("SELECT value FROM meta WHERE name = 'secret_key'")
        if key is None:
            raise RecordsError(f"the records ({self.path}) have lost their secret key; restore a backup")
        return key

    def find_keys(self, name: str, kind: str = "", gvc: str = "") -> list[Key]:
        """The resources called ``name``, in Git or recorded, of ``kind`` and in ``gvc`` ("": any), in key order."""
        within = prefix_range(f"{kind}/" if kind else "")
        ending = f"/{gvc}/{name}" if gvc else f"/{name}"
        where = "WHERE key >= ?1 AND key < ?2 AND substr(key, ?3) = ?4"
        sql = f"SELECT key FROM desired {where} UNION SELECT key FROM inventory {where} ORDER BY key"
        return [Key.parse(key) for (key,) in self._database.all(sql, (*within, -len(ending), ending))]

    def list_unready(self, source: str = "", limit: int = -1) -> list[str]:
        """The first ``limit`` keys (-1: all) of what is not healthy, or not applied as Git has it, in key order.

        Of ``source``, or ("") of all. The cost follows their number.
        """
        # In the words of the index `inventory_unwell`, which is used for no others; a test compares them with Health.
        sql = """SELECT key FROM inventory WHERE health NOT IN ('Healthy', 'Recorded') AND ?1 IN ('', source)
            UNION SELECT key FROM desired WHERE key IN (SELECT key FROM behind) AND ?1 IN ('', source) AND NOT EXISTS
            (SELECT 1 FROM applied WHERE applied.key = desired.key AND applied.digest = desired.digest)
            ORDER BY key LIMIT ?2"""
        return [key for (key,) in self._database.all(sql, (source, limit))]

    def count_behind(self, source: str = "") -> int:
        """About how many resources are not applied as Git has them, of ``source`` or ("") of all."""
        return int(self._database.value("SELECT count(*) FROM behind WHERE ?1 IN ('', source)", (source,)))

    def transaction(self) -> AbstractContextManager[None]:
        """All writes within it take effect, or none; an inner transaction joins the outer."""
        return self._database.transaction()

    def snapshot(self) -> AbstractContextManager[None]:
        """Reads within it see a single moment, despite other writers; it costs less than separate reads."""
        return self._database.snapshot()

    def repeatable(self) -> AbstractContextManager[None]:
        """A transaction that a power cut may undo: only for work that is then repeated automatically."""
        return self._database.repeatable()

    def needs_checkpoint(self) -> bool:
        """Whether a ``checkpoint`` is due."""
        return self._database.needs_checkpoint()

    def checkpoint(self) -> None:
        """Move the content of the log into the database; from any thread, while no other one closes the records."""
        self._database.checkpoint()

    def data_version(self) -> int:
        """A number that changes when another connection has written."""
        return int(self._database.value("PRAGMA data_version"))

    def backup(self, to: Path) -> None:
        """Write a consistent copy of all records, secret data included, while the daemon runs; mode 0600."""
        self._database.backup(to)

    def close(self) -> None:
        """Close the file; may be repeated."""
        self._database.close()
