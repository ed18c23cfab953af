"""Runs, with what happened in them, and events: as lines of text and as JSON values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from reconciler.records.tables.events import Event
from reconciler.records.tables.runs import Phase, Run, Timeline
from reconciler.render.layout import paint_text, strip_control, table_text
from reconciler.render.style import TextStyle
from reconciler.times import format_iso_time

_COLOURS = {
    "applied": "green",
    "failed": "red",
    "refused": "red",
    "unreadable": "red",
    "waiting": "yellow",
    "interrupted": "yellow",
}


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


_HEADING = ("AFTER", "TOOK", "PHASE", "RESULT", "MESSAGE")
LOST = "its timeline is not known any more; the newest 1,000 runs have one"
FindMessage = Callable[[Phase], str]
"""What is known about a try that failed."""
_LEAST_WIDTH = 0.4
"""Percent of the run: a bar that is shorter would not be seen."""


def timeline_table(timeline: Timeline | None, find_message: FindMessage, style: TextStyle) -> str:
    """A line for each phase and each try of a step below a heading."""
    if timeline is None:
        return LOST
    cells = [
        (
            format_seconds(phase.begin),
            format_seconds(phase.seconds),
            name_phase(phase),
            phase.result,
            strip_control(find_message(phase)),
        )
        for phase in timeline.phases
    ]
    lines = [table_text(_HEADING, cells, style, {"ok": "green"})]
    lines += [f"… and {timeline.left_out} more"] if timeline.left_out else []
    lines += [f"trace {timeline.trace}"] if timeline.trace else []
    return "\n".join(filter(None, lines))


def timeline_document(timeline: Timeline | None, find_message: FindMessage) -> dict[str, Any]:
    """A timeline as JSON values; ``after`` and ``seconds`` are counted from the start of the run."""
    if timeline is None:
        return {"trace": None, "phases": None}
    phases = [
        {
            "phase": phase.name,
            "after": phase.begin,
            "seconds": phase.seconds,
            "result": phase.result,
            "action": phase.action or None,
            "key": phase.key or None,
            "location": phase.location or None,
            "message": find_message(phase) or None,
        }
        for phase in timeline.phases
    ]
    return {"trace": timeline.trace or None, "phases": phases, "leftOut": timeline.left_out}


def name_phase(phase: Phase) -> str:
    """``plan``, or ``update workload/shop/web@here`` of a try of a step."""
    if not phase.key:
        return phase.name
    return f"{phase.action} {phase.key}{'@' if phase.location else ''}{phase.location}"


def format_seconds(seconds: float) -> str:
    """``3.1 ms`` or ``12.5 s``."""
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


class TimelineBar(NamedTuple):
    """A line of the picture: the phase, the place of its bar in percent of the run, and its words."""

    phase: Phase
    name: str
    x: float
    width: float
    after: str
    took: str
    message: str


def draw_bars(timeline: Timeline, find_message: FindMessage) -> list[TimelineBar]:
    """A bar for each phase and each try of a step."""
    whole = max((phase.begin + phase.seconds for phase in timeline.phases), default=0.0) or 1.0
    return [
        TimelineBar(
            phase,
            name_phase(phase),
            round(min(100 * phase.begin / whole, 100 - _LEAST_WIDTH), 2),
            round(max(100 * phase.seconds / whole, _LEAST_WIDTH), 2),
            format_seconds(phase.begin),
            format_seconds(phase.seconds),
            find_message(phase),
        )
        for phase in timeline.phases
    ]
