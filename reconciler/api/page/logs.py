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
from reconciler.printable import escape_text

_LINES, _MOST_LINES, _MOST_DOWNLOADED = 200, 1_000, 10_000
_PARAMETERS = ("query", "since", "until", "lines")


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
    download = f"/ui/logs/download?{urlencode(asked | {'lines': _MOST_DOWNLOADED})}"
    return render_page(
        call,
        "logs.html",
        problem.status if problem is not None else 200,
        query=query,
        lines=lines,
        problem=problem,
        since=call.query("since"),
        until=call.query("until"),
        limit=limit,
        download=download,
    )


async def download_logs(call: Call) -> Response:
    """The newest lines as a file: time, workload, replica, and the line."""
    lines = await collect_lines(call, call.count("lines", _LINES, _MOST_DOWNLOADED))
    rows = (f"{line['time']} {line['gvc']}/{line['workload']} {line['replica']} {line['line']}" for line in lines)
    text = "".join(f"{escape_text(row)}\n" for row in rows)
    return Response(text, headers={"Content-Disposition": 'attachment; filename="logs.txt"'}, media_type=TEXT)


PAGES = (
    make_page_operation("/ui/logs", show_logs, "Logs of workloads.", "readLogs", _PARAMETERS),
    make_page_operation("/ui/logs/download", download_logs, "Logs as a file.", "readLogs", _PARAMETERS)._replace(
        media=TEXT
    ),
)
