"""The state of a source between runs: each run returns it, and the runner holds it for the next poll."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from reconciler.engines.execution.retry import RetryPolicy, longest_wait
from reconciler.engines.protocol import Outcome, Result
from reconciler.model.revision import Revision
from reconciler.planning.plan import Plan
from reconciler.reasons import Reason
from reconciler.records.tables.deletions import HOUR
from reconciler.settings import RetrySettings
from reconciler.times import format_iso_time

POLL_AGAIN_REASONS = frozenset({Reason.DEPENDENCY_NOT_HEALTHY, Reason.PREEMPTED, Reason.TERMINATING})
"""Wait reasons that end without an event: while one holds, every poll of the source is a run."""

MOST_PENDING = 10_000
"""The most steps whose keys are kept while they run; of a larger plan that is cut off, a comparison of all resources
finds what is left. The keys of 100,000 steps take 16 MB."""


class CrashBackoff(msgspec.Struct, frozen=True):
    """Backoff of a source whose run ended in a bug: the delay grows, and a new commit runs at once."""

    commit: str = ""
    tries: int = 0
    until: float = 0.0

    def after_crash(self, commit: str, now: float, retry: RetrySettings) -> CrashBackoff:
        """The backoff after a run of ``commit`` ended in a bug at ``now`` (monotonic seconds)."""
        tries = self.tries + 1 if commit == self.commit else 1
        return CrashBackoff(commit, tries, now + longest_wait(RetryPolicy(retry.base, retry.cap), tries))

    def holds_back(self, commit: str, now: float) -> bool:
        """Whether it is too soon for another run of ``commit``."""
        return commit == self.commit and now < self.until


class SourceState(msgspec.Struct, frozen=True):
    """The state of a source between two runs, in memory only.

    ``revision`` is the last one read. ``pending_keys`` are resources whose records may differ from the desired state,
    None if all must be compared to find them. ``refused_commit`` was read and refused. While ``must_repoll`` is true,
    every poll is a run. At ``hold_ends`` (ISO 8601, "" for none) the hourly budget releases held deletes.
    """

    revision: Revision | None = None
    pending_keys: frozenset[str] | None = None
    refused_commit: str = ""
    must_repoll: bool = False
    hold_ends: str = ""
    crashes: CrashBackoff = CrashBackoff()

    def with_revision(self, revision: Revision | None) -> SourceState:
        """The state with ``revision`` as the last one read, None for none."""
        return msgspec.structs.replace(self, revision=revision)

    def with_all_pending(self) -> SourceState:
        """The state in which any resource may differ from the desired state."""
        return msgspec.structs.replace(self, pending_keys=None)

    def with_pending(self, keys: frozenset[str]) -> SourceState:
        """The state in which only the resources ``keys`` may differ from the desired state."""
        return msgspec.structs.replace(self, pending_keys=keys)

    def with_more_pending(self, keys: frozenset[str] | None) -> SourceState:
        """The state in which the resources ``keys`` may differ from the desired state too, so that a run is due."""
        # If all resources are compared anyway, more keys add nothing.
        if self.pending_keys is None or not keys:
            return self
        return msgspec.structs.replace(self, pending_keys=self.pending_keys | keys, must_repoll=True)

    def with_refusal(self, commit: str) -> SourceState:
        """The state in which the revision ``commit`` is refused; "" for none."""
        return msgspec.structs.replace(self, refused_commit=commit)

    def before_steps(self, plan: Plan) -> SourceState:
        """The state until the outcomes of ``plan`` are known: the run may end between any two steps.

        After a large plan any resource may differ.
        """
        former = self.pending_keys if len(plan.steps) <= MOST_PENDING else None
        pending = None if former is None else former.union(_list_planned_keys(plan))
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
        """The state after a bug ended a run at ``now``, at an unknown step."""
        commit = self.revision.commit if self.revision is not None else ""
        crashes = self.crashes.after_crash(commit, now, retry)
        return msgspec.structs.replace(self, pending_keys=None, crashes=crashes)

    def is_hold_over(self, now: float) -> bool:
        """Whether ``hold_ends`` has passed, or the clock was set back by more than the hour of the hold."""
        # The end of a hold is rounded up to a whole second, so it may be one second beyond the hour.
        return bool(self.hold_ends) and not format_iso_time(now) < self.hold_ends <= format_iso_time(now + HOUR + 1)


def _list_planned_keys(plan: Plan) -> Iterator[str]:
    yield from (str(retained.key) for retained in plan.retained)
    yield from (str(step.key) for step in plan.steps)


def _hold_ends(plan: Plan) -> str:
    return max((step.hold_until for step in plan.steps), default="")
