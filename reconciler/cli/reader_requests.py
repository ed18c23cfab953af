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
from reconciler.cli.commands.logs import choose_level, line_form
from reconciler.cli.commands.plan import choose_exit_code, print_plans
from reconciler.cli.options import select_sources
from reconciler.cli.output.forms import Output, format_document, print_document, print_items
from reconciler.cli.output.printing import echo_text, source_errors_printed
from reconciler.cli.overview_commands import (
    name_nothing,
    names_one,
    pick_one,
    show_text,
    wait_for_end,
    watch_text,
)
from reconciler.engines.reading import LogLine, LogStream
from reconciler.errors import ReconcilerError, RefusedError
from reconciler.overviews.choosing import take_choice
from reconciler.overviews.overview import FOLLOW, WIDE, Overview
from reconciler.overviews.table import OVERVIEWS
from reconciler.printable import write_unguarded
from reconciler.render.plan.rendered import RenderedPlan
from reconciler.settings import Settings
from reconciler.terminal.folding import can_redraw
from reconciler.terminal.live_display import repeat_drawing
from reconciler.times import iso_milliseconds, parse_time

JSON, TEXT, LINES, MARKDOWN = "application/json", "text/plain", "application/x-ndjson", "text/markdown"
YAML = "application/yaml"
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
    output: Output = parameters["output"]
    query = _select_values(parameters, *(parameter.name for parameter in (*overview.parameters, *overview.choices)))
    query |= {WIDE: output.form == "wide"}
    if parameters.get("since") is not None:
        query["since"] = iso_milliseconds(round(parameters["since"] * 1000))
    if overview.is_feed:
        _print_feed(api, overview, query | _select_values(parameters, FOLLOW), output)
    elif output.is_text:
        _print_text(overview, api, parameters, lambda: api.read(overview.path, query, TEXT))
    else:
        media = YAML if output.form == "yaml" and _has_own_form(overview, parameters) else JSON
        _print_value(overview, api, parameters, lambda: api.read(overview.path, query, media))
    return int(api.headers.get("Exit-Code") or 0)


def _print_feed(api: ApiClient, overview: Overview, query: Mapping[str, object], output: Output) -> None:
    for line in api.stream(overview.path, query, TEXT if output.is_text else LINES):
        if output.form in ("text", "wide", "json"):
            click.echo(line.decode(), nl=False)
        else:
            print_items(output, [msgspec.json.decode(line)])


def _print_text(overview: Overview, api: ApiClient, parameters: Parameters, read: Callable[[], str]) -> None:
    """Print the text that ``read`` returns, as ``parameters`` have it."""
    shown_lines = slice(1 if parameters.get("no_headers") else 0, None)

    def read_lines() -> str:
        return "".join(read().splitlines(keepends=True)[shown_lines])

    if overview.is_measured and not parameters["once"] and can_redraw(sys.stdout):
        repeat_drawing(sys.stdout, lambda: read_lines() or overview.nothing, parameters["interval"])
        return
    if parameters.get("watch"):
        watch_text(read_lines, overview, parameters["interval"], on_terminal=True)
        return
    text = _read_at_end(api, parameters, read_lines)
    is_wide = parameters["output"].form == "wide"
    show_text(text, name_nothing(overview, take_choice({**parameters}), parameters), wide=is_wide)
    if overview.notes_path:
        echo_text(api.read(overview.notes_path, {}, TEXT), nl=False, err=True)


def _print_value(overview: Overview, api: ApiClient, parameters: Parameters, read: Callable[[], str]) -> None:
    """Print the JSON that ``read`` returns in the form of the output."""
    output: Output = parameters["output"]

    def read_document() -> Any:
        document = msgspec.json.decode(read())
        if overview.listing is not None and "itemKind" in document:
            document = {overview.listing.member: document["items"]}
        return pick_one(document) if names_one(parameters) else document

    if output.form in _FORMS and _has_own_form(overview, parameters):
        if parameters.get("watch"):
            watch_text(read, overview, parameters["interval"], on_terminal=False)
        click.echo(_read_at_end(api, parameters, read), nl=False)
        return
    member = overview.listing.member if overview.listing is not None else overview.named
    if parameters.get("watch"):
        watch_text(
            lambda: format_document(output, read_document(), member),
            overview,
            parameters["interval"],
            on_terminal=False,
        )
    print_document(output, _read_at_end(api, parameters, read_document), member)


def _has_own_form(overview: Overview, parameters: Parameters) -> bool:
    """Whether the API answers as the command prints it: it sends the JSON of a short list in a form of its own."""
    return not names_one(parameters) and (overview.listing is None or overview.listing.extras is not None)


def _read_at_end(api: ApiClient, parameters: Parameters, read: Callable[[], Any]) -> Any:
    """What ``read`` returns, with --wait once it no longer changes by itself."""
    if not parameters.get("wait"):
        return read()
    return wait_for_end(read, lambda _: api.headers["Changing"] == "yes", parameters["timeout"])


def _show_logs(api: ApiClient, parameters: Parameters) -> None:
    query = _select_values(parameters, "follow", "location", "replica")
    query |= {"query": parameters["query_text"], "lines": parameters["limit"]}
    for name in ("since", "until"):
        query[name] = None if parameters[name] is None else iso_milliseconds(round(parameters[name] * 1000))
    show, output, level = line_form(), parameters["output"], parameters["level"]
    choose = choose_level(level)
    for line in api.stream("-log", query, LINES):
        if level is not None and not choose([_decode_log_line(line)]):
            continue
        if output.form in ("text", "wide", "json"):
            shown = line.decode() if output.form == "json" else f"{show(_decode_log_line(line))}\n"
            write_unguarded(sys.stdout, shown)
        else:
            print_items(output, [msgspec.json.decode(line)])


def _decode_log_line(encoded: bytes) -> LogLine:
    fields = msgspec.json.decode(encoded)
    ms, text = round(parse_time(fields.pop("time")) * 1000), fields.pop("line")
    return LogLine(ms, LogStream(**fields), text.encode())


def _show_plans(api: ApiClient, settings: Settings, parameters: Parameters) -> int:
    if parameters["out"] is not None:
        raise RefusedError("plan: --out may not be used by readers; redirect the output of -o json")
    if parameters["directory"] is not None:
        raise RefusedError(
            "plan: --dir may not be used by readers, as the daemon cannot read it; see `reconciler diff`"
        )
    sources, output = select_sources(settings, parameters["name"]), parameters["output"]
    form = output.base
    query = _select_values(parameters, "revision") | {"blame": {True: "true", False: "false"}.get(parameters["blame"])}
    failed: dict[str, ReconcilerError] = {}
    plans: list[RenderedPlan] = []
    for source in sources:
        with source_errors_printed(source.name, failed):
            shown = api.read(f"source/{source.name}/-plan", query, _FORMS[form])
            changes, has_errors = int(api.headers["Plan-Changes"]), api.headers["Plan-Errors"] != "0"
            document = msgspec.json.decode(shown) if form == "json" else None
            plans.append(RenderedPlan(changes, has_errors, shown, document=document))
    print_plans(plans, failed, output, several=len(sources) > 1)
    return choose_exit_code(plans, failed, is_detailed=parameters["detailed_exitcode"])


def _select_values(parameters: Parameters, *names: str) -> dict[str, object]:
    return {name: parameters[name] for name in names}


COMMANDS = (*OVERVIEWS, "logs", "plan")
"""What readers may run."""
