"""What happened in a run: as a table, as JSON values, and as bars beside each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from reconciler.records.tables.timelines import Phase, Timeline
from reconciler.render.layout import strip_control, table_text
from reconciler.render.style import TextStyle

_HEADING = ("AFTER", "TOOK", "PHASE", "RESULT", "MESSAGE")
_COLOURS = {"ok": "green"}
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
    lines = [table_text(_HEADING, cells, style, _COLOURS)]
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
