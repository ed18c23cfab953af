"""The lines that HAProxy sends: when a request begins to wait, and for each request that is measured or failed."""

from __future__ import annotations

import re
from typing import NamedTuple

from reconciler.engines.host.dataplane.haproxy.config import SELF, decode_key, decode_name
from reconciler.engines.host.dataplane.haproxy.rendering.pages import MESSAGES
from reconciler.model.key import Key

_HOLD, _REQUEST = "hold", "request"
_TIMES_END = 7
"""The method, the id and the path are the words from here on."""
_NO_ID = "-"
_NO_SERVER = "<NOSRV>"
_NUMBER = re.compile(r"-1|[0-9]{1,9}")
"""-1 stands for a phase that the request did not reach. No request takes a billion milliseconds."""


class LogLine(NamedTuple):
    """What a line says of the workload ``key``.

    ``waits``: a request begins to wait. ``error`` is the line for its log about a request that HAProxy answered itself.
    ``replica`` has answered after ``milliseconds``. Both texts can be "".
    """

    key: Key
    waits: bool = False
    error: str = ""
    replica: str = ""
    milliseconds: float = 0.0


def parse_line(line: bytes) -> LogLine | None:
    """What ``line`` says; None if it is none of HAProxy, or about no workload. Raises nothing, whatever the bytes."""
    try:
        words = line.decode().split()
        if words[:1] == [_HOLD]:
            return LogLine(decode_key(words[1]), waits=True)
        return _parse_request(words) if words[:1] == [_REQUEST] else None
    except (ValueError, IndexError):
        return None


def _parse_request(words: list[str]) -> LogLine | None:
    """Raises ValueError or IndexError for what HAProxy does not write."""
    if not words[1] or words[1].startswith("_"):
        return None  # A backend of no workload.
    key, replica, milliseconds = decode_key(words[1]), "", 0.0
    status, *times = map(_number, words[3:_TIMES_END])
    method, *name, path = words[_TIMES_END:]
    error = ""
    if name != [_NO_ID] and status in MESSAGES:
        error = f"{status} {method} {path}: {MESSAGES[status]} (request {' '.join(name)})"
    if words[2] not in (SELF, _NO_SERVER) and min(times) >= 0:
        replica, milliseconds = decode_name(words[2]), float(sum(times))
    return LogLine(key, error=error, replica=replica, milliseconds=milliseconds)


def _number(word: str) -> int:
    if _NUMBER.fullmatch(word) is None:
        raise ValueError(word)
    return int(word)
