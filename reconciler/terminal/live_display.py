"""Lines on a terminal that are redrawn in place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from reconciler.terminal.folding import count_columns, fold_text
from reconciler.terminal.keys import Keyboard, Wish

_HIDE, _SHOW = "\x1b[?25l\x1b[?7l", "\x1b[?25h\x1b[?7h"
"""Hide the cursor and cut long lines at the edge; show the cursor and wrap lines again."""
_CLEAR_BELOW = "\x1b[J"
_HINT = "q ends it"


class Live:
    """A part of the terminal ``stream``, from the cursor on; use it in a ``with``. The last content stays.

    A hint is below it as long as the block lasts.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._hint: tuple[str, ...] = ()
        self._drawn: tuple[str, ...] = ()

    def __enter__(self) -> Live:
        self._write(_HIDE)
        return self

    def __exit__(self, *_: object) -> None:
        hint = f"\r\x1b[{len(self._hint)}A{_CLEAR_BELOW}" if self._hint and self._drawn else ""
        self._write(hint + _SHOW)

    def set_hint(self, hint: str) -> None:
        """Show the line ``hint`` below the others, from the next draw on; "" for none."""
        self._hint = (hint,) if hint else ()

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the lines by ``lines``, as many as fit, and the number of the rest."""
        room = shutil.get_terminal_size().lines - 1 - len(self._hint)
        fitting = (*_fit_lines(lines, room), *self._hint)
        if fitting != self._drawn:
            self._write(self._home() + "".join(f"{line}\n" for line in fitting))
            self._drawn = fitting

    def clear(self) -> None:
        """Remove all lines."""
        self._write(self._home())
        self._drawn = ()

    def forget(self) -> None:
        """Draw at the cursor next time: others have written since."""
        self._drawn = ()

    def pause(self) -> None:
        """Give the terminal to others, also within a draw."""
        self._write_now(_SHOW)

    def resume(self) -> None:
        """Have the terminal again."""
        self._write_now(_HIDE)

    def _home(self) -> str:
        """Move to the first line and clear everything below."""
        up = f"\x1b[{len(self._drawn)}A" if self._drawn else ""
        return f"\r{up}{_CLEAR_BELOW}"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _write_now(self, text: str) -> None:
        with suppress(OSError, ValueError):
            os.write(self._stream.fileno(), text.encode())


def repeat_drawing(stream: TextIO, read: Callable[[], str], interval: float) -> None:
    """Show what ``read`` returns on the terminal ``stream``, anew after each ``interval`` seconds, until q or Ctrl-C.

    Ctrl-Z pauses it; each way out leaves the terminal as it was.
    """
    live = Live(stream)
    with Keyboard(live.pause, live.resume) as keyboard, live:
        live.set_hint(_HINT if keyboard.reads_keys else "")
        wish = Wish.REDRAW
        while wish is not Wish.QUIT:
            if wish is Wish.REDRAW:
                live.forget()
            live.draw(fold_text(read(), count_columns(stream)).splitlines())
            wish = keyboard.wait(interval)


def _fit_lines(lines: Sequence[str], room: int) -> Sequence[str]:
    if len(lines) <= max(room, 2):
        return lines
    shown = max(room, 2) - 1
    return [*lines[:shown], f"… and {len(lines) - shown} more"]
