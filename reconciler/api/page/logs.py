"""Logs: the newest lines that a query selects."""

from __future__ import annotations

import asyncio
from functools import reduce
from shlex import quote
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.log_stream import PARAMETERS as FOLLOWED
from reconciler.api.page.log_stream import LogCursor
from reconciler.api.page.rendering import render_page
from reconciler.api.problems import JSON, Problem
from reconciler.api.routes.observing import collect_lines, list_readable_workloads
from reconciler.api.table import TEXT, make_page_operation
from reconciler.logql.completion import complete_query
from reconciler.logql.log_entries import LEVELS, group_lines
from reconciler.model.key import Kind
from reconciler.printable import escape_text
from reconciler.queries.logs import select_streams

_LINES, _MOST_LINES, _MOST_DOWNLOADED = 200, 1_000, 10_000
_MOST_SUGGESTED, _MOST_CHARACTERS = 200, 4_096
_MOST_DELAY = 10.0
"""Seconds that may pass between the time of a line and its place in a log."""
_PARAMETERS = ("query", "since", "until", "lines", "replica")
_LEVEL = "level"


async def show_logs(call: Call) -> Response:
    """The newest lines of the logs that a query selects."""
    query, limit = call.query("query"), call.count("lines", _LINES, _MOST_LINES)
    began = call.api.clock.now()
    lines: list[dict[str, Any]] = []
    problem = None
    if query:
        try:
            lines = await collect_lines(call, limit)
        except Problem as error:
            if error.status not in (400, 404, 503):
                raise
            problem = error
    asked = {name: value for name in _PARAMETERS if (value := call.query(name))}
    level, until = call.query(_LEVEL), call.query("until")
    after = reduce(LogCursor.advance, lines, LogCursor(0 if lines else int(1000 * (began - _MOST_DELAY))))
    if after.lines == limit:  # others of the same moment may be before them
        after = LogCursor(after.ms + 1)
    entries = [entry for entry in group_lines(lines) if level in ("", entry.level)]
    suggestions = await call.apart(lambda: _suggest_queries(call))
    download = f"/ui/logs/download?{urlencode(asked | {'lines': _MOST_DOWNLOADED})}"
    return render_page(
        call,
        "logs.html",
        problem.status if problem is not None else 200,
        query=query,
        entries=entries,
        level=level,
        replica=call.query("replica"),
        suggestions=suggestions,
        problem=problem,
        since=call.query("since"),
        until=until,
        limit=limit,
        download=download,
        levels=LEVELS,
        command=_make_command(call, limit),
        # What has an end does not go on.
        follow="" if until else f"/ui/logs/follow?{urlencode(_select_followed(asked, level))}",
        after=str(after),
    )


def _make_command(call: Call, limit: int) -> str:
    """The command that prints the same lines."""
    options = {name: call.query(name) for name in ("since", "until", _LEVEL, "replica")} | {"limit": str(limit)}
    words = [f"--{name} {quote(value)}" for name, value in options.items() if value]
    return " ".join(["reconciler logs", quote(call.query("query")), *words])


def _select_followed(asked: dict[str, str], level: str) -> dict[str, str]:
    return {name: value for name, value in (asked | {_LEVEL: level}).items() if name in FOLLOWED and value}


def _suggest_queries(call: Call) -> list[str]:
    """Queries for the workloads and GVCs whose logs the caller may read, at most ``_MOST_SUGGESTED``."""
    keys: list[str] = []
    for record in call.reader.records.applied.items(Kind.WORKLOAD):
        key = record.key
        if len(keys) >= _MOST_SUGGESTED:
            break
        if str(key) not in keys and (call.caller.reader or call.may("readLogs", key)):
            keys.append(str(key))
    gvcs = sorted({key.split("/")[1] for key in keys})
    return [*keys, *(f'{{gvc="{gvc}"}} |= ""' for gvc in gvcs)]


async def complete_box(call: Call) -> Response:
    """What may follow the beginning of a query, from the streams that the caller may read."""
    text = call.query("query")
    if len(text) > _MOST_CHARACTERS:
        raise Problem(400, f"query has at most {_MOST_CHARACTERS} characters")
    workloads = await call.apart(lambda: list_readable_workloads(call))
    streams = await call.api.page.log_streams.read()
    options = await asyncio.to_thread(lambda: complete_query(text, select_streams(streams, workloads)))
    return call.respond({"options": [option._asdict() for option in options]})


async def download_logs(call: Call) -> Response:
    """The newest lines as a file: time, workload, replica, and the line."""
    lines = await collect_lines(call, call.count("lines", _LINES, _MOST_DOWNLOADED))
    rows = (f"{line['time']} {line['gvc']}/{line['workload']} {line['replica']} {line['line']}" for line in lines)
    text = "".join(f"{escape_text(row)}\n" for row in rows)
    return Response(text, headers={"Content-Disposition": 'attachment; filename="logs.txt"'}, media_type=TEXT)


PAGES = (
    make_page_operation("/ui/logs", show_logs, "Logs of workloads.", "readLogs", (*_PARAMETERS, _LEVEL)),
    make_page_operation("/ui/logs/download", download_logs, "Logs as a file.", "readLogs", _PARAMETERS)._replace(
        media=TEXT
    ),
    make_page_operation(
        "/ui/logs/complete", complete_box, "What may follow the beginning of a query.", "readLogs", ("query",)
    )._replace(media=JSON),
)
