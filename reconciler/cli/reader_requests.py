"""Runs the reading commands for a member of the group `readers`, who may not read the records: by the HTTP API.

The daemon has to answer, and shows its own settings and records.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

from reconciler.cli.api_client import ApiClient
from reconciler.cli.commands.logs import line_form
from reconciler.cli.commands.plan import CHANGES
from reconciler.cli.commands.top import NO_REPLICAS
from reconciler.cli.options import select_sources
from reconciler.cli.output.printing import echo_json, source_errors_printed
from reconciler.engines.reading import LogLine, LogStream
from reconciler.errors import ReconcilerError, RefusedError
from reconciler.printable import write_unguarded
from reconciler.settings import Settings
from reconciler.terminal.live_display import Live
from reconciler.times import iso_milliseconds, parse_time

JSON, TEXT, YAML, LINES, MARKDOWN = (
    "application/json", "text/plain", "application/yaml", "application/x-ndjson", "text/markdown",
)  # fmt: skip
_FORMS = {"text": TEXT, "json": JSON, "yaml": YAML, "markdown": MARKDOWN}
Parameters = Mapping[str, Any]


def answer(settings: Settings, command: str, parameters: Parameters) -> int:
    """Run ``command`` with the ``parameters`` of its command line; returns the exit code. Raises ReconcilerError."""
    run = COMMANDS.get(command)
    if run is None:
        raise RefusedError(f"`{command}` is not for readers; they may run {', '.join(COMMANDS)}")
    return run(ApiClient(settings), settings, parameters) or 0


def _get(api: ApiClient, _settings: Settings, wanted: Parameters) -> None:
    form = _FORMS[wanted["output"]]
    _show(api.read("-status", _only(wanted, "kind", "gvc", "name"), form), "nothing is recorded")
    if form == TEXT:
        click.echo(api.read("source", {}, TEXT), nl=False, err=True)


def _describe(api: ApiClient, _settings: Settings, wanted: Parameters) -> None:
    click.echo(api.read("-describe", _only(wanted, "key"), TEXT), nl=False)


def _events(api: ApiClient, _settings: Settings, wanted: Parameters) -> None:
    form = LINES if wanted["output"] == "json" else TEXT
    for line in api.stream("-events", _only(wanted, "key", "follow", "last"), form):
        click.echo(line.decode(), nl=False)


def _history(api: ApiClient, _settings: Settings, wanted: Parameters) -> None:
    query = _only(wanted, "source", "last")
    if wanted["output"] == "json":
        echo_json({"items": api.items("-runs", query)})
    else:
        click.echo(api.read("-runs", query, TEXT), nl=False)


def _snapshots(api: ApiClient, _settings: Settings, wanted: Parameters) -> None:
    query = _only(wanted, "key", "deleted")
    if wanted["output"] == "json":
        echo_json({"items": api.items("-snapshot", query)})
    else:
        _show(api.read("-snapshot", query, TEXT), "there are no snapshots")


def _top(api: ApiClient, _settings: Settings, wanted: Parameters) -> None:
    query = _only(wanted, "gvc")
    if wanted["output"] == "json":
        echo_json({"replicas": api.items("-top", query)})
    elif wanted["once"] or not sys.stdout.isatty():
        _show(api.read("-top", query, TEXT), NO_REPLICAS)
    else:
        with Live(sys.stdout) as live:
            while True:
                live.draw(api.read("-top", query, TEXT).splitlines() or [NO_REPLICAS])
                time.sleep(wanted["interval"])


def _logs(api: ApiClient, _settings: Settings, wanted: Parameters) -> None:
    query = _only(wanted, "follow", "location", "replica")
    query |= {"query": wanted["query_text"], "lines": wanted["limit"]}
    for name in ("since", "until"):
        query[name] = None if wanted[name] is None else iso_milliseconds(round(wanted[name] * 1000))
    show = line_form("text")
    for line in api.stream("-log", query, LINES):
        write_unguarded(sys.stdout, line.decode() if wanted["output"] == "json" else f"{show(_line(line))}\n")


def _line(encoded: bytes) -> LogLine:
    fields = msgspec.json.decode(encoded)
    ms, text = round(parse_time(fields.pop("time")) * 1000), fields.pop("line")
    return LogLine(ms, LogStream(**fields), text.encode())


def _plan(api: ApiClient, settings: Settings, wanted: Parameters) -> int:
    if wanted["out"] is not None:
        raise RefusedError("plan: --out may not be used by readers; redirect the output of --format json")
    sources, form = select_sources(settings, wanted["name"]), _FORMS[wanted["form"]]
    failed: dict[str, ReconcilerError] = {}
    shown: list[str] = []
    changes = errors = 0
    for source in sources:
        with source_errors_printed(source.name, failed):
            query = _only(wanted, "revision") | {"blame": {True: "true", False: "false"}.get(wanted["blame"])}
            shown.append(api.read(f"source/{source.name}/-plan", query, form))
            changes += int(api.headers["Plan-Changes"])
            errors += int(api.headers["Plan-Errors"])
    if form == JSON:
        documents = [msgspec.json.decode(each) for each in shown]
        echo_json(documents if len(sources) > 1 else documents[0])
    else:
        click.echo("\n".join(shown), nl=False)
    if failed or errors:
        return 1
    return CHANGES if wanted["detailed_exitcode"] and changes else 0


def _only(wanted: Parameters, *names: str) -> dict[str, object]:
    return {name: wanted[name] for name in names}


def _show(text: str, nothing: str) -> None:
    """Print ``text``, or ``nothing`` on standard error where it is empty."""
    click.echo(text or f"{nothing}\n", nl=False, err=not text)


COMMANDS: Mapping[str, Callable[[ApiClient, Settings, Parameters], int | None]] = {
    "get": _get,
    "describe": _describe,
    "events": _events,
    "logs": _logs,
    "top": _top,
    "snapshots": _snapshots,
    "history": _history,
    "plan": _plan,
}
"""What readers may run."""
