"""Logs of workloads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reconciler.platform_cli.session import Session

_MOST = 10_000
"""The most lines that the API sends."""


def show(session: Session, query: str, follow: bool | None, **options: str | None) -> None:
    """Print the newest lines that LogQL selects, and then new ones as they come if ``follow`` is set.

    With an output format other than text, each line is an object in JSON.
    """
    wanted = {"query": query, **{name: value for name, value in options.items() if value}}
    wanted["lines"] = str(session.max or _MOST)
    if follow:
        wanted["follow"] = "true"
    for each in session.client.lines(f"/org/{session.org}/-log", wanted):
        session.output.line(_text(session, each) if session.output.is_text else json.dumps(each))


def workload_logs(session: Session, kind: str, ref: str, follow: bool | None, **options: str | None) -> None:
    """Print the newest lines of a workload."""
    name = ref.rpartition("/")[2]
    show(session, f"{kind}/{session.gvc}/{name}", follow, **options)


def _text(session: Session, line: Mapping[str, Any]) -> str:
    """Time, stream and text."""
    stream = "/".join(str(line.get(name, "")) for name in ("gvc", "workload", "replica", "container"))
    time = session.output.time(str(line.get("time", "")))
    return f"{time} {stream}@{line.get('location', '')} | {line.get('line', '')}"
