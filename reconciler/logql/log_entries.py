"""Lines of logs for people who look at a page: the level of each, and stack traces as one entry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_SEARCHED = 200
"""The characters of a line in which its level is searched."""
_FIRST_WORDS = 80
MOST_TRACE = 200
"""The most lines below the first one of an entry: what is indented for ever is no stack trace."""
_MOST_STREAMS = 2_000
_LEVELS: Mapping[str, str] = {
    **dict.fromkeys(("fatal", "critical", "panic", "emerg", "alert", "crit", "error", "err", "severe"), "error"),
    **dict.fromkeys(("warning", "warn"), "warning"),
    **dict.fromkeys(("info", "information", "notice"), "info"),
    **dict.fromkeys(("debug", "trace"), "debug"),
}
"""What programs write → the level that it stands for."""
_FIELD = re.compile(r"""["']?\b(?:level|lvl|severity|levelname)\b["']?\s*[=:]\s*["']?(?P<word>[a-z]+)""", re.IGNORECASE)
_WORD = re.compile(r"(?<![\w.-])(?P<word>[A-Z]{3,11})(?![\w-])|[\[(<](?P<marked>[A-Za-z]{3,11})[\])>]")
_INDENTED = re.compile(r"[ \t]+\S")
_CONTINUES = re.compile(
    r"Caused by: |\.\.\. \d+ more|During handling of the above|The above exception was|goroutine \d+ "
)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_RAISED = re.compile(r"[\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Group)\b(?::|$)|[\w]+(?:\.\w+)+(?::|$)")
_STREAM = ("location", "gvc", "workload", "replica", "container")


LEVELS = ("error", "warning", "info", "debug")


class LogEntry(NamedTuple):
    """A line with its level ("": none is written), and the lines of the stack trace below it."""

    line: Mapping[str, Any]
    level: str
    trace: list[Mapping[str, Any]]


def group_lines(lines: Iterable[Mapping[str, Any]]) -> list[LogEntry]:
    """The entries that ``lines``, as JSON values, oldest first, consist of; lines of other replicas may be between."""
    grouper = LineGrouper()
    return list({id(entry): entry for entry in map(grouper.add, lines)}.values())


class LineGrouper:
    """Puts lines into entries as they come; it knows the newest entry of each stream."""

    def __init__(self) -> None:
        self._newest: dict[tuple[Any, ...], LogEntry] = {}

    def add(self, line: Mapping[str, Any]) -> LogEntry:
        """The entry that ``line``, as JSON values, belongs to: a new one, or one before."""
        stream, text = tuple(line.get(label) for label in _STREAM), str(line["line"])
        before = self._newest.get(stream)
        if before is not None and len(before.trace) < MOST_TRACE and _is_part_of_trace(before, text):
            before.trace.append(line)
            return before
        if before is None and len(self._newest) >= _MOST_STREAMS:
            self._newest.clear()
        entry = self._newest[stream] = LogEntry(line, find_level(text), [])
        return entry


def find_level(text: str) -> str:
    """The level that a line names: error, warning, info or debug; "" if it names none."""
    begin = text[:_SEARCHED]
    if _TRACEBACK.search(begin):
        return "error"
    field = _FIELD.search(begin)
    if field is not None and (level := _LEVELS.get(field["word"].lower())):
        return level
    words = (match["word"] or match["marked"] for match in _WORD.finditer(begin[:_FIRST_WORDS]))
    return next((level for word in words if (level := _LEVELS.get(word.lower()))), "")


def _is_part_of_trace(before: LogEntry, text: str) -> bool:
    """Whether the line ``text`` continues ``before``: it is indented, or ends or chains a traceback."""
    if _INDENTED.match(text) or _CONTINUES.match(text):
        return True
    has_traceback = any(_TRACEBACK.search(str(line["line"])) for line in (before.line, *before.trace))
    last = str((before.trace[-1] if before.trace else before.line)["line"])
    is_chained = bool(before.trace) and bool(_CONTINUES.match(last))
    if _TRACEBACK.match(text):
        return is_chained
    return has_traceback and bool(_INDENTED.match(last)) and bool(_RAISED.match(text))
