"""What a run of a source leaves for the next poll of it: a value that the run returns and the runner keeps."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reconciler.clock import iso
from reconciler.engines.execution.retry import RetryPolicy, longest_wait
from reconciler.engines.protocol import Outcome, Result
from reconciler.model.revision import Revision
from reconciler.planning.plan import Plan
from reconciler.reasons import Reason
from reconciler.records.tables.deletions import HOUR
from reconciler.settings import RetrySettings

POLL_AGAIN_REASONS = frozenset({Reason.DEPENDENCY_NOT_HEALTHY, Reason.PREEMPTED, Reason.TERMINATING})
"""Reasons to wait that nothing announces the end of: every poll of the source is a run while one holds."""


class CrashBackoff(msgspec.Struct, frozen=True):
    """When a source whose run ended in a bug runs again: later and later, and at once at another commit."""

    commit: str = ""
    tries: int = 0
    until: float = 0.0

    def after_crash(self, commit: str, now: float, retry: RetrySettings) -> CrashBackoff:
        """The backoff after a run of ``commit`` ended in a bug at ``now`` (seconds that never run backwards)."""
        tries = self.tries + 1 if commit == self.commit else 1
        return CrashBackoff(commit, tries, now + longest_wait(RetryPolicy(retry.base, retry.cap), tries))

    def holds_back(self, commit: str, now: float) -> bool:
        """Whether it is too soon for another run of ``commit``."""
        return commit == self.commit and now < self.until


class SourceState(msgspec.Struct, frozen=True):
    """What is known of a source between two runs; a process begins with nothing known.

    ``revision`` is the last one read. ``pending_keys`` are resources whose records may differ from what is desired,
    None where they are to be found by comparing all. ``refused_commit`` was read and refused. While ``must_repoll``
    holds, every poll is a run. ``hold_ends`` is the time (ISO 8601) at which deletes that the hourly budget holds back
    can go, "" for none.
    """

    revision: Revision | None = None
    pending_keys: frozenset[str] | None = None
    refused_commit: str = ""
    must_repoll: bool = False
    hold_ends: str = ""
    crashes: CrashBackoff = CrashBackoff()

    def with_revision(self, revision: Revision | None) -> SourceState:
        """The state where ``revision`` was read last, None where nothing was."""
        return msgspec.structs.replace(self, revision=revision)

    def with_all_pending(self) -> SourceState:
        """The state where any resource may differ from what is desired."""
        return msgspec.structs.replace(self, pending_keys=None)

    def with_pending(self, keys: frozenset[str]) -> SourceState:
        """The state where only the resources ``keys`` may differ from what is desired."""
        return msgspec.structs.replace(self, pending_keys=keys)

    def with_refusal(self, commit: str) -> SourceState:
        """The state where the revision ``commit`` is refused; "" where none is."""
        return msgspec.structs.replace(self, refused_commit=commit)

    def before_steps(self, plan: Plan) -> SourceState:
        """The state until the outcomes of ``plan`` are known: it may end anywhere between its steps."""
        pending = None if self.pending_keys is None else self.pending_keys | _planned(plan)
        return msgspec.structs.replace(self, pending_keys=pending, must_repoll=True, hold_ends=_hold_ends(plan))

    def after_steps(self, plan: Plan, outcomes: Sequence[Outcome]) -> SourceState:
        """The state after every step of ``plan`` has its outcome."""
        open_keys = {str(one.id.key) for one in outcomes if one.result is not Result.APPLIED}
        return msgspec.structs.replace(
            self,
            pending_keys=frozenset(open_keys.union(str(retained.key) for retained in plan.retained)),
            must_repoll=any(one.reason in POLL_AGAIN_REASONS for one in outcomes),
            hold_ends=_hold_ends(plan),
            crashes=CrashBackoff(),
        )

    def after_crash(self, now: float, retry: RetrySettings) -> SourceState:
        """The state after a bug ended a run at ``now``, at a place that is not known."""
        commit = self.revision.commit if self.revision is not None else ""
        crashes = self.crashes.after_crash(commit, now, retry)
        return msgspec.structs.replace(self, pending_keys=None, crashes=crashes)

    def is_hold_over(self, now: float) -> bool:
        """Whether ``hold_ends`` has come, or the clock was set back by more than the hour that it takes."""
        return bool(self.hold_ends) and not iso(now) < self.hold_ends <= iso(now + HOUR + 1)


def _planned(plan: Plan) -> set[str]:
    return {str(retained.key) for retained in plan.retained} | {str(step.key) for step in plan.steps}


def _hold_ends(plan: Plan) -> str:
    return max((step.hold_until for step in plan.steps), default="")
