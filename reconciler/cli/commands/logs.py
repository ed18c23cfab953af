"""`reconciler logs`: show the logs of workloads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import (
    load_settings_as_owner,
    make_access_error,
    read_past_time,
    records_or_none,
    settings_option,
)
from reconciler.cli.output.forms import Output, output_option, print_items
from reconciler.cli.output.printing import echo_text
from reconciler.cli.target_arguments import TargetCommand, read_gvc, target_argument
from reconciler.errors import UsageError
from reconciler.logql.log_entries import LEVELS
from reconciler.printable import write_unguarded
from reconciler.terminal.folding import is_colour_terminal

if TYPE_CHECKING:
    from reconciler.engines.reading import LogLine
    from reconciler.logql.query import LogQuery
    from reconciler.queries.logs import LogOptions
    from reconciler.settings import Settings

_POLL_SECONDS = 0.3
_AT_ONCE = 500
"""Lines that are printed together."""


def _parse_query_option(ctx: click.Context, param: click.Parameter, value: str) -> LogQuery:
    """Callback of the query; a key stands for all its streams."""
    from reconciler.logql.tokens import QueryError
    from reconciler.queries.logs import parse_query

    gvc = read_gvc(ctx)
    # The API of the daemon takes it as written.
    ctx.meta["query_text"] = f"{gvc}/{value}" if gvc and "/" not in value and not value.startswith("{") else value
    try:
        return parse_query(value, gvc)
    except QueryError as error:
        raise click.BadParameter(f"{error}{_mark_column(value, error.column)}", ctx, param) from None
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _mark_column(query: str, column: int) -> str:
    """``query`` again with a mark below the column; "" where the mark would not line up."""
    shown = len(query) < 90 and query.isascii() and query.isprintable()
    return f"\n  {query}\n  {' ' * (column - 1)}^" if shown else ""


@click.command(cls=TargetCommand, epilog="""Example: reconciler logs '{gvc="shop"} |= "error"' --since 1h""")
@target_argument("query", _parse_query_option)
@click.option("-f", "--follow", is_flag=True, help="Also show new lines as they come.")
@click.option(
    "--since",
    metavar="TIME",
    callback=read_past_time,
    help="Only lines since 30m, 2h or 3d ago, or a time.",
)
@click.option("--until", metavar="TIME", callback=read_past_time, help="Only lines until then; written as --since.")
@click.option(
    "--limit", "--tail", "limit", metavar="N", default=100, type=click.IntRange(min=0), help="Limit of lines; 100."
)
@click.option("--location", metavar="NAME", help="Only lines of this location.")
@click.option("--replica", metavar="NAME", help="Only lines of this replica or execution.")
@click.option("--level", type=click.Choice(LEVELS), metavar="L", help="Of these lines: error, warning, info or debug.")
@output_option(has_names=False)
@settings_option
def command(settings_file: Path, output: Output, follow: bool, level: str | None, **parameters: Any) -> None:
    """Show the newest lines of the logs of workloads on this host, oldest first.

    QUERY is a key (workload/shop/web, gvc/shop), or LogQL: a selector of streams by their labels gvc, workload,
    location, replica and container (= != =~ !~), then filters of lines (|= != |~ !~) and stages (| json). See
    docs/logs.md. The time of a line is when it was read, or written by an image. Lines are not redacted: a secret that
    a workload writes is shown.
    """
    from reconciler.queries.logs import LogOptions

    options = LogOptions(**parameters)
    if follow and options.until is not None:
        raise UsageError("--follow shows new lines, and --until excludes them: use one of them")
    settings = load_settings_as_owner(settings_file)
    try:
        for lines in map(choose_level(level), _read_lines(settings, options, follow)):
            _print_lines(lines, output)
    except PermissionError as error:
        raise make_access_error(settings, error) from None


def choose_level(level: str | None) -> Callable[[Sequence[LogLine]], Sequence[LogLine]]:
    """Chooses among lines, oldest first, those of ``level`` (None: any); a stack trace has that of its first line."""
    from reconciler.logql.log_entries import LineGrouper
    from reconciler.render.logs import log_item

    grouper = LineGrouper()
    return lambda lines: [line for line in lines if level in (None, grouper.add(log_item(line)).level)]


def line_form() -> Callable[[LogLine], str]:
    """The text of a line; escaped where the output reaches a terminal."""
    from reconciler.render.logs import log_line

    return partial(log_line, colour=is_colour_terminal(sys.stdout), escape=sys.stdout.isatty())


def _read_lines(settings: Settings, options: LogOptions, follow: bool) -> Iterator[Sequence[LogLine]]:
    """The newest lines, and then with ``follow`` new ones as they come."""
    from reconciler.logql.limits import limit_time, prepare_limits
    from reconciler.queries.logs import Bounds, LogReader

    prepare_limits()
    reader = LogReader(settings, options, Bounds(limit_time, limit_time))
    for location, fault in sorted(reader.faults.items()):
        echo_text(f"the logs at {location} are missing: {fault}", err=True)
    nothing = reader.nothing_selected(partial(records_or_none, settings))
    if nothing and not follow:
        click.echo(nothing, err=True)
    yield reader.newest()
    while follow:
        time.sleep(_POLL_SECONDS)
        yield reader.more()


def _print_lines(lines: Sequence[LogLine], output: Output) -> None:
    from reconciler.render.logs import log_item, log_json

    if output.base == "json" and output.form != "json":
        print_items(output, list(map(log_item, lines)))
        return
    show = line_form() if output.is_text else log_json
    for begin in range(0, len(lines), _AT_ONCE):
        # A pipe gets the lines as the workload wrote them; for a terminal, ``show`` escapes control characters.
        write_unguarded(sys.stdout, "\n".join(map(show, lines[begin : begin + _AT_ONCE])) + "\n")
