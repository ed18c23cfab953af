"""The status in one look: what each source follows and has applied, what is not ready and why, what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from reconciler.model.key import Key
from reconciler.model.revision import Revision
from reconciler.reasons import ConditionType, Reason
from reconciler.records.tables.conditions import Condition, ScopeCondition
from reconciler.status.source_status import SourceStatus


class Outlook(StrEnum):
    """What becomes of something by itself, from the best to the worst."""

    WELL = "well"
    PROGRESSING = "progressing"
    """More happens without a person."""
    WAITING = "waiting"
    """A person decides: an approval, the end of a suspension or of a rollback."""
    FAILING = "failing"
    """It is not as Git declares it, and that may stay so."""


_RANK = {outlook: rank for rank, outlook in enumerate(Outlook)}


class UnreadyResource(msgspec.Struct, frozen=True):
    """A resource that is not ready, with one reason; ``since`` is in seconds since the epoch, None if unknown."""

    key: Key
    source: str
    outlook: Outlook
    reason: str
    message: str
    since: float | None = None


class SourceSummary(msgspec.Struct, frozen=True):
    """A source: its status, the newest commit that is here, and the digests of what waits for an approval.

    ``newest`` is None if the repository cannot be read; ``unreadable`` has the reason. ``refusals`` are sentences about
    what waits and is refused, by digest. ``is_running``: a daemon is in the middle of a run of it.
    """

    status: SourceStatus
    url: str
    newest: Revision | None
    unreadable: str
    approvals: Sequence[str]
    refusals: Mapping[str, str] = {}
    is_running: bool = False

    @property
    def is_current(self) -> bool:
        """Whether the newest commit is the one last applied."""
        applied = self.status.applied
        return applied is not None and self.newest is not None and applied.commit == self.newest.commit

    @property
    def outlook(self) -> Outlook:
        """What becomes of the source itself; its resources have their own."""
        ready = self.status.conditions.get(ConditionType.READY)
        if self.unreadable or self.status.trouble is not None:
            return Outlook.FAILING
        if self.approvals or self.refusals or self.status.pin is not None or self.status.suspension is not None:
            return Outlook.WAITING
        if self.is_running or not self.is_current or ready is None:
            return Outlook.PROGRESSING
        if ready.status:
            return Outlook.WELL
        waits = ready.reason in (Reason.APPROVAL_REQUIRED, Reason.APPROVAL_REFUSED)
        return Outlook.WAITING if waits else Outlook.PROGRESSING


class CommitStatus(msgspec.Struct, frozen=True):
    """Whether a commit is live: ``message`` is a sentence."""

    commit: str
    source: str
    outlook: Outlook
    message: str


_REPORTED = (ConditionType.BACKED_UP, ConditionType.CERTIFICATE_EXPIRING)
"""Conditions of the daemon for which no deployment fails."""


class StatusSummary(msgspec.Struct, frozen=True):
    """All of it; ``unready`` may be the first of ``unready_count``, the worst first.

    ``host`` are conditions of the daemon itself that need attention. With a ``commit``, it is about that one.
    ``last_lines`` are those that workloads wrote before they ended with an error, where the reader may read logs.
    """

    daemon_runs: bool
    sources: Sequence[SourceSummary]
    unready: Sequence[UnreadyResource]
    unready_count: int
    total: int
    host: Sequence[ScopeCondition] = ()
    commit: CommitStatus | None = None
    last_lines: Mapping[Key, str] = {}

    @property
    def outlook(self) -> Outlook:
        """The worst of all parts but what is only to be done soon; that of the commit decides where one was named."""
        outlooks = [self.commit.outlook] if self.commit is not None else [source.outlook for source in self.sources]
        outlooks += [resource.outlook for resource in self.unready]
        outlooks += [Outlook.FAILING for condition in self.host if condition.type not in _REPORTED]
        return max(outlooks, key=_RANK.__getitem__, default=Outlook.WELL)

    @property
    def exit_code(self) -> int:
        """0 where all is ready, 1 where something fails, 3 where something waits or progresses."""
        return {Outlook.WELL: 0, Outlook.FAILING: 1}.get(self.outlook, 3)


def rank_outlook(outlook: Outlook) -> int:
    """0 for the best; a higher number is worse."""
    return _RANK[outlook]


def decide_outlook(conditions: Sequence[Condition]) -> Outlook:
    """The outlook of a resource with ``conditions``, of which the first is Ready."""
    ready, types = conditions[0], {condition.type for condition in conditions}
    if ready.status:
        return Outlook.WELL
    if ready.reason in (Reason.APPROVAL_REQUIRED, Reason.APPROVAL_REFUSED, Reason.SUSPENDED):
        return Outlook.WAITING
    return Outlook.PROGRESSING if ConditionType.RECONCILING in types else Outlook.FAILING
