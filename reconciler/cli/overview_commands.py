"""The commands of overviews: options, output and help come from the table, the answer from the records."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from reconciler.cli.options import (
    Duration,
    load_settings_as_owner,
    make_access_error,
    read_records,
    records_or_none,
    settings_option,
)
from reconciler.cli.output.printing import echo_json, is_colour_terminal
from reconciler.cli.target_arguments import KindArgument, TargetCommand, read_revision, read_target, target_argument
from reconciler.overviews.overview import FOLLOW, LAST, Feed, Measurement, Overview, Parameter, ReadContext
from reconciler.terminal.live_display import Live

if TYPE_CHECKING:
    from reconciler.model.key import Kind

_Callback = Callable[..., int]
_Declaration = Callable[[_Callback], _Callback]
"""Adds an option or argument to what a command calls."""

_POLL_SECONDS = 0.2
_MEASURE_SECONDS = 0.5
"""Seconds in which a command measures that prints once."""


class Display(NamedTuple):
    """How a command shows an overview: in the form ``output``, and as long as it is followed or not only ``once``.

    ``interval`` is the time in seconds between two measurements. With ``watch``, it is shown again when it changes;
    with ``wait``, once it no longer changes by itself, or after ``timeout`` seconds.
    """

    output: str = "text"
    follow: bool = False
    once: bool = False
    interval: float = 2.0
    watch: bool = False
    wait: bool = False
    timeout: float = 300.0


def make_command(overview: Overview) -> click.Command:
    """The command that shows ``overview``."""

    def show(settings_file: Path, **values: Any) -> int:
        display = Display(**{name: values.pop(name) for name in Display._fields if name in values})
        return show_overview(overview, settings_file, values, display)

    declarations = [
        *_list_follow_options(overview),
        *map(_declare_parameter, overview.parameters),
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
    try:
        if overview.is_feed:
            last = parameters.pop(LAST)
            _show_feed(overview, overview.read(context, **parameters), last, display)
        elif overview.is_measured:
            _show_measured(overview, overview.read(context, **parameters), display)
        else:
            return _show_value(overview, lambda: overview.read(context, **parameters), display)
    except PermissionError as error:
        raise make_access_error(context.settings, error) from None
    return 0


def show_text(text: str, nothing: str) -> None:
    """Print ``text``, or ``nothing`` on standard error where it is empty."""
    shown = text or nothing
    click.echo(shown, nl=bool(shown) and not shown.endswith("\n"), err=not text)


def draw_live(read: Callable[[], str], overview: Overview, interval: float) -> NoReturn:
    """Show what ``read`` returns on this terminal, anew after each ``interval``, until Ctrl-C."""
    with Live(sys.stdout) as live:
        while True:
            live.draw((read() or overview.nothing).splitlines())
            time.sleep(interval)


def _open_context(overview: Overview, settings_file: Path) -> ReadContext:
    """What overviews are read from here. Raises UsageError."""
    from reconciler.clock import SystemClock
    from reconciler.daemon.lock import find_lock_holder

    settings = load_settings_as_owner(settings_file)
    # What is measured needs no records, which may not exist yet.
    open_records = partial(records_or_none if overview.is_measured else read_records, settings)
    return ReadContext(settings, open_records, SystemClock().now, lambda: find_lock_holder(settings.state) is not None)


def _show_value(overview: Overview, read: Callable[[], Any], display: Display) -> int:
    """Show what ``read`` returns, at once, or as ``display`` has it; returns the exit code."""
    if display.watch:
        form = partial(_make_text, overview, read, display.output)
        watch_text(form, overview, display.interval, on_terminal=display.output == "text")
    value = _wait_with_display(overview, read, display.timeout) if display.wait else read()
    if display.output == "text":
        show_text(overview.text(value, is_colour_terminal(sys.stdout)), overview.nothing)
        _show_notes(overview, value)
    for part in _list_parts(overview, value, display.output):
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


def watch_text(read: Callable[[], str], overview: Overview, interval: float, *, on_terminal: bool) -> NoReturn:
    """Show what ``read`` returns until Ctrl-C: in place where that is for a terminal, else again after each change."""
    if on_terminal and sys.stdout.isatty():
        draw_live(read, overview, interval)
    shown = None
    while True:
        text = read()
        if text != shown:
            show_text(text, overview.nothing)
        shown = text
        time.sleep(interval)


def _make_text(overview: Overview, read: Callable[[], Any], output: str) -> str:
    """What ``read`` returns in the form ``output``."""
    value = read()
    if output == "text":
        return overview.text(value, is_colour_terminal(sys.stdout))
    return "".join(_list_parts(overview, value, output))


def _list_parts(overview: Overview, value: Any, output: str) -> Iterator[str]:
    """The form ``output`` of ``value``, in parts; none for text."""
    if output in overview.forms:
        yield from overview.forms[output](value)
    elif output == "json" and overview.items is not None:
        from reconciler.render.layout import as_json

        yield f"{as_json({overview.member: list(overview.items(value))}).decode()}\n"


def _show_notes(overview: Overview, value: Any) -> bool:
    """Print the notes on ``value``; returns whether there are any."""
    notes = [*(overview.notes(value) if overview.notes is not None else ())]
    for note in notes:
        click.echo(note, err=True)
    return bool(notes)


def _show_feed(overview: Overview, feed: Feed, last: int, display: Display) -> None:
    import msgspec

    entries = feed.newest(last)
    while True:
        if display.output == "json" and overview.items is not None:
            for item in overview.items(entries):
                click.echo(msgspec.json.encode(item).decode())
        elif entries:
            click.echo(overview.text(entries, is_colour_terminal(sys.stdout)))
        if not display.follow:
            return
        while not (entries := feed.more()):
            time.sleep(_POLL_SECONDS)


def _show_measured(overview: Overview, measurement: Measurement, display: Display) -> None:
    is_empty = _show_notes(overview, measurement)
    on = is_colour_terminal(sys.stdout)
    if display.output == "json" and overview.items is not None:
        echo_json({overview.member: list(overview.items(_measure_usage(measurement)))})
    elif display.once or not sys.stdout.isatty():
        show_text(overview.text(_measure_usage(measurement), on), overview.nothing)
    elif not is_empty:
        draw_live(lambda: overview.text(measurement.read(), on), overview, display.interval)
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
    option = f"--{parameter.name}"
    if parameter.type == "flag":
        return click.option(option, is_flag=True, help=parameter.help)
    form = click.IntRange(min=parameter.bounds[0]) if parameter.type == "number" else None
    return click.option(option, metavar=parameter.metavar, default=parameter.default, type=form, help=parameter.help)


def _list_follow_options(overview: Overview) -> list[_Declaration]:
    """The option of a feed."""
    words = f"Also show new {overview.name} as they come."
    return [click.option("-f", f"--{FOLLOW}", is_flag=True, help=words)] if overview.is_feed else []


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
    words = "Show it again when it changes, until Ctrl-C."
    options: list[_Declaration] = [click.option("-w", "--watch", is_flag=True, help=words), _declare_interval()]
    if overview.is_changing is not None:
        words = "How long to wait, such as 20s; default 5m."
        options.append(click.option("--wait", is_flag=True, help="Wait until nothing is in progress."))
        options.append(click.option("--timeout", type=Duration(), metavar="TIME", default=300.0, help=words))
    return options


def _list_output_options(overview: Overview) -> list[_Declaration]:
    """The option for the form of the output, where there are several."""
    words = "json: one object a line." if overview.is_feed else "Default: text."
    words = "json: once, for programs." if overview.is_measured else words
    choice = click.Choice(overview.outputs)
    option = click.option("-o", "--output", type=choice, default="text", help=words)
    return [option] if len(overview.outputs) > 1 else []


def _parse_kind(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Kind | None:
    """Callback of an argument that is a kind; raises click's UsageError that names the nearest."""
    from reconciler.model.key import KINDS
    from reconciler.model.target import find_kind
    from reconciler.queries.existence import did_you_mean

    if text is None:
        return None
    if kind := KINDS.get(find_kind(text)):
        return kind
    raise click.UsageError(f"there is no kind {text!r}{did_you_mean(text, KINDS)}")
