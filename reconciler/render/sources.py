"""Sources as lines, as sections of text and as JSON: whether the newest commit is live, and if not, why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from reconciler.model.revision import revision_text, shorten_revision
from reconciler.reasons import ConditionType, Reason
from reconciler.records.tables.conditions import ScopeCondition
from reconciler.records.tables.suspensions import source_target
from reconciler.render.history import event_document, event_line, run_document, run_line
from reconciler.render.layout import align_columns, strip_control, table_text
from reconciler.render.style import TextStyle
from reconciler.status.source_status import SourceDetails, SourceStatus
from reconciler.status.waiting import pinned_by, suspended_by
from reconciler.times import format_iso_time, format_short_duration


def source_lines(status: SourceStatus) -> list[str]:
    """Suspension, rollback and trouble of a source, a line each; empty if there is none."""
    lines = []
    if status.suspension is not None:
        lines.append(suspended_by(status.suspension))
    if status.pin is not None:
        lines.append(pinned_by(status.pin))
    if status.trouble is not None:
        lines.append(f"{trouble_sentence(status, status.trouble)}; {applied_sentence(status)}")
    return [f"source {status.name}: {line}" for line in lines]


_HEADING = ("SOURCE", "READY", "APPLIED", "AGE", "MESSAGE")
_WIDE_HEADING = ("SOURCE", "READY", "APPLIED", "AGE", "SUBJECT", "AUTHOR", "MESSAGE")
_READY_COLOURS = {"yes": "green", "no": "red"}


def source_table(sources: Iterable[SourceStatus], now: float, style: TextStyle) -> str:
    """A line for each source below a heading; AGE is the time since it is ready or not. ``""`` if there are none."""
    rows = (_make_row(status, now, style) for status in sources)
    return table_text(_WIDE_HEADING if style.wide else _HEADING, rows, style, _READY_COLOURS)


def _make_row(status: SourceStatus, now: float, style: TextStyle) -> tuple[str, ...]:
    row, ready = status.applied, status.conditions.get(ConditionType.READY)
    since = status.trouble or ready
    age = format_short_duration(max(0.0, now - since.since)) if since is not None else "-"
    reasons = [line.partition(": ")[2] for line in source_lines(status)]
    if not reasons and ready is not None and not ready.status:
        reasons = [f"{ready.reason}: {ready.message}"]
    aside = (row.subject, row.author) if row is not None else ("-", "-")
    cells = (
        f"source/{status.name}",
        "yes" if status.ready else "no",
        row.commit[:12] if row is not None else "-",
        age,
        *(aside if style.wide else ()),
        "; ".join(reasons),
    )
    return tuple(map(strip_control, cells))


def hold_lines(status: SourceStatus) -> list[str]:
    """The suspension and the rollback of a source: operator, reason, and the command that ends it."""
    ends = f"until: reconciler resume {status.name}"
    lines = []
    if status.suspension is not None:
        lines.append(f"{suspended_by(status.suspension)}; nothing of this plan is applied {ends}")
    if status.pin is not None:
        lines.append(f"{pinned_by(status.pin)}; it does not follow its branch {ends}")
    return lines


def trouble_sentence(status: SourceStatus, trouble: ScopeCondition) -> str:
    """``1a2b3c4d5e6f (Subject, Ada) is refused since 2026-01-31T12:00:00Z: 2 errors; the first: …``."""
    if status.refused is not None and trouble.reason == Reason.INVALID_REVISION:
        run = status.refused
        origin = ", ".join(filter(None, (run.subject, run.author)))
        return f"{run.commit[:12]} ({origin}) is refused since {format_iso_time(run.started)}: {trouble.message}"
    what = {
        Reason.INVALID_REVISION: "its newest revision is refused",
        Reason.INVALID_FILES: "a part of it is not applied",
        Reason.INTERNAL_ERROR: "a bug ends its runs",
    }.get(Reason.from_stored(trouble.reason), "it cannot be read")
    return f"{what} since {format_iso_time(trouble.since)}: {trouble.reason}: {trouble.message}"


def applied_sentence(status: SourceStatus) -> str:
    """``applied is 1a2b3c4d5e6f (Subject)``."""
    row = status.applied
    return f"applied is {row.commit[:12]} ({row.subject})" if row is not None else "nothing of it is applied"


def source_sections(details: SourceDetails, colour: bool) -> Iterator[tuple[str, str]]:
    """Titles with their lines, as for a resource; a section without lines is ``""``."""
    status = details.status
    target = source_target(status.name)
    yield "", target + "\n" + align_columns(list(_list_summary_rows(details)), "  ")
    rows = [
        (
            condition.type,
            str(condition.status),
            condition.reason,
            f"since {format_iso_time(condition.since)}",
            strip_control(condition.message),
        )
        for condition in status.conditions.values()
    ]
    yield "Conditions", align_columns(rows, "  ", {"True": "green", "False": "red"} if colour else None) if rows else ""
    yield "Runs", "\n".join("  " + run_line(run, colour) for run in details.runs)
    yield "Events", "\n".join("  " + event_line(event, colour) for event in details.events)


def _list_summary_rows(details: SourceDetails) -> Iterator[tuple[str, str]]:
    newest, row = details.newest, details.status.applied
    yield "Live", strip_control(_is_live(details))
    yield "Repository", details.url
    unreadable = f"cannot be read: {details.unreadable}"
    tip = unreadable if newest is None else f"{shorten_revision(str(newest))} ({newest.subject}, {newest.author})"
    yield "Newest", strip_control(tip)
    applied = "nothing yet"
    if row is not None:
        applied = f"{shorten_revision(revision_text(row.ref, row.commit))} ({row.subject}, {row.author})"
    yield "Applied", strip_control(applied)
    counts = details.health_counts.items()
    yield "Resources", ", ".join(f"{count} {health}" for health, count in counts if count) or "none"


def _is_live(details: SourceDetails) -> str:
    """Whether the newest commit is applied, in a sentence."""
    status, newest = details.status, details.newest
    reasons = [line.partition(": ")[2] for line in source_lines(status)]
    if reasons and not (details.is_current and status.trouble is None and status.suspension is None):
        return f"no: {'; '.join(reasons)}"
    ready = status.conditions.get(ConditionType.READY)
    if details.is_current and ready is not None:
        return "yes" if ready.status else f"not all of it: {ready.reason}: {ready.message}"
    if newest is None:
        return f"not known: the repository cannot be read now; {applied_sentence(status)}"
    waits = "the next poll reads it" if details.daemon_runs else "no daemon runs; `reconciler apply` reads it"
    return f"not yet: {newest.commit[:12]} ({newest.subject}) was not read yet; {waits}"


def source_document(status: SourceStatus) -> dict[str, Any]:
    """A source as JSON values; times are UTC. ``refused``, ``pinned`` and ``suspended`` can be null."""
    row, run, pin, suspension = status.applied, status.refused, status.pin, status.suspension
    shown = status.trouble or status.conditions.get(ConditionType.READY)
    return {
        "name": status.name,
        "ready": status.ready,
        "reason": shown.reason if shown is not None else "Unknown",
        "message": shown.message if shown is not None else "no run of it is recorded",
        "since": format_iso_time(shown.since) if shown is not None else None,
        "applied": None if row is None else _build_commit(revision_text(row.ref, row.commit), row.author, row.subject),
        "refused": None
        if run is None
        else {
            **_build_commit(run.revision, run.author, run.subject),
            "since": format_iso_time(run.started),
            "message": run.message,
        },
        "pinned": None
        if pin is None
        else {
            "commit": pin.commit,
            "expression": pin.expression,
            "by": pin.by,
            "since": format_iso_time(pin.at),
            "why": pin.reason,
        },
        "suspended": None
        if suspension is None
        else {
            "by": suspension.by,
            "since": format_iso_time(suspension.at),
            "why": suspension.reason,
            "until": None if suspension.until is None else format_iso_time(suspension.until),
        },
    }


def source_details_document(details: SourceDetails) -> dict[str, Any]:
    """All of a source as JSON values; ``newest`` is null where the repository cannot be read, see ``unreadable``."""
    newest = details.newest
    return {
        **source_document(details.status),
        "live": _is_live(details),
        "url": details.url,
        "newest": None
        if newest is None
        else _build_commit(revision_text(newest.ref, newest.commit), newest.author, newest.subject),
        "unreadable": details.unreadable or None,
        "resources": details.health_counts,
        "conditions": [
            {**msgspec.structs.asdict(condition), "since": format_iso_time(condition.since)}
            for condition in details.status.conditions.values()
        ],
        "runs": list(map(run_document, details.runs)),
        "events": list(map(event_document, details.events)),
    }


def _build_commit(revision: str, author: str, subject: str) -> dict[str, str]:
    return {"revision": revision, "author": author, "subject": subject}
