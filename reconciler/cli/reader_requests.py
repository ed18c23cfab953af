"""Runs the reading commands for a member of the group `readers`, who may not read the records: by the HTTP API.

The daemon has to answer, and shows its own settings and records.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

from reconciler.cli.api_client import ApiClient
from reconciler.cli.commands.logs import line_form
from reconciler.cli.commands.plan import choose_exit_code, print_plans
from reconciler.cli.options import select_sources
from reconciler.cli.output.printing import echo_json, source_errors_printed
from reconciler.cli.overview_commands import draw_live, show_text, wait_for_end, watch_text
from reconciler.engines.reading import LogLine, LogStream
from reconciler.errors import ReconcilerError, RefusedError
from reconciler.overviews.overview import FOLLOW, Overview
from reconciler.overviews.table import OVERVIEWS
from reconciler.printable import write_unguarded
from reconciler.render.plan.rendered import RenderedPlan
from reconciler.settings import Settings
from reconciler.times import iso_milliseconds, parse_time

JSON, TEXT, YAML, LINES, MARKDOWN = (
    "application/json",
    "text/plain",
    "application/yaml",
    "application/x-ndjson",
    "text/markdown",
)
_FORMS = {"text": TEXT, "json": JSON, "yaml": YAML, "markdown": MARKDOWN}
Parameters = Mapping[str, Any]


def answer_command(settings: Settings, command: str, parameters: Parameters) -> int:
    """Run ``command`` with the ``parameters`` of its command line; returns the exit code. Raises ReconcilerError."""
    api = ApiClient(settings)
    match command:
        case "logs":
            _show_logs(api, parameters)
        case "plan":
            return _show_plans(api, settings, parameters)
        case _ if command in OVERVIEWS:
            return _print_overview(OVERVIEWS[command], api, parameters)
        case _:
            raise RefusedError(f"`{command}` is not for readers; they may run {', '.join(COMMANDS)}")
    return 0


def _print_overview(overview: Overview, api: ApiClient, parameters: Parameters) -> int:
    """Print ``overview`` as its command does; returns the exit code."""
    output = parameters.get("output", "text")
    query = _select_values(parameters, *(parameter.name for parameter in overview.parameters))
    if overview.is_feed:
        lines = api.stream(
            overview.path, query | _select_values(parameters, FOLLOW), LINES if output == "json" else TEXT
        )
        for line in lines:
            click.echo(line.decode(), nl=False)
    elif output == "json" and overview.items is not None:
        echo_json({overview.member: api.items(overview.path, query)})
    elif overview.is_measured and not parameters["once"] and sys.stdout.isatty():
        draw_live(lambda: api.read(overview.path, query, TEXT), overview, parameters["interval"])
    else:
        _print_value(overview, api, parameters, lambda: api.read(overview.path, query, _FORMS[output]))
    return int(api.headers.get("Exit-Code") or 0)


def _print_value(overview: Overview, api: ApiClient, parameters: Parameters, read: Callable[[], str]) -> None:
    output = parameters.get("output", "text")
    if parameters.get("watch"):
        watch_text(read, overview, parameters["interval"], on_terminal=output == "text")
    shown = read()
    if parameters.get("wait"):
        shown = wait_for_end(read, lambda _: api.headers["Changing"] == "yes", parameters["timeout"])
    show_text(shown, overview.nothing)
    if output == "text" and overview.notes_path:
        click.echo(api.read(overview.notes_path, {}, TEXT), nl=False, err=True)


def _show_logs(api: ApiClient, parameters: Parameters) -> None:
    query = _select_values(parameters, "follow", "location", "replica")
    query |= {"query": parameters["query_text"], "lines": parameters["limit"]}
    for name in ("since", "until"):
        query[name] = None if parameters[name] is None else iso_milliseconds(round(parameters[name] * 1000))
    show = line_form("text")
    for line in api.stream("-log", query, LINES):
        write_unguarded(
            sys.stdout, line.decode() if parameters["output"] == "json" else f"{show(_decode_log_line(line))}\n"
        )


def _decode_log_line(encoded: bytes) -> LogLine:
    fields = msgspec.json.decode(encoded)
    ms, text = round(parse_time(fields.pop("time")) * 1000), fields.pop("line")
    return LogLine(ms, LogStream(**fields), text.encode())


def _show_plans(api: ApiClient, settings: Settings, parameters: Parameters) -> int:
    if parameters["out"] is not None:
        raise RefusedError("plan: --out may not be used by readers; redirect the output of --format json")
    if parameters["directory"] is not None:
        raise RefusedError(
            "plan: --dir may not be used by readers, as the daemon cannot read it; see `reconciler diff`"
        )
    sources, form = select_sources(settings, parameters["name"]), parameters["form"]
    query = _select_values(parameters, "revision") | {"blame": {True: "true", False: "false"}.get(parameters["blame"])}
    failed: dict[str, ReconcilerError] = {}
    plans: list[RenderedPlan] = []
    for source in sources:
        with source_errors_printed(source.name, failed):
            shown = api.read(f"source/{source.name}/-plan", query, _FORMS[form])
            changes, has_errors = int(api.headers["Plan-Changes"]), api.headers["Plan-Errors"] != "0"
            document = msgspec.json.decode(shown) if form == "json" else None
            plans.append(RenderedPlan(changes, has_errors, shown, document=document))
    print_plans(plans, failed, form, several=len(sources) > 1)
    return choose_exit_code(plans, failed, is_detailed=parameters["detailed_exitcode"])


def _select_values(parameters: Parameters, *names: str) -> dict[str, object]:
    return {name: parameters[name] for name in names}


COMMANDS = (*OVERVIEWS, "logs", "plan")
"""What readers may run."""
