"""Reports the end of processes; polls only those for which the kernel offers no notification."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from reconciler.engines.host.runtimes import procfs

POLL = 1.0
"""Seconds between two checks of processes without notification by the kernel."""


class ExitWatcher:
    """Calls back once in the event loop when a watched process, a child or not, has ended; a zombie has ended."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}
        self._polled: dict[int, tuple[int, Callable[[], object]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, pid: int, call: Callable[[], object]) -> None:
        """Call ``call`` when ``pid`` has ended; in the next iteration of the loop if it already has."""
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            loop.call_soon(call)
        except OSError:
            now = procfs.find_process(pid)
            self._polled[pid] = (now.start if now else 0, call)
            self._timer = self._timer or loop.call_later(0 if now is None else POLL, self._poll)
        else:
            self._descriptors[pid] = descriptor
            loop.add_reader(descriptor, self._on_end, pid, call)

    def forget(self, pid: int) -> None:
        """Cancel the callback for ``pid``."""
        self._polled.pop(pid, None)
        descriptor = self._descriptors.pop(pid, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Cancel all callbacks."""
        for pid in [*self._descriptors, *self._polled]:
            self.forget(pid)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_end(self, pid: int, call: Callable[[], object]) -> None:
        self.forget(pid)
        call()

    def _poll(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(POLL, self._poll) if self._polled else None
        for pid, (start, call) in list(self._polled.items()):
            if not is_alive(pid, start):
                self._on_end(pid, call)


def is_alive(pid: int, start: int) -> bool:
    """Whether this process, and no later one with the same number, is alive."""
    now = procfs.find_process(pid)
    return now is not None and now.alive and now.start == start


def reap_child(pid: int) -> None:
    """Reap an ended child; does nothing if it is not our child or still runs."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
