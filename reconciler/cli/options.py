"""Shared by the commands: options, arguments, and opening the settings and the records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from reconciler.command_words import SHARED_COMMANDS
from reconciler.errors import RefusedError
from reconciler.times import DURATIONS, parse_duration

if TYPE_CHECKING:
    from reconciler.records.store import Records
    from reconciler.settings import Settings, SourceSettings

_DEFAULT_SETTINGS = "/etc/reconciler/settings.yaml"

DEFAULT_ORG = "org"
"""The org of manifests without settings, unless ``--org`` names it."""


class Duration(click.ParamType):  # type: ignore[type-arg] # only newer versions of click have the argument
    """An option that is a duration such as ``20s``, or a number of seconds: in seconds, at least ``least``."""

    name = "duration"

    def __init__(self, least: float = 0.0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """``value`` in seconds; raises click's UsageError, with the forms, for any other text."""
        try:
            seconds = parse_duration(value) if isinstance(value, str) else float(value)
        except ValueError:
            self.fail(f"{value!r} is not {DURATIONS}", param, ctx)
        if seconds < self._least:
            self.fail(f"{value!r} is too short; write at least {self._least:g}s", param, ctx)
        return seconds


def _find_settings() -> Path:
    """The settings of the repository here, where `reconciler up` has written some, else those of the service."""
    from reconciler.local_state import find_settings_here

    return find_settings_here() or Path(_DEFAULT_SETTINGS)


_Command = TypeVar("_Command", bound=Callable[..., Any])


def settings_option(command: _Command) -> _Command:
    """Add the option ``--settings FILE`` to ``command``, passed on as ``settings_file``."""
    return click.option(
        "--settings",
        "settings_file",
        metavar="FILE",
        envvar="RECONCILER_SETTINGS",
        default=_find_settings,
        is_eager=True,  # names of resources are looked up in the records, whose place it has
        help="The settings file; see `reconciler --help`.",
        type=click.Path(path_type=Path),
    )(command)


def unused_settings_option(command: _Command) -> _Command:
    """Add ``--settings FILE`` to a ``command`` that needs none: it may be typed, and has no effect."""
    return click.option("--settings", metavar="FILE", hidden=True, expose_value=False)(command)


def refused_settings_option(remedy: str) -> Callable[[_Command], _Command]:
    """Add ``--settings FILE`` to a command that makes settings itself, which refuses it and says the ``remedy``."""

    def refuse(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"`{ctx.info_name}` has settings of its own; {remedy}", ctx)

    return click.option("--settings", metavar="FILE", hidden=True, expose_value=False, callback=refuse)


def org_option(command: _Command) -> _Command:
    """Add the option ``--org NAME`` to ``command``, for use without settings."""
    words = f"The org of the manifests; else that of the settings, else {DEFAULT_ORG}."
    return click.option("--org", metavar="NAME", default="", help=words)(command)


def read_past_time(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Callback of an option that is a time or an age: returns seconds since the epoch."""
    from reconciler.clock import SystemClock
    from reconciler.times import parse_past

    if value is None:
        return None
    try:
        return parse_past(value, SystemClock().now())
    except ValueError:
        raise click.BadParameter("write a time such as 2026-01-31T12:00:00Z, or 30m, 2h, 3d", ctx, param) from None


def blame_option(command: _Command) -> _Command:
    """Add the option ``--blame`` to ``command``, passed on as ``blame``: None where the number of changes decides."""
    words = "Show the commit of each change; else of up to 50 changes."
    return click.option("--blame/--no-blame", default=None, help=words)(command)


def load_settings_as_owner(settings_file: Path) -> Settings:
    """The settings in ``settings_file``, for a command that opens the state directory: root becomes its owner.

    Raises UsageError that names every fault in them.
    """
    from reconciler.cli.privileges import become_owner

    settings = read_settings(settings_file)
    become_owner(settings.state)
    return settings


def read_settings(settings_file: Path) -> Settings:
    """The settings in ``settings_file``; raises UsageError that lists every error in it."""
    from reconciler.settings import load_settings

    return load_settings(settings_file)


def select_sources(settings: Settings, name: str) -> list[SourceSettings]:
    """The source called ``name``, or all where it is empty; raises NotFoundError that lists the sources."""
    from reconciler.queries.existence import find_source

    return [find_source(settings, name)] if name else list(settings.sources)


def load_or_none(settings_file: Path) -> Settings | None:
    """The settings, or None where there is no file; a file that ``--settings`` names must exist.

    Raises UsageError that names every fault in them.
    """
    origin = click.get_current_context().get_parameter_source("settings_file")
    if origin is not ParameterSource.COMMANDLINE and not os.access(settings_file, os.R_OK):
        return None
    return read_settings(settings_file)


class _AskDaemon(Exception):
    """This user may not read the records, and is of the readers, whom the daemon answers."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.readers)
        from reconciler.overviews.table import OVERVIEWS

        context = click.get_current_context()
        self.settings = settings
        # A command of a group that shows an overview has its name.
        name = context.command.name or ""
        self.command = name if name in OVERVIEWS else context.info_name or ""
        self.parameters: dict[str, Any] = {**context.meta, **context.params}


def carry_out(command: Callable[[], object], ask_daemon: Callable[[Settings, str, Mapping[str, Any]], int]) -> object:
    """Run ``command``, or ask the daemon for it where this user may not read the records; ``ask_daemon`` gets the
    settings, the name of the command and its parameters."""
    try:
        return command()
    except _AskDaemon as asked:
        return ask_daemon(asked.settings, asked.command, asked.parameters)


def read_records(settings: Settings) -> Records:
    """The records, read-only; raises RecordsError where there are none yet or they cannot be read."""
    from reconciler.clock import SystemClock
    from reconciler.records.store import FILE, Records

    _ask_daemon(settings, settings.state / FILE)
    expiry = SystemClock(settings.state).expiry
    return Records.open(settings.state / FILE, read_only=True, expiry=expiry)


def records_or_none(settings: Settings) -> Records:
    """The records, read-only; empty ones in memory where nothing was recorded yet. Raises RecordsError."""
    from reconciler.records.store import FILE, Records

    path = settings.state / FILE
    _ask_daemon(settings, path)
    return Records.open(path, read_only=True) if _may_be_there(path) else Records.open(None)


def make_access_error(settings: Settings, error: PermissionError) -> Exception:
    """For a file of the state directory that this user may not read: ask the daemon, else refuse the command."""
    if settings.readers:
        return _AskDaemon(settings)
    return RefusedError(f"this user may not read {error.filename}: run the command as root")


def _ask_daemon(settings: Settings, path: Path) -> None:
    """Ask the daemon where this user may not read the records and the settings have ``readers``."""
    if _may_be_there(path) and not os.access(path, os.R_OK) and settings.readers:
        raise _AskDaemon(settings)


def _may_be_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return True  # opening it raises an error with advice


def get_operator_name() -> str:
    """The user who runs the command, for the records."""
    if user := os.environ.get("SUDO_USER"):
        return user
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def shared_option(command: str, spelling: str, *names: str, **more: Any) -> Callable[[Any], Any]:
    """The option ``spelling`` of a command that `platform` has too; ``names`` is its parameter where that differs."""
    option = SHARED_COMMANDS[command].option(spelling)
    kind: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {"is_flag": True}
    return click.option(*option.spellings, *names, help=option.help, **kind, **more)


def example_of(command: str) -> str:
    """The line at the end of the help of a command that `platform` has too."""
    return f"Example: {SHARED_COMMANDS[command].call('reconciler')}"
