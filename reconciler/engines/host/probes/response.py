"""Reads the heads of HTTP responses, and the rest of a response as far as servers expect it."""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

from reconciler.errors import ReconcilerError

HEAD_LINES = 200
LINE = 65_536
"""The most bytes of a line of a head."""

BODY = 10_240
"""Bytes of the body that are read and discarded, so that servers see no broken connection."""

CLOSED = "connection closed before an answer"
"""The message where a connection ends without an answer."""

_END = re.compile(rb"\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.[^ \n]* ([0-9]{3})")


class ProbeError(ReconcilerError):
    """An invalid response to a probe, described in a few words. The evaluation of the probe catches it."""


class Head(NamedTuple):
    """The beginning of a response; ``size`` is its length in bytes. Names of fields are in lower case."""

    status: int
    fields: dict[str, str]
    size: int

    @property
    def unread(self) -> int:
        """The bytes of the body to read: its declared length, or until the server closes, but at most BODY."""
        if self.status in (204, 304):
            return 0
        length = self.fields.get("content-length", "")
        return min(int(length), BODY) if length.isascii() and length.isdigit() and len(length) < 20 else BODY


def parse_head(received: bytes | bytearray) -> Head | None:
    """The head of the response that begins with ``received``, without interim ones; None while it is incomplete.

    Raises ProbeError.
    """
    begin, end = 0, _END.search(received)
    while end is not None:
        head = _parse_fields(received, begin, end)
        if not 100 <= head.status < 200:
            return head
        begin = end.end()
        end = _END.search(received, begin)
    _check_part(received, begin)
    return None


def _parse_fields(received: bytes | bytearray, begin: int, end: re.Match[bytes]) -> Head:
    status = _STATUS.match(received, begin)
    if status is None:
        raise ProbeError("no HTTP answer")
    _, *lines = received[begin : end.start()].decode("latin-1").split("\n")
    if len(lines) >= HEAD_LINES:
        raise ProbeError("an HTTP answer with too many headers")
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
    return Head(int(status[1]), fields, end.end())


def _check_part(received: bytes | bytearray, begin: int) -> None:
    """Raise ProbeError if what arrived from ``begin`` on cannot become a valid head."""
    if len(received) - max(received.rfind(b"\n"), begin) > LINE:
        raise ProbeError("an HTTP answer with too long a line")
    lines = received.count(b"\n", begin)
    if lines and not _STATUS.match(received, begin):
        raise ProbeError("no HTTP answer")
    if lines > HEAD_LINES:
        raise ProbeError("an HTTP answer with too many headers")


async def read_head(reader: asyncio.StreamReader) -> Head:
    """The head of a response, without interim ones. Raises ProbeError and OSError."""
    received = bytearray()
    while (head := parse_head(received)) is None:
        received += await read_line(reader)
    return head


async def read_line(reader: asyncio.StreamReader) -> bytes:
    """A line with its end. Raises ProbeError and OSError."""
    try:
        line = await reader.readline()
    except ValueError:
        raise ProbeError("an HTTP answer with too long a line") from None
    if not line.endswith(b"\n"):
        raise ProbeError("connection closed before an answer")
    return line
