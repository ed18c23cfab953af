"""Tells when a process ends, without asking again and again where the kernel can tell."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from reconciler.engines.host.runtimes.process import procfs

POLL = 1.0
"""Seconds between two looks at processes that the kernel tells nothing about."""


class ExitWatcher:
    """Calls back in the event loop, once, when a watched process is over (a zombie is). Ours or another's child."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}
        self._polled: dict[int, tuple[int, Callable[[], object]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, pid: int, call: Callable[[], object]) -> None:
        """Call when ``pid`` is over, at the next turn of the loop where it is so already."""
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            loop.call_soon(call)
        except OSError:
            now = procfs.look(pid)
            self._polled[pid] = (now.start if now else 0, call)
            self._timer = self._timer or loop.call_later(0 if now is None else POLL, self._poll)
        else:
            self._descriptors[pid] = descriptor
            loop.add_reader(descriptor, self._over, pid, call)

    def forget(self, pid: int) -> None:
        """Never call for ``pid``."""
        self._polled.pop(pid, None)
        descriptor = self._descriptors.pop(pid, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Never call again."""
        for pid in [*self._descriptors, *self._polled]:
            self.forget(pid)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self, pid: int, call: Callable[[], object]) -> None:
        self.forget(pid)
        call()

    def _poll(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(POLL, self._poll) if self._polled else None
        for pid, (start, call) in list(self._polled.items()):
            if not lives(pid, start):
                self._over(pid, call)


def lives(pid: int, start: int) -> bool:
    """Whether this process, and no later one of its number, is alive."""
    now = procfs.look(pid)
    return now is not None and now.alive and now.start == start


def reap(pid: int) -> None:
    """Let go of a child that is over; nothing where it is not ours or goes on."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
