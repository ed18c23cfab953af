"""The process that reads logs for one request: an expression can take years, and only a signal ends it.

Its first line is empty, or the HTTP status and the reason of a refusal; each further line is one of the logs, as JSON.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from reconciler.errors import ReconcilerError
from reconciler.logql.limits import limit_time, prepare_limits
from reconciler.queries.logs import Bounds, LogOptions, LogReader, explain_forbidden, parse_query
from reconciler.render.logs import log_json
from reconciler.settings import Settings

_POLL_SECONDS = 0.3


class LogRequest(msgspec.Struct, frozen=True):
    """What to read; times in seconds since the epoch. ``workloads`` are those that it may read, None: all."""

    settings: Settings
    query: str
    since: float | None = None
    until: float | None = None
    limit: int = 100
    location: str | None = None
    replica: str | None = None
    follow: bool = False
    workloads: frozenset[str] | None = None


def encode_request(request: LogRequest) -> bytes:
    """``request`` as a line."""
    return msgspec.json.encode(request, enc_hook=str) + b"\n"


def _decode_path(_wanted: type, text: Any) -> Path:
    return Path(text)


def _print_log_lines(request: LogRequest) -> None:
    query = parse_query(request.query)
    if forbidden := explain_forbidden(query, request.workloads):
        sys.stdout.write(f"403 {forbidden}\n")
        return
    options = LogOptions(
        query, request.since, request.until, request.limit, request.location, request.replica, request.workloads
    )
    reader = LogReader(request.settings, options, Bounds(limit_time, limit_time))
    lines = reader.newest()
    sys.stdout.write("\n")
    while True:
        sys.stdout.writelines(f"{log_json(line)}\n" for line in lines)
        sys.stdout.flush()
        if not request.follow:
            return
        time.sleep(_POLL_SECONDS)
        lines = reader.more()


def main() -> None:
    """Read what standard input asks for, until the end, or with ``follow`` until nobody reads."""
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=LogRequest, dec_hook=_decode_path)
    prepare_limits()
    try:
        _print_log_lines(request)
    except (ReconcilerError, ValueError) as error:
        sys.stdout.write(f"400 {error}\n")
    except BrokenPipeError:
        sys.stderr.close()


if __name__ == "__main__":
    main()
