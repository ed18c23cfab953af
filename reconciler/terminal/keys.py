"""Keys that a person types while something is shown: ``q`` ends it, Ctrl-Z pauses it."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from types import FrameType
from typing import Any

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_QUIT = frozenset(b"qQ\x04")
"""The keys that end it; the last one is Ctrl-D."""


class Wish(Enum):
    """What the wait ended with."""

    NOTHING = "nothing"
    QUIT = "quit"
    REDRAW = "redraw"
    """The command was paused, and others have written to the terminal since."""


class Keyboard:
    """The keys of this terminal, one by one and without an echo; use it in a ``with`` in the main thread.

    However the block ends, also by a signal, the terminal is as it was, and so it is during a pause by Ctrl-Z. Without
    a terminal at stdin, or in the background, only signals are heeded.
    """

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """``pause`` and ``resume`` prepare the terminal for others, and again for us: they write no buffered text."""
        self._pause, self._resume = pause, resume
        self._before: list[Any] | None = None
        self._signals: dict[int, Any] = {}
        self._wake: tuple[int, int] | None = None
        self._was_paused = False

    @property
    def reads_keys(self) -> bool:
        """Whether keys are read at all."""
        return self._before is not None

    def __enter__(self) -> Keyboard:
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # A signal that comes just before the wait ends it: Python alone would see it after the wait.
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        for number, heed in ((signal.SIGTSTP, self._stop), *((number, _end_command) for number in _ENDING)):
            if signal.getsignal(number) == signal.SIG_DFL:
                self._signals[number] = signal.signal(number, heed)
        self._take_keys()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        for number, before in self._signals.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(-1)
        for descriptor in self._wake or ():
            os.close(descriptor)

    def wait(self, seconds: float) -> Wish:
        """Wait until a key asks for something, or for ``seconds``."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            wish = self._await_event(left)
            if self._was_paused:
                self._was_paused = False
                return Wish.REDRAW
            if wish is not Wish.NOTHING:
                return wish
        return Wish.NOTHING

    def _await_event(self, seconds: float) -> Wish:
        assert self._wake is not None
        ready = select.poll()
        ready.register(self._wake[0], select.POLLIN)
        if self.reads_keys:
            ready.register(0, select.POLLIN)
        for descriptor, _ in ready.poll(seconds * 1000):
            if descriptor == self._wake[0]:
                os.read(descriptor, 512)
            elif wish := self._read_keys():
                return wish
        return Wish.NOTHING

    def _read_keys(self) -> Wish | None:
        try:
            keys = os.read(0, 512)
        except OSError:  # it hung up, or this is in the background now
            keys = b""
        if not keys:
            self._before = None
        return Wish.QUIT if _QUIT.intersection(keys) else None

    def _take_keys(self) -> None:
        """Read key by key, if this command has the terminal: in the background, a change of it would stop us."""
        with suppress(OSError, termios.error, ValueError):
            if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp():
                before = termios.tcgetattr(0)
                tty.setcbreak(0, termios.TCSADRAIN)
                self._before = before

    def _give_back(self) -> None:
        if self._before is not None:
            with suppress(OSError, termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, self._before)
        self._before = None

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        """Pause as any command does, with the terminal as it was; goes on where the shell continues us."""
        self._give_back()
        self._pause()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._stop)
        self._take_keys()
        self._resume()
        self._was_paused = True


def _end_command(number: int, _frame: FrameType | None) -> None:
    """End by an exception, so that the terminal is restored on the way."""
    sys.exit(128 + number)
