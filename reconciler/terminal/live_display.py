"""Lines on a terminal that are redrawn in place."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO

_HIDE, _SHOW = "\x1b[?25l\x1b[?7l", "\x1b[?25h\x1b[?7h"
"""Hide the cursor and cut long lines at the edge; show the cursor and wrap lines again."""
_CLEAR_BELOW = "\x1b[J"


class Live:
    """A part of the terminal ``stream``, from the cursor on; use it in a ``with``. The last content stays."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn: tuple[str, ...] = ()

    def __enter__(self) -> Live:
        self._write(_HIDE)
        return self

    def __exit__(self, *_: object) -> None:
        self._write(_SHOW)

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the lines by ``lines``, as many as fit, and the number of the rest."""
        fitting = tuple(_fit_lines(lines, shutil.get_terminal_size().lines - 1))
        if fitting != self._drawn:
            self._write(self._home() + "".join(f"{line}\n" for line in fitting))
            self._drawn = fitting

    def clear(self) -> None:
        """Remove all lines."""
        self._write(self._home())
        self._drawn = ()

    def _home(self) -> str:
        """Move to the first line and clear everything below."""
        up = f"\x1b[{len(self._drawn)}A" if self._drawn else ""
        return f"\r{up}{_CLEAR_BELOW}"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _fit_lines(lines: Sequence[str], room: int) -> Sequence[str]:
    if len(lines) <= max(room, 2):
        return lines
    shown = max(room, 2) - 1
    return [*lines[:shown], f"… and {len(lines) - shown} more"]
