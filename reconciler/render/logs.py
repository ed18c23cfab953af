"""Lines of logs as text and as JSON, each with its time and stream."""

from __future__ import annotations

from zlib import crc32

import msgspec

from reconciler.engines.reading import LogLine
from reconciler.printable import visible
from reconciler.render.layout import paint
from reconciler.times import iso_milliseconds

_COLOURS = ("green", "yellow", "blue", "bold")


def log_line(line: LogLine, *, colour: bool, escape: bool) -> str:
    """``line`` as time, stream and text; ``escape``: without unprintable characters, for a terminal."""
    at = line.stream
    name = f"{at.gvc}/{at.workload}/{at.replica}/{at.container}@{at.location}"
    text = _text(line)
    stream = paint(name, _COLOURS[crc32(name.encode()) % len(_COLOURS)], colour)
    return f"{paint(iso_milliseconds(line.ms), 'grey', colour)} {stream} | {_escape(text) if escape else text}"


def log_json(line: LogLine) -> str:
    """``line`` as one line of JSON: time, labels and text."""
    fields = {"time": iso_milliseconds(line.ms), **line.stream.labels(), "line": _text(line)}
    return msgspec.json.encode(fields).decode()


def _text(line: LogLine) -> str:
    return line.text.decode("utf-8", "backslashreplace")


def _escape(text: str) -> str:
    """``text`` with unprintable characters escaped, but no tabs."""
    return "\t".join(map(visible, text.split("\t")))
