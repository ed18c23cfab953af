"""The commands of overviews: options, output and help come from the table, the answer from the records."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.options import (
    Duration,
    load_settings_as_owner,
    make_access_error,
    read_past_time,
    read_records,
    records_or_none,
    settings_option,
    shared_option,
)
from reconciler.cli.output.forms import (
    Output,
    format_document,
    output_option,
    print_document,
    print_items,
)
from reconciler.cli.output.printing import echo_text
from reconciler.cli.target_arguments import (
    KindArgument,
    TargetCommand,
    complete_state,
    read_revision,
    read_target,
    target_argument,
)
from reconciler.command_words import NO_HEADERS, WATCH
from reconciler.errors import UsageError
from reconciler.model.lists.naming import format_names
from reconciler.overviews.choosing import Choice, choose_entries, take_choice
from reconciler.overviews.overview import (
    FOLLOW,
    LAST,
    SEARCHES,
    SOURCES,
    Entries,
    Feed,
    Measurement,
    Overview,
    Parameter,
    ReadContext,
)
from reconciler.overviews.writing import FORMS, make_document
from reconciler.terminal.folding import can_redraw
from reconciler.terminal.live_display import repeat_drawing

if TYPE_CHECKING:
    from reconciler.model.key import Kind
    from reconciler.render.style import TextStyle

_Callback = Callable[..., int]
_Declaration = Callable[[_Callback], _Callback]
"""Adds an option or argument to what a command calls."""

_POLL_SECONDS = 0.2
_MEASURE_SECONDS = 0.5
"""Seconds in which a command measures that prints once."""


class Display(NamedTuple):
    """How a command shows an overview: in the form ``output``, and as long as it is followed or not only ``once``.

    Text is without headings where ``no_headers`` is set. ``interval`` is the time in seconds between two measurements.
    With ``watch``, it is shown again when it changes; with ``wait``, once it no longer changes by itself, or after
    ``timeout`` seconds.
    """

    output: Output = Output()
    no_headers: bool = False
    follow: bool = False
    once: bool = False
    interval: float = 2.0
    watch: bool = False
    wait: bool = False
    timeout: float = 300.0

    @property
    def style(self) -> TextStyle:
        """How text is shown on standard output."""
        return self.output.style(headings=not self.no_headers)


def make_command(overview: Overview) -> click.Command:
    """The command that shows ``overview``."""

    def show(settings_file: Path, **values: Any) -> int:
        display = Display(**{name: values.pop(name) for name in Display._fields if name in values})
        return show_overview(overview, settings_file, values, display)

    declarations = [
        *_list_follow_options(overview),
        *map(_declare_parameter, (*overview.parameters, *overview.choices)),
        *_list_measure_options(overview),
        *_list_wait_options(overview),
    ]
    command: _Callback = settings_option(show)
    for declare in reversed([*declarations, *_list_output_options(overview)]):
        command = declare(command)
    declared: click.Command = click.command(
        overview.name,
        cls=TargetCommand,
        help=overview.help,
        epilog=f"Example: {overview.example}",
    )(command)
    return declared


def show_overview(overview: Overview, settings_file: Path, parameters: dict[str, Any], display: Display) -> int:
    """Print ``overview``, read with ``parameters``; returns the exit code. Raises ReconcilerError."""
    context = _open_context(overview, settings_file)
    reader = _Reader(overview, context, take_choice(parameters), parameters)
    try:
        if overview.is_feed:
            _show_feed(reader, display)
        elif overview.is_measured:
            _show_measured(reader, display)
        else:
            return _show_value(reader, display)
    except PermissionError as error:
        raise make_access_error(context.settings, error) from None
    return 0


class _Reader(NamedTuple):
    """What is shown, what it is read from, what is chosen of it, and the other parameters."""

    overview: Overview
    context: ReadContext
    choice: Choice
    parameters: dict[str, Any]

    def read(self) -> Any:
        """What the overview reads; of a list, what is chosen. Raises ReconcilerError."""
        value = self.overview.read(self.context, **self.parameters)
        return choose_entries(self.overview, value, self.choice) if isinstance(value, Entries) else value

    def choose(self, rows: Sequence[Any]) -> Entries:
        """What is chosen of ``rows``, which can be read again. Raises UsageError."""
        entries = choose_entries(self.overview, Entries(rows, self.context), self.choice)
        return entries._replace(rows=list(entries.rows))


def show_text(text: str, nothing: str, *, wide: bool = False) -> None:
    """Print ``text``, or ``nothing`` on standard error where it is empty; the lines of ``wide`` text stay long."""
    shown = text or nothing
    print_shown = click.echo if wide else echo_text
    print_shown(shown, nl=bool(shown) and not shown.endswith("\n"), err=not text)


def name_nothing(overview: Overview, choice: Choice, parameters: Mapping[str, Any]) -> str:
    """What is printed where there are no entries, or none that are chosen or that ``parameters`` search for."""
    is_search = any(parameters.get(name) for name in SEARCHES)
    return overview.nothing if choice == Choice() and not is_search else "nothing matches"


def _open_context(overview: Overview, settings_file: Path) -> ReadContext:
    """What overviews are read from here. Raises UsageError."""
    from reconciler.clock import SystemClock
    from reconciler.daemon.lock import find_lock_holder

    settings = load_settings_as_owner(settings_file)
    # What is measured needs no records, which may not exist yet.
    open_records = partial(records_or_none if overview.is_measured else read_records, settings)
    # Others ask the daemon, and only root and its user get here: what they may read is up to the files of the logs.
    return ReadContext(
        settings,
        open_records,
        SystemClock().now,
        lambda: find_lock_holder(settings.state) is not None,
        reads_logs=True,
    )


def _show_value(reader: _Reader, display: Display) -> int:
    """Show what is read, at once, or as ``display`` has it; returns the exit code."""
    overview, output = reader.overview, display.output
    if display.watch:
        watch_text(lambda: _make_text(reader, display), overview, display.interval, on_terminal=output.is_text)
        return 0
    value = _wait_with_display(overview, reader.read, display.timeout) if display.wait else reader.read()
    if output.is_text:
        text = overview.text(value, display.style)
        show_text(text, name_nothing(overview, reader.choice, reader.parameters), wide=display.style.wide)
        _show_notes(overview, value)
    elif output.template is not None:
        print_document(output, _make_document(reader, value))
    else:
        for part in _list_parts(reader, value, output):
            click.echo(part, nl=False)
    return overview.exit_code(value) if overview.exit_code is not None else 0


def _wait_with_display(overview: Overview, read: Callable[[], Any], timeout: float) -> Any:
    """As ``wait_for_end``; what is waited for is shown on standard error meanwhile."""
    from reconciler.cli.output.progress import WaitDisplay

    with WaitDisplay(sys.stderr) as display:
        show = display.show
        progress = overview.progress
        return wait_for_end(
            read, overview.is_changing, timeout, (lambda value: show(progress(value))) if progress else lambda _: None
        )


def wait_for_end(
    read: Callable[[], Any],
    is_changing: Callable[[Any], bool] | None,
    timeout: float,
    show: Callable[[Any], None] = lambda _: None,
) -> Any:
    """What ``read`` returns once it no longer changes by itself, or after ``timeout`` seconds.

    ``show`` gets each value before.
    """
    deadline, value = time.monotonic() + timeout, read()
    while is_changing is not None and is_changing(value) and time.monotonic() < deadline:
        show(value)
        time.sleep(_POLL_SECONDS)
        value = read()
    return value


def watch_text(read: Callable[[], str], overview: Overview, interval: float, *, on_terminal: bool) -> None:
    """Show what ``read`` returns until Ctrl-C: in place where that is for a terminal, else again after each change.

    In place, the key q ends it, too.
    """
    if on_terminal and can_redraw(sys.stdout):
        repeat_drawing(sys.stdout, lambda: read() or overview.nothing, interval)
        return
    shown = None
    while True:
        text = read()
        if text != shown:
            show_text(text, overview.nothing)
        shown = text
        time.sleep(interval)


def _make_text(reader: _Reader, display: Display) -> str:
    """What is read, as ``display`` has it."""
    value = reader.read()
    if display.output.is_text:
        return reader.overview.text(value, display.style)
    return "".join(_list_parts(reader, value, display.output))


def _list_parts(reader: _Reader, value: Any, output: Output) -> Iterator[str]:
    """``value`` in a form that is not text, in parts."""
    overview = reader.overview
    is_one = names_one(reader.parameters)
    if output.form in FORMS and not is_one:
        yield from FORMS[output.form](overview, value)
    elif output.form == "name" and overview.listing is not None:
        yield from (format_names([overview.listing.item(row)]) for row in value.rows)
    else:
        yield format_document(output, _make_document(reader, value), overview.named)


def _make_document(reader: _Reader, value: Any) -> Any:
    """``value`` as one JSON value: the object where one was asked for, else the list."""
    document = make_document(reader.overview, value)
    return pick_one(document) if names_one(reader.parameters) else document


def names_one(parameters: Mapping[str, Any]) -> bool:
    """Whether a command with ``parameters`` asks for one resource by its name."""
    return parameters.get("name") is not None


def pick_one(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The only item of a list; the list where several have the name."""
    items = document.get("items", ())
    return items[0] if len(items) == 1 else document


def _show_notes(overview: Overview, value: Any) -> bool:
    """Print the notes on ``value``; returns whether there are any."""
    notes = [*(overview.notes(value) if overview.notes is not None else ())]
    for note in notes:
        echo_text(note, err=True)
    return bool(notes)


def _show_feed(reader: _Reader, display: Display) -> None:
    last = reader.parameters.pop(LAST)
    if display.follow and reader.choice.sort:
        raise UsageError("--sort-by needs all entries, and --follow shows new ones: use one of them")
    feed: Feed = reader.read()
    rows = feed.newest(last)
    while True:
        _print_rows(reader, rows, display)
        if not display.follow:
            return
        while not (rows := feed.more()):
            time.sleep(_POLL_SECONDS)


def _print_rows(reader: _Reader, rows: Sequence[Any], display: Display) -> None:
    """Print entries of a feed, so that those that follow continue the output."""
    overview, output, entries = reader.overview, display.output, reader.choose(rows)
    listing = overview.listing
    assert listing is not None
    if not output.is_text:
        print_items(output, list(map(listing.item, entries.rows)))
    elif entries.rows:
        show_text(overview.text(entries, display.style), "", wide=display.style.wide)


def _show_measured(reader: _Reader, display: Display) -> None:
    overview, measurement = reader.overview, reader.read()
    listing = overview.listing
    assert listing is not None
    is_empty = _show_notes(overview, measurement)
    if not display.output.is_text:
        document = make_document(overview, reader.choose(_measure_usage(measurement)))
        print_document(display.output, document, listing.member)
    elif display.once or not can_redraw(sys.stdout):
        text = overview.text(reader.choose(_measure_usage(measurement)), display.style)
        show_text(text, name_nothing(overview, reader.choice, reader.parameters), wide=display.style.wide)
    elif not is_empty:
        repeat_drawing(
            sys.stdout,
            lambda: overview.text(reader.choose(measurement.read()), display.style) or overview.nothing,
            display.interval,
        )
    if not is_empty:
        # Only a read shows which locations do not answer.
        _show_notes(overview, measurement)


def _measure_usage(measurement: Measurement) -> Sequence[Any]:
    """What is used for a moment."""
    if measurement.read():
        time.sleep(_MEASURE_SECONDS)
    return measurement.read()


def _declare_parameter(parameter: Parameter) -> _Declaration:
    """The argument or option of ``parameter``."""
    if parameter.type in ("key", "target"):
        return target_argument(parameter.name, read_target, required=parameter.required)
    if parameter.type == "revision":
        return target_argument(parameter.name, read_revision, default="", metavar="[TARGET]")
    parse = _parse_kind if parameter.type == "kind" else None
    if not parameter.help:
        # An argument with a default is not required, even if that is None.
        default = {} if parameter.required else {"default": parameter.default}
        argument = KindArgument if parameter.type == "kind" else click.Argument
        return click.argument(parameter.name, cls=argument, required=parameter.required, callback=parse, **default)
    spellings = (*(parameter.spellings or (f"--{parameter.name}",)), parameter.name)
    if parameter.type == "flag":
        return click.option(*spellings, is_flag=True, help=parameter.help)
    if parameter.type == "state":
        return click.option(
            *spellings,
            metavar=parameter.metavar,
            help=parameter.help,
            shell_complete=complete_state,
            callback=_check_state,
        )
    return click.option(
        *spellings,
        metavar=parameter.metavar,
        default=parameter.default,
        type=click.IntRange(min=parameter.bounds[0]) if parameter.type == "number" else None,
        callback=read_past_time if parameter.type == "time" else None,
        help=parameter.help,
    )


def _list_follow_options(overview: Overview) -> list[_Declaration]:
    """The option of a feed."""
    return [shared_option(overview.name, f"--{FOLLOW}", FOLLOW)] if overview.is_feed else []


def _list_measure_options(overview: Overview) -> list[_Declaration]:
    """The options of what is measured."""
    once = click.option("--once", is_flag=True, help="Print the table once, as without a terminal.")
    return [once, _declare_interval()] if overview.is_measured else []


def _declare_interval() -> _Declaration:
    words = "Time between refreshes; 2s."
    return click.option("--interval", metavar="TIME", default=2.0, type=Duration(least=0.1), help=words)


def _list_wait_options(overview: Overview) -> list[_Declaration]:
    """The options of what can be shown again, and of what one can wait for."""
    if overview.is_feed or overview.is_measured:
        return []
    watch = click.option(*WATCH.spellings, is_flag=True, help=WATCH.text)
    options: list[_Declaration] = [watch, _declare_interval()]
    if overview.is_changing is not None:
        words = "How long to wait, such as 20s; default 5m."
        options.append(click.option("--wait", is_flag=True, help="Wait until nothing is in progress."))
        options.append(click.option("--timeout", type=Duration(), metavar="TIME", default=300.0, help=words))
    return options


def _list_output_options(overview: Overview) -> list[_Declaration]:
    """The options for the form of the output."""
    bare = click.option(*NO_HEADERS.spellings, is_flag=True, help=NO_HEADERS.text)
    has_headings = overview.listing is not None and overview.listing.has_headings
    return [output_option(), *([bare] if has_headings else [])]


def _check_state(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Callback of an option that is a state. Raises click's BadParameter."""
    from reconciler.queries.browsing import parse_state

    try:
        parse_state(text or "")
    except UsageError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return text


def _parse_kind(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Kind | str | None:
    """Callback of an argument that is a kind; raises click's UsageError that names the nearest."""
    from reconciler.cli.foreign_words import explain_unknown_kind
    from reconciler.model.key import KINDS
    from reconciler.model.target import find_kind

    if text is None:
        return None
    name = find_kind(text)
    if name == SOURCES:
        return SOURCES
    if kind := KINDS.get(name):
        return kind
    word = text.partition("/")[0]
    raise click.UsageError(f"there is no kind {word!r}{explain_unknown_kind(word, (*KINDS, SOURCES))}")
