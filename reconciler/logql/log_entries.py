"""Lines of logs for people who look at a page: the level of each, and stack traces as one entry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_SEARCHED = 200
"""The characters of a line in which its level is searched."""
_FIRST_WORDS = 80
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


class LogEntry(NamedTuple):
    """A line with its level ("": none is written), and the lines of the stack trace below it."""

    line: Mapping[str, Any]
    level: str
    trace: list[Mapping[str, Any]]


def group_lines(lines: Iterable[Mapping[str, Any]]) -> list[LogEntry]:
    """The entries that ``lines``, as JSON values, oldest first, consist of; lines of other replicas may be between."""
    entries: list[LogEntry] = []
    newest: dict[tuple[Any, ...], LogEntry] = {}
    for line in lines:
        stream, text = tuple(line.get(label) for label in _STREAM), str(line["line"])
        before = newest.get(stream)
        if before is not None and _is_part_of_trace(before, text):
            before.trace.append(line)
            continue
        entry = LogEntry(line, find_level(text), [])
        entries.append(entry)
        newest[stream] = entry
    return entries


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
