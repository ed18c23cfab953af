"""Lines of logs as text and as JSON, each with its time and stream."""

from __future__ import annotations

from zlib import crc32

import msgspec

from reconciler.engines.reading import LogLine
from reconciler.printable import make_visible_text
from reconciler.render.layout import paint_text
from reconciler.times import iso_milliseconds

_COLOURS = ("green", "yellow", "blue", "bold")


def log_line(line: LogLine, *, colour: bool, escape: bool) -> str:
    """``line`` as time, stream and text; ``escape``: without unprintable characters, for a terminal."""
    at = line.stream
    name = f"{at.gvc}/{at.workload}/{at.replica}/{at.container}@{at.location}"
    text = _decode_text(line)
    stream = paint_text(name, _COLOURS[crc32(name.encode()) % len(_COLOURS)], colour)
    return (
        f"{paint_text(iso_milliseconds(line.ms), 'grey', colour)} {stream} | {_escape_line(text) if escape else text}"
    )


def log_item(line: LogLine) -> dict[str, str]:
    """``line`` as JSON values: time, labels and text."""
    return {"time": iso_milliseconds(line.ms), **line.stream.labels(), "line": _decode_text(line)}


def log_json(line: LogLine) -> str:
    """``line`` as one line of JSON."""
    return msgspec.json.encode(log_item(line)).decode()


def _decode_text(line: LogLine) -> str:
    return line.text.decode("utf-8", "backslashreplace")


def _escape_line(text: str) -> str:
    """``text`` with unprintable characters escaped, but no tabs."""
    return "\t".join(map(make_visible_text, text.split("\t")))
