"""`reconciler logs`: show what workloads wrote."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar
from zlib import crc32

import click

from reconciler.cli.options import closed, is_served, load, records_or_none, settings_option
from reconciler.cli.output.printing import coloured
from reconciler.errors import NotFoundError, RefusedError, UsageError
from reconciler.printable import write_unguarded
from reconciler.render.layout import paint
from reconciler.times import iso_milliseconds, parse_time

if TYPE_CHECKING:
    from types import FrameType

    from reconciler.engines.host.logs.blocks import Block
    from reconciler.engines.host.logs.search import Line
    from reconciler.logql.query import LogQuery
    from reconciler.settings import Settings

_POLL_SECONDS = 0.3
_AT_ONCE = 500
"""Lines that are printed together."""
_NAMED = 10
"""Limit of workloads, or locations, named where the query matches no stream."""
_COLOURS = ("green", "yellow", "blue", "bold")
_LONGEST = 2.0
"""CPU seconds that the expressions of a query may take for the labels of a stream, or for one block."""

_Argument = TypeVar("_Argument")
_Found = TypeVar("_Found")


class LogOptions(NamedTuple):
    """The search; times in seconds since the epoch."""

    query: LogQuery
    follow: bool = False
    since: float | None = None
    until: float | None = None
    limit: int = 100
    location: str | None = None


def _query(ctx: click.Context, param: click.Parameter, value: str) -> LogQuery:
    """Callback of the query; a key stands for all its streams."""
    from reconciler.logql.query import LogQuery, Matcher, QueryError, parse
    from reconciler.model.key import Key, Kind

    if not value.lstrip().startswith("{"):
        try:
            key = Key.parse(value)
        except ValueError:
            key = None
        if key is None or key.kind not in (Kind.WORKLOAD, Kind.GVC):
            hint = """write workload/GVC/NAME, gvc/NAME, or streams in braces: '{gvc="shop"} |= "error"'"""
            raise click.BadParameter(f"{value!r} names no streams; {hint}", ctx, param)
        if key.kind is Kind.GVC:
            return LogQuery((Matcher("gvc", "=", key.name),))
        return LogQuery((Matcher("gvc", "=", key.gvc), Matcher("workload", "=", key.name)))
    try:
        return parse(value)
    except QueryError as error:
        raise click.BadParameter(f"{error}{_pointed(value, error.column)}", ctx, param) from None


def _pointed(query: str, column: int) -> str:
    """``query`` again with a mark below the column; "" where the mark would not line up."""
    shown = len(query) < 90 and query.isascii() and query.isprintable()
    return f"\n  {query}\n  {' ' * (column - 1)}^" if shown else ""


def _time(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Callback of an option that is a time or an age: returns seconds since the epoch."""
    from reconciler.clock import SystemClock
    from reconciler.settings import parse_duration

    if value is None:
        return None
    try:
        return SystemClock().now() - parse_duration(value)
    except ValueError:
        pass
    try:
        return parse_time(value)
    except ValueError:
        raise click.BadParameter("write a time such as 2026-01-31T12:00:00Z, or 30m, 2h, 3d", ctx, param) from None


@click.command(epilog="""Example: reconciler logs '{gvc="shop"} |= "error"' --since 1h""")
@click.argument("query", callback=_query)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now.")
@click.option("--since", metavar="TIME", callback=_time, help="Not before; 30m, 2h or 3d ago, or 2026-01-31T12:00:00Z.")
@click.option("--until", metavar="TIME", callback=_time, help="Not after; written as --since.")
@click.option("--limit", metavar="N", default=100, type=click.IntRange(min=0), help="How many lines at most; 100.")
@click.option("--location", metavar="NAME", help="Only what was written at this location.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: one object a line.")
@settings_option
def command(settings_file: Path, output: str, **wanted: Any) -> None:
    """Show the newest lines that workloads wrote on this host, oldest first.

    QUERY is a key (workload/shop/web, gvc/shop), or streams by their labels gvc, workload, location, replica and
    container (= != =~ !~) and then what their lines hold (|= != |~ !~), as in LogQL. A line has the time at which it
    was read. Lines are shown as they were written: a secret that a workload writes stands here too.
    """
    asked = LogOptions(**wanted)
    if asked.follow and asked.until is not None:
        raise UsageError("--follow goes on with what comes, and --until ends before it: give one of them")
    settings = load(settings_file)
    show = _as_json if output == "json" else _as_text(coloured(sys.stdout), _is_watched())
    try:
        for lines in _found(asked, settings):
            _print_lines(lines, show)
    except PermissionError as error:
        raise closed(settings, error) from None


def _found(asked: LogOptions, settings: Settings) -> Iterator[Sequence[Line]]:
    """The newest lines, and then with ``follow`` new ones as they come."""
    from reconciler.engines.host.logs.search import Search, Span, select
    from reconciler.engines.host.logs.segments import roots

    def places() -> dict[str, Path]:
        return {name: root for name, root in roots(settings.state).items() if asked.location in (None, name)}

    def lines_of(block: Block) -> Sequence[bytes]:
        return select(asked.query, block)

    signal.signal(signal.SIGVTALRM, _give_up)
    search = Search(places, _in_time(asked.query.selects), _in_time(lines_of))
    if not any(search.streams()):
        _check_named(asked, settings)
        if not asked.follow:
            click.echo(_nothing(settings.state, asked.location), err=True)
    span = Span() if asked.since is None else Span(since=int(asked.since * 1000))
    yield search.newest(asked.limit, span if asked.until is None else span._replace(until=int(asked.until * 1000)))
    while asked.follow:
        time.sleep(_POLL_SECONDS)
        yield search.more()


def _check_named(asked: LogOptions, settings: Settings) -> None:
    """Raise NotFoundError where a named location, GVC or workload does not exist."""
    from reconciler.engines.host.logs.segments import roots, streams
    from reconciler.model.key import Key, Kind
    from reconciler.queries.existence import check_gvc, check_key, did_you_mean

    known = settings.locations.keys() | roots(settings.state).keys()
    if asked.location is not None and asked.location not in known:
        raise NotFoundError(f"there is no location {asked.location!r}{did_you_mean(asked.location, known)}")
    named = {each.label: each.value for each in asked.query.matchers if each.op == "="}
    if len(named) < len(asked.query.matchers) or named.keys() not in ({"gvc"}, {"gvc", "workload"}):
        return
    if any(asked.query.selects(stream.labels()) for stream in streams(roots(settings.state))):
        return  # deleted workloads can have logs
    with closing(records_or_none(settings)) as records:
        try:
            if "workload" in named:
                check_key(records, Key(Kind.WORKLOAD, named["gvc"], named["workload"]))
            else:
                check_gvc(records, named["gvc"])
        except NotFoundError as error:
            end = "" if str(error).endswith("?") else ";"
            raise NotFoundError(f"{error}{end} {_nothing(settings.state, asked.location)}") from None


def _nothing(state: Path, location: str | None) -> str:
    """The message where the query matches no stream."""
    from reconciler.engines.host.logs.segments import roots, streams

    there = list(streams(roots(state)))
    if not there:
        return "there are no logs on this host"
    if location is not None and location not in {stream.location for stream in there}:
        found, begin = {stream.location for stream in there}, f"there are no logs of {location} on this host"
    else:
        found, begin = {f"{stream.gvc}/{stream.workload}" for stream in there}, "the query chooses no logs"
    return f"{begin}; there are those of {', '.join(sorted(found)[:_NAMED])}{', …' if len(found) > _NAMED else ''}"


def _in_time(call: Callable[[_Argument], _Found]) -> Callable[[_Argument], _Found]:
    """``call`` with a limit of CPU time: some expressions would take years."""

    def bounded(argument: _Argument) -> _Found:
        signal.setitimer(signal.ITIMER_VIRTUAL, _LONGEST)
        try:
            return call(argument)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    return bounded


def _give_up(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise RefusedError("an expression of the query takes too long; write it without repeats of repeats, such as (a+)+")


def _is_watched() -> bool:
    """Whether the output can reach a terminal, here or at a reader whom the daemon serves."""
    return sys.stdout.isatty() or is_served()


def _print_lines(lines: Sequence[Line], show: Callable[[Line], str]) -> None:
    for begin in range(0, len(lines), _AT_ONCE):
        # A pipe gets the lines as the workload wrote them; for a terminal, ``show`` escapes control characters.
        write_unguarded(sys.stdout, "\n".join(map(show, lines[begin : begin + _AT_ONCE])) + "\n")


def _as_text(on: bool, watched: bool) -> Callable[[Line], str]:
    """A line as time, stream and text, coloured where ``on``; ``watched``: control characters are escaped."""

    def shown(line: Line) -> str:
        at = line.stream
        name = f"{at.gvc}/{at.workload}/{at.replica}/{at.container}@{at.location}"
        text = _read(line.text)
        stream = paint(name, _COLOURS[crc32(name.encode()) % len(_COLOURS)], on)
        return f"{paint(iso_milliseconds(line.ms), 'grey', on)} {stream} | {_harmless(text) if watched else text}"

    return shown


def _as_json(line: Line) -> str:
    import msgspec

    fields = {"time": iso_milliseconds(line.ms), **line.stream.labels(), "line": _read(line.text)}
    return msgspec.json.encode(fields).decode()


def _read(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")


def _harmless(text: str) -> str:
    """``text`` with unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text)
