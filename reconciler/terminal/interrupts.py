"""Ctrl-C during a read that may last for ever."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SECONDS = 1.0
"""How long a signal that came just before a read may go unheeded."""


@contextmanager
def heed_interrupts() -> Iterator[None]:
    """Let a read within the block see a signal that came just before it: Python alone sees it only after the read.

    An alarm interrupts the read each second, which then goes on if there was no other signal. In the main thread only.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGALRM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGALRM, _ignore_alarm)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _ignore_alarm(_number: int, _frame: FrameType | None) -> None:
    """It has interrupted the read, and that is all."""
