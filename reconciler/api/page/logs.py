"""Logs: the newest lines that a query selects."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.rendering import render_page
from reconciler.api.problems import Problem
from reconciler.api.routes.observing import collect_lines
from reconciler.api.table import TEXT, make_page_operation
from reconciler.logql.log_entries import group_lines
from reconciler.model.key import Kind
from reconciler.printable import escape_text

_LINES, _MOST_LINES, _MOST_DOWNLOADED = 200, 1_000, 10_000
_MOST_SUGGESTED = 200
_PARAMETERS = ("query", "since", "until", "lines", "replica")
_LEVEL = "level"


async def show_logs(call: Call) -> Response:
    """The newest lines of the logs that a query selects."""
    query, limit = call.query("query"), call.count("lines", _LINES, _MOST_LINES)
    lines: list[dict[str, Any]] = []
    problem = None
    if query:
        try:
            lines = await collect_lines(call, limit)
        except Problem as error:
            if error.status not in (400, 404):
                raise
            problem = error
    asked = {name: value for name in _PARAMETERS if (value := call.query(name))}
    level = call.query(_LEVEL)
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
        until=call.query("until"),
        limit=limit,
        download=download,
    )


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
)
