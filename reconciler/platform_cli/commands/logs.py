"""Logs of workloads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import unquote

from reconciler.platform_cli.references import WORD
from reconciler.platform_cli.session import Session

_MOST = 10_000
"""The most lines that the API sends."""


def show(session: Session, query: str, follow: bool | None, **options: str | None) -> None:
    """Print the newest lines that LogQL selects, and then new ones as they come if ``follow`` is set.

    A name alone is that of a workload in the GVC. With an output format other than text, each line is an object in
    JSON.
    """
    if WORD.fullmatch(query):
        workload_logs(session, "workload", query, follow, **options)
    elif not _print_lines(session, query, follow, options):
        session.output.note("no lines")


def workload_logs(session: Session, kind: str, ref: str, follow: bool | None, **options: str | None) -> None:
    """Print the newest lines of a workload; one that is gone can have some. Raises ApiError if it never existed."""
    path = session.path(kind, ref)
    *_, gvc, _, name = map(unquote, path.split("/"))
    if not _print_lines(session, f"{kind}/{gvc}/{name}", follow, options):
        session.client.get(path)
        session.output.note("no lines")


def _print_lines(session: Session, query: str, follow: bool | None, options: Mapping[str, str | None]) -> int:
    """How many lines there were, which are printed."""
    parameters = {"query": query, **{name: value for name, value in options.items() if value}}
    parameters["lines"] = str(session.max or _MOST)
    if follow:
        parameters["follow"] = "true"
    count = 0
    for count, line in enumerate(session.client.lines(f"/org/{session.org}/-log", parameters), 1):  # noqa: B007
        session.output.line(session.output.log_line(line) if session.output.is_text else json.dumps(line))
    return count
