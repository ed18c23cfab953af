"""Repeats a check when files change, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import click

from reconciler.cli.output.printing import print_error
from reconciler.errors import ReconcilerError
from reconciler.printable import write_unguarded
from reconciler.terminal.folding import can_redraw

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_STEP_MILLISECONDS, _ROUND_MILLISECONDS = 50, 100
"""Changes within a step after another count as one; a watch without any is asked again after a round."""


def repeat_on_change(paths: Sequence[Path], check: Callable[[], object]) -> NoReturn:
    """Call ``check`` now, and again after each change at ``paths``, until Ctrl-C; an error is shown and waited over.

    A terminal is cleared before each; without one, a line with the time precedes it.
    """
    import watchfiles

    places = [path.resolve() for path in paths]
    watch = watchfiles.watch(
        *{place if place.is_dir() else place.parent for place in places},  # an editor may put a new file in place
        watch_filter=lambda _, name: _is_watched(Path(name), places),
        step=_STEP_MILLISECONDS,
        rust_timeout=_ROUND_MILLISECONDS,
        yield_on_timeout=True,
    )
    next(watch)  # it has begun: what changes while a check runs is seen after it
    while True:
        _begin_round()
        try:
            check()
        except ReconcilerError as error:
            print_error(str(error))
        sys.stdout.flush()
        while not next(watch):
            pass


def _begin_round() -> None:
    """Clear the terminal, or print the time."""
    if can_redraw(sys.stdout):
        write_unguarded(sys.stdout, _CLEAR)
    else:
        click.echo(time.strftime("checked at %H:%M:%S"))


def _is_watched(path: Path, places: Sequence[Path]) -> bool:
    """Whether ``path`` may be a manifest at one of ``places``, and no file of Git."""
    return any(
        path.is_relative_to(place) and not any(part.startswith(".git") for part in path.relative_to(place).parts)
        for place in places
    )
