"""The state of a source: its applied revision, whether that is the newest, and if not, why and since when."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.model.revision import revision_text
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.conditions import ScopeCondition
from reconciler.records.tables.pins import Pin
from reconciler.records.tables.runs import REFUSED, Run
from reconciler.records.tables.sources import SourceRow
from reconciler.records.tables.suspensions import Suspension, source_target
from reconciler.status.waiting import pinned_by, suspended_by
from reconciler.times import iso


class SourceState(msgspec.Struct, frozen=True):
    """The recorded state of a source; ``refused`` is the run that refused its newest revision."""

    name: str
    applied: SourceRow | None
    conditions: dict[str, ScopeCondition]
    refused: Run | None = None
    pin: Pin | None = None
    suspension: Suspension | None = None

    @property
    def ready(self) -> bool:
        """Whether the newest revision that was read is fully applied."""
        found = self.conditions.get(ConditionType.READY)
        return found is not None and found.status and self.trouble is None

    @property
    def trouble(self) -> ScopeCondition | None:
        """Why its newest revision is not fully applied; None where it is, or where a run is in progress."""
        reach, found = self.conditions.get(ConditionType.SOURCE_REACHABLE), self.conditions.get(ConditionType.READY)
        if reach is not None and not reach.status:
            return reach
        bad = (Reason.INVALID_REVISION, Reason.INVALID_FILES, Reason.INTERNAL_ERROR)
        return found if found is not None and not found.status and found.reason in bad else None


def source_state(records: Records, name: str) -> SourceState:
    """Return the state of the source ``name``; an unknown source has no conditions."""
    conditions = {each.type: each for each in records.conditions.get(name)}
    ready = conditions.get(ConditionType.READY)
    last = records.runs.last_read(name) if ready is not None and ready.reason == Reason.INVALID_REVISION else None
    return SourceState(
        name,
        records.sources.get(name),
        conditions,
        last if last is not None and last.outcome == REFUSED else None,
        records.pins.get(name),
        records.suspensions.get(source_target(name)),
    )


def source_lines(state: SourceState) -> list[str]:
    """Suspension, rollback and trouble of a source, a line each; empty where there is none."""
    found = []
    if state.suspension is not None:
        found.append(suspended_by(state.suspension))
    if state.pin is not None:
        found.append(pinned_by(state.pin))
    if state.trouble is not None:
        found.append(f"{trouble_sentence(state, state.trouble)}; {applied_sentence(state)}")
    return [f"source {state.name}: {line}" for line in found]


def hold_lines(state: SourceState) -> list[str]:
    """The suspension and the rollback of a source: operator, reason, and the command that ends it."""
    ends = f"until: reconciler resume {state.name}"
    found = []
    if state.suspension is not None:
        found.append(f"{suspended_by(state.suspension)}; nothing of this plan is applied {ends}")
    if state.pin is not None:
        found.append(f"{pinned_by(state.pin)}; it does not follow its branch {ends}")
    return found


def trouble_sentence(state: SourceState, trouble: ScopeCondition) -> str:
    """``1a2b3c4d5e6f (Subject, Ada) is refused since 2026-01-31T12:00:00Z: 2 errors; the first: …``."""
    if state.refused is not None and trouble.reason == Reason.INVALID_REVISION:
        run = state.refused
        made = ", ".join(filter(None, (run.subject, run.author)))
        return f"{run.commit[:12]} ({made}) is refused since {iso(run.started)}: {trouble.message}"
    what = {
        Reason.INVALID_REVISION: "its newest revision is refused",
        Reason.INVALID_FILES: "a part of it is not applied",
        Reason.INTERNAL_ERROR: "a bug ends its runs",
    }.get(Reason.stored(trouble.reason), "it cannot be read")
    return f"{what} since {iso(trouble.since)}: {trouble.reason}: {trouble.message}"


def applied_sentence(state: SourceState) -> str:
    """``applied is 1a2b3c4d5e6f (Subject)``."""
    row = state.applied
    return f"applied is {row.commit[:12]} ({row.subject})" if row is not None else "nothing of it is applied"


def source_document(state: SourceState) -> dict[str, Any]:
    """A source as JSON values; times are UTC. ``refused``, ``pinned`` and ``suspended`` can be null."""
    row, run, pin, suspension = state.applied, state.refused, state.pin, state.suspension
    shown = state.trouble or state.conditions.get(ConditionType.READY)
    return {
        "name": state.name,
        "ready": state.ready,
        "reason": shown.reason if shown is not None else "Unknown",
        "message": shown.message if shown is not None else "no run of it is recorded",
        "since": iso(shown.since) if shown is not None else None,
        "applied": None if row is None else _commit(revision_text(row.ref, row.commit), row.author, row.subject),
        "refused": None if run is None else {
            **_commit(run.revision, run.author, run.subject), "since": iso(run.started), "message": run.message,
        },
        "pinned": None if pin is None else {
            "commit": pin.commit, "expression": pin.expression, "by": pin.by, "since": iso(pin.at), "why": pin.reason,
        },
        "suspended": None if suspension is None else {
            "by": suspension.by, "since": iso(suspension.at), "why": suspension.reason,
            "until": None if suspension.until is None else iso(suspension.until),
        },
    }  # fmt: skip


def _commit(revision: str, author: str, subject: str) -> dict[str, str]:
    return {"revision": revision, "author": author, "subject": subject}
