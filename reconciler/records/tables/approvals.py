"""Which held steps people let go, and which plan held which."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reconciler.records.database import Database
from reconciler.records.sql import prefix_range

KEEP = 1000
"""Plans remembered, so that the digest somebody read on a screen can still be approved."""


class Approvals:
    """An approval is recorded as ``SOURCE/DIGEST``, by the digest of the held steps alone (``Plan.hold_digest``).

    It lasts until a run of the source begins with it, or finds that other steps wait, or none.
    """

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def approve(self, digest: str, by: str, expires: float | None = None) -> None:
        """Let the steps with this ``SOURCE/DIGEST`` go, until ``expires`` (seconds since the epoch; None: for good)."""
        self._db.write("INSERT OR REPLACE INTO approvals VALUES (?, ?, ?, ?)", (digest, by, self._now(), expires))

    def valid(self, now: float) -> frozenset[str]:
        """What is approved at ``now``."""
        rows = self._db.all("SELECT digest FROM approvals WHERE expires IS NULL OR expires > ?", (now,))
        return frozenset(digest for (digest,) in rows)

    def consume(self, digest: str) -> None:
        """The approved steps are done: the same steps, wanted again some day, need a new approval."""
        self._db.write("DELETE FROM approvals WHERE digest = ?", (digest,))

    def carry(self, source: str, waiting: str, steps: Iterable[str]) -> None:
        """A run of ``source`` begins that does ``steps`` by an approval; the steps ``waiting`` (``""``: none) wait.

        The approval becomes one for each step, in the place of those of the run before: what a crash or a failure
        leaves undone needs no second approval until it expires, and what is done, or no longer asked for, is not
        approved once more, nor can its plan be. What was said meanwhile of the steps that wait is kept.
        """
        others = (*prefix_range(f"{source}/"), f"{source}/{waiting}")
        with self._db.transaction():
            given = 'SELECT "by", expires FROM approvals WHERE digest >= ? AND digest < ? AND digest <> ?'
            by, expires = self._db.one(f"{given} ORDER BY at DESC", others) or ("", None)
            self._db.write("DELETE FROM approvals WHERE digest >= ? AND digest < ? AND digest <> ?", others)
            self._db.write("DELETE FROM plans WHERE held >= ? AND held < ? AND held <> ?", others)
            for step in steps:
                self.approve(f"{source}/{step}", by, expires)

    def remember_plan(self, digest: str, held: str) -> None:
        """Note that the plan ``digest`` held the steps ``held``, as they are approved (``""``: none)."""
        with self._db.transaction():
            self._db.write("INSERT OR REPLACE INTO plans (digest, held) VALUES (?, ?)", (digest, held))
            self._db.write("DELETE FROM plans WHERE seq <= (SELECT max(seq) FROM plans) - ?", (KEEP,))

    def held_of(self, prefix: str) -> list[str]:
        """What plans held (``SOURCE/DIGEST``; ``""``: nothing) whose digest, or that of what they held, begins so."""
        sql = """SELECT DISTINCT held FROM plans WHERE substr(digest, 1, length(?1)) = ?1
            OR substr(held, instr(held, '/') + 1, length(?1)) = ?1 ORDER BY held"""
        return [held for (held,) in self._db.all(sql, (prefix,))]
