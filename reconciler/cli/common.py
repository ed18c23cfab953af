"""What the commands share: the settings option, colour, and one way to complain."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from reconciler.settings import Settings

_DEFAULT_SETTINGS = "/etc/reconciler/settings.yaml"

_Command = TypeVar("_Command", bound=Callable[..., Any])

_COLOURS = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "blue": "34", "grey": "90"}


def settings_option(command: _Command) -> _Command:
    """Give ``command`` the option ``--settings FILE``, passed on as ``settings_file``."""
    return click.option(
        "--settings",
        "settings_file",
        metavar="FILE",
        envvar="RECONCILER_SETTINGS",
        default=_DEFAULT_SETTINGS,
        help=f"The settings; else $RECONCILER_SETTINGS, else {_DEFAULT_SETTINGS}.",
        type=click.Path(path_type=Path),
    )(command)


def load(settings_file: Path) -> Settings:
    """The settings in ``settings_file``; raises UsageError that names every fault in it."""
    from reconciler.settings import load_settings

    return load_settings(settings_file)


def coloured(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal whose user has not set NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def paint(text: str, colour: str, on: bool) -> str:
    """``text`` in ``colour`` where ``on`` says so; an empty colour leaves it as it is."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if on and colour else text


def complain(message: str) -> None:
    """Say on stderr what is wrong, in red on a terminal."""
    click.echo(paint(f"error: {message}", "red", coloured(sys.stderr)), err=True)
