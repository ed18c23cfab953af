"""Shows what a command lists again when it changes, until Ctrl-C."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from reconciler.platform_cli.session import Session

_SECONDS = 2.0
"""Between two reads."""


def repeat_command(function: Callable[..., Any], session: Session, *words: Any, **options: Any) -> NoReturn:
    """Call ``function`` again and again: in place on a terminal, else what it prints once that is another text."""
    from reconciler.terminal.folding import can_redraw, count_columns, fold_text
    from reconciler.terminal.live_display import Live

    is_drawn = can_redraw(sys.stdout) and session.output.is_text
    columns = count_columns(sys.stdout) if is_drawn else 0
    shown = None
    live = Live(sys.stdout) if is_drawn else None
    if live is not None:
        live.__enter__()
    try:
        while True:
            written = io.StringIO()
            with redirect_stdout(written):
                function(session, *words, **options)
            text = written.getvalue()
            if live is not None:
                live.draw(fold_text(text, columns).splitlines())
            elif text != shown:
                click.echo(text, nl=False)
                sys.stdout.flush()
            shown = text
            time.sleep(_SECONDS)
    finally:
        if live is not None:
            live.__exit__()
