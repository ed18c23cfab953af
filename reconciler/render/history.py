"""Runs and events as lines of text and as JSON values."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.records.tables.events import Event
from reconciler.records.tables.runs import Run
from reconciler.render.layout import paint_text
from reconciler.times import format_iso_time

_COLOURS = {"applied": "green", "failed": "red", "refused": "red", "unreadable": "red", "waiting": "yellow"}


def run_line(run: Run, colour: bool) -> str:
    """``run`` as time, source and commit, outcome, seconds, changes or reason, and the author of the commit."""
    outcome = run.outcome or "unfinished"
    counts = ", ".join(f"{count} {word}" for word, count in run.counts.items()) or run.message or "-"
    took = f"{run.finished - run.started:.1f} s" if run.finished is not None else "-"
    commit = run.revision.rpartition(":")[2][:12]
    commit_title = f"{run.author}: {run.subject}" if run.author else run.subject
    return "  ".join(
        (
            paint_text(format_iso_time(run.started), "grey", colour),
            f"{run.source} {commit}",
            paint_text(f"{outcome:<10}", _COLOURS.get(outcome, ""), colour),
            f"{took:>7}",
            counts,
            commit_title,
            paint_text(run.digest[:12], "grey", colour),
        )
    ).rstrip()


def run_document(run: Run) -> dict[str, Any]:
    """A run as JSON values; times are UTC, ``seconds`` null while it runs."""
    return {
        "run": run.id,
        "source": run.source,
        "revision": run.revision,
        "author": run.author,
        "subject": run.subject,
        "reason": run.reason,
        "started": format_iso_time(run.started),
        "seconds": None if run.finished is None else round(run.finished - run.started, 3),
        "outcome": run.outcome or None,
        "message": run.message or None,
        "counts": run.counts,
        "digest": run.digest or None,
    }


def event_line(event: Event, colour: bool) -> str:
    """``event`` as time, type, reason, key with its location, and message."""
    kind = paint_text(f"{event.type:<7}", "yellow" if event.type == "Warning" else "green", colour)
    target = f"{event.key or '-'}{'@' if event.location else ''}{event.location}"
    return (
        f"{paint_text(format_iso_time(event.at), 'grey', colour)} {kind} {event.reason:<16} {target}: {event.message}"
    )


def event_document(event: Event) -> dict[str, Any]:
    """An event as JSON values; ``time`` is UTC, ``run`` the number of the run."""
    fields = msgspec.structs.asdict(event)
    return {"time": format_iso_time(fields.pop("at")), **fields}
