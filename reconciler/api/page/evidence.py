"""What is behind a reason: the replicas that are not ready, and the last lines that a workload wrote."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.rendering import render_page
from reconciler.api.page.resources import find_visible_key, read_replicas
from reconciler.api.problems import Problem
from reconciler.api.routes.observing import collect_lines
from reconciler.api.table import make_page_operation
from reconciler.engines.reading import ReplicaState
from reconciler.model.key import Key, Kind
from reconciler.status.conditions import compute_conditions
from reconciler.status.facts import FactsReader

LINES = 10
"""The newest lines of the log that are shown."""


async def show_evidence(call: Call) -> Response:
    """Why a workload is not well."""
    key = find_visible_key(call)
    if key.kind is not Kind.WORKLOAD:
        raise Problem(404, f"a {key.kind} has no replicas and no log; its page has the reason")
    replicas, fault = await read_replicas(call, key)
    reader = FactsReader(call.reader.records, call.api.settings)
    lines, unread = await _read_lines(call, key)
    return render_page(
        call,
        "evidence.html",
        key=key,
        ready=compute_conditions(reader.facts(key))[0],
        replicas=[row for row in replicas if row.state is not ReplicaState.READY or row.fault],
        fault=fault,
        lines=lines,
        unread=unread,
    )


async def _read_lines(call: Call, key: Key) -> tuple[list[dict[str, Any]], str]:
    """The newest lines of the log of ``key``, and why they cannot be read, "" if they can."""
    if not call.may("readLogs", key):
        return [], "You may not read its log."
    try:
        return await collect_lines(call, LINES, str(key)), ""
    except Problem as problem:
        return [], f"The log cannot be read: {problem}."


PAGES = (make_page_operation("/ui/evidence/{kind}/{gvc}/{name}", show_evidence, "Why a workload is not well.", "view"),)
