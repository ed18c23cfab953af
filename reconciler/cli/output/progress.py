"""How far a long work is: a bar on a terminal, without one a line each 10 seconds."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from reconciler.iteration import Progress, report_progress_to
from reconciler.terminal.folding import can_redraw, count_columns, fold_text

PATIENCE = 0.5
"""Seconds without a bar: most works end before."""
LINE_SECONDS = 10.0
_DRAW_SECONDS = 0.1
_WIDEST_BAR, _NARROWEST_BAR = 30, 5
_SHORT_BAR = 20
_MEGABYTES = re.compile(r"\b(\d+(?:\.\d)?) of (\d+(?:\.\d)?) MB\b")
_CLEAR_LINE = "\r\x1b[J"


class ProgressDisplay:
    """Shows progress on ``stream``, with the time of ``now`` in seconds."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._is_terminal = can_redraw(stream)
        self._pause = _DRAW_SECONDS if self._is_terminal else LINE_SECONDS
        self._due = now() + (PATIENCE if self._is_terminal else LINE_SECONDS)
        self._is_drawn = False

    def show(self, progress: Progress) -> None:
        """Show ``progress`` if it is time; a bar ends with its work."""
        if progress.done >= progress.total:
            self.clear()
            return
        if (now := self._now()) < self._due:
            return
        self._due = now + self._pause
        if self._is_terminal:
            self._write(_CLEAR_LINE + format_bar(progress, shutil.get_terminal_size().columns))
            self._is_drawn = True
        else:
            self._write(f"{format_progress(progress)}\n")

    def clear(self) -> None:
        """Remove the bar."""
        if self._is_drawn:
            self._write(_CLEAR_LINE)
            self._is_drawn = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def format_progress(progress: Progress) -> str:
    """``reading manifests: 300 of 10,000``."""
    return f"{progress.what}: {progress.done:,} of {progress.total:,}"


def format_bar(progress: Progress, columns: int) -> str:
    """``reading manifests: 300 of 10,000  [####------]``, in fewer than ``columns``."""
    text = format_progress(progress)
    width = min(_WIDEST_BAR, columns - len(text) - len("  []") - 1)
    if width < _NARROWEST_BAR:
        return text[: columns - 1]
    full = width * progress.done // progress.total
    return f"{text}  [{'#' * full}{'-' * (width - full)}]"


def add_bar(line: str) -> str:
    """``line`` with a bar behind the first ``34 of 120 MB`` in it."""
    size = _MEGABYTES.search(line)
    if size is None or not (total := float(size[2])):
        return line
    full = min(_SHORT_BAR, int(_SHORT_BAR * float(size[1]) / total))
    return f"{line[: size.end()]} [{'#' * full}{'-' * (_SHORT_BAR - full)}]{line[size.end() :]}"


@contextmanager
def show_progress() -> Iterator[None]:
    """Show the progress of works in the block on standard error."""
    display = ProgressDisplay(sys.stderr)
    try:
        with report_progress_to(display.show):
            yield
    finally:
        display.clear()


class WaitDisplay:
    """Shows what a command waits for: on a terminal all lines in place, without one the first each 10 seconds."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        from reconciler.terminal.live_display import Live

        self._stream = stream
        self._now = now
        self._live = Live(stream) if can_redraw(stream) else None
        self._due = now() + LINE_SECONDS

    def __enter__(self) -> WaitDisplay:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.clear()
            self._live.__exit__()

    def show(self, lines: list[str]) -> None:
        """Show ``lines``, the first of which says it all."""
        if self._live is not None:
            text = "\n".join(map(add_bar, lines))
            self._live.draw(fold_text(text, count_columns(self._stream)).splitlines())
        elif lines and (now := self._now()) >= self._due:
            self._due = now + LINE_SECONDS
            self._stream.write(f"{lines[0]}\n")
            self._stream.flush()
