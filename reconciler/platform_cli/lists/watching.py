"""Shows what a command lists again when it changes, until q or Ctrl-C."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from reconciler.platform_cli.session import Session

_SECONDS = 2.0
"""Between two reads."""


def repeat_command(function: Callable[..., Any], session: Session, *words: Any, **options: Any) -> None:
    """Call ``function`` again and again: in place on a terminal, else what it prints once that is another text.

    It ends with Ctrl-C; in place, with the key q, too.
    """
    from reconciler.terminal.folding import can_redraw
    from reconciler.terminal.live_display import repeat_drawing

    def read() -> str:
        written = io.StringIO()
        with redirect_stdout(written):
            function(session, *words, **options)
        return written.getvalue()

    if can_redraw(sys.stdout) and session.output.is_text:
        repeat_drawing(sys.stdout, read, _SECONDS)
        return
    shown = None
    while True:
        text = read()
        if text != shown:
            click.echo(text, nl=False)
            sys.stdout.flush()
        shown = text
        time.sleep(_SECONDS)
