"""Approvals and refusals of held steps, and the plans that held them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from reconciler.records.database import Database
from reconciler.records.sql import prefix_range

KEEP = 1000
"""The number of remembered plans, so that a digest from an earlier output can still be approved."""


class ApprovalRefusal(NamedTuple):
    """Who refused held steps, when (seconds since the epoch), and why ("": no reason)."""

    by: str
    at: float
    reason: str

    def __str__(self) -> str:
        return f"refused by {self.by}{f': {self.reason}' if self.reason else ''}"


class Approvals:
    """An approval is recorded as ``SOURCE/DIGEST``, by the digest of the held steps alone (``Plan.hold_digest``).

    It is valid until a run of the source starts with it, or finds that other steps wait, or none. A refusal is recorded
    in the same way, and stays for as long as the same steps wait; the later of the two counts.
    """

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def approve(self, digest: str, by: str, expires: float | None = None) -> None:
        """Approve the steps with this ``SOURCE/DIGEST`` until ``expires`` (seconds since the epoch; None: for good)."""
        with self._db.transaction():
            self._db.write("DELETE FROM refusals WHERE digest = ?", (digest,))
            self._db.write("INSERT OR REPLACE INTO approvals VALUES (?, ?, ?, ?)", (digest, by, self._now(), expires))

    def refuse(self, digest: str, by: str, reason: str) -> None:
        """Refuse the steps with this ``SOURCE/DIGEST``: they wait, and nobody is asked to approve them."""
        with self._db.transaction():
            self._db.write("DELETE FROM approvals WHERE digest = ?", (digest,))
            self._db.write("INSERT OR REPLACE INTO refusals VALUES (?, ?, ?, ?)", (digest, by, self._now(), reason))

    def refusals(self, source: str) -> dict[str, ApprovalRefusal]:
        """``SOURCE/DIGEST`` → the refusal of these steps of ``source``."""
        sql = 'SELECT digest, "by", at, reason FROM refusals WHERE digest >= ? AND digest < ?'
        rows = self._db.all(sql, prefix_range(f"{source}/"))
        return {digest: ApprovalRefusal(by, at, reason) for digest, by, at, reason in rows}

    def valid(self, now: float) -> frozenset[str]:
        """The approvals that are valid at ``now``."""
        rows = self._db.all("SELECT digest FROM approvals WHERE expires IS NULL OR expires > ?", (now,))
        return frozenset(digest for (digest,) in rows)

    def list_approved(self, prefix: str) -> list[str]:
        """What is approved (``SOURCE/DIGEST``) whose digest begins so."""
        sql = "SELECT digest FROM approvals WHERE substr(digest, instr(digest, '/') + 1, length(?1)) = ?1"
        return [digest for (digest,) in self._db.all(sql, (prefix,))]

    def consume(self, digest: str) -> None:
        """Remove the approval of completed steps: if the same steps are due again, they need a new one."""
        self._db.write("DELETE FROM approvals WHERE digest = ?", (digest,))

    def carry(self, source: str, waiting: str, steps: Iterable[str]) -> None:
        """Record that a run of ``source`` starts the approved ``steps``; the steps ``waiting`` (``""``: none) wait.

        The approval becomes one for each step, and replaces those of the previous run. Steps that a crash or failure
        leaves undone need no second approval until it expires. Completed or obsolete steps are no longer approved, and
        their plan can no longer be approved. Approvals of the waiting steps remain.
        """
        others = (*prefix_range(f"{source}/"), f"{source}/{waiting}")
        with self._db.transaction():
            latest = 'SELECT "by", expires FROM approvals WHERE digest >= ? AND digest < ? AND digest <> ?'
            by, expires = self._db.one(f"{latest} ORDER BY at DESC", others) or ("", None)
            self._db.write("DELETE FROM approvals WHERE digest >= ? AND digest < ? AND digest <> ?", others)
            self._db.write("DELETE FROM refusals WHERE digest >= ? AND digest < ? AND digest <> ?", others)
            self._db.write("DELETE FROM plans WHERE hold_digest >= ? AND hold_digest < ? AND hold_digest <> ?", others)
            for step in steps:
                self.approve(f"{source}/{step}", by, expires)

    def remember_plan(self, digest: str, hold_digest: str) -> None:
        """Remember what the plan ``digest`` holds: ``SOURCE/DIGEST``, as it is approved (``""``: nothing)."""
        with self._db.transaction():
            self._db.write("INSERT OR REPLACE INTO plans (digest, hold_digest) VALUES (?, ?)", (digest, hold_digest))
            self._db.write("DELETE FROM plans WHERE seq <= (SELECT max(seq) FROM plans) - ?", (KEEP,))

    def waiting_digests(self, source: str, now: float) -> list[str]:
        """The digests of groups of held steps of ``source`` without a refusal, or an approval valid at ``now``."""
        sql = """SELECT DISTINCT hold_digest FROM plans WHERE hold_digest >= ? AND hold_digest < ?
            AND hold_digest NOT IN (SELECT digest FROM refusals)
            AND hold_digest NOT IN (SELECT digest FROM approvals WHERE expires IS NULL OR expires > ?)"""
        return [digest.rpartition("/")[2] for (digest,) in self._db.all(sql, (*prefix_range(f"{source}/"), now))]

    def hold_digests(self, prefix: str) -> list[str]:
        """What plans hold (``SOURCE/DIGEST``; ``""``: nothing) whose own digest, or that of the hold, begins so."""
        sql = """SELECT DISTINCT hold_digest FROM plans WHERE substr(digest, 1, length(?1)) = ?1
            OR substr(hold_digest, instr(hold_digest, '/') + 1, length(?1)) = ?1 ORDER BY hold_digest"""
        return [hold_digest for (hold_digest,) in self._db.all(sql, (prefix,))]
