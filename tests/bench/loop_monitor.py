"""The daemon as it is, which on SIGUSR1 begins to monitor its event loop and on SIGUSR2 writes the longest wait."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from reconciler import logs
from reconciler.daemon.service import run_daemon
from reconciler.settings import load_settings

BEAT = 0.002
"""Seconds between two measurements of the loop."""


class LoopMonitor:
    """Writes to ``file`` for how long the loop let others wait at most, in seconds, and how long it computed at most.

    The first is longer by what other programs of the host took, and other threads of this one.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._task: asyncio.Task[None] | None = None
        self._longest = self._hardest = 0.0

    def begin(self) -> None:
        """Monitor from now on."""
        self._longest = self._hardest = 0.0
        self._task = asyncio.get_running_loop().create_task(self._beat())

    def write(self) -> None:
        """Stop the monitor and write the longest wait and work to the file."""
        if self._task is not None:
            self._task.cancel()
        part = self._file.with_suffix(".part")
        part.write_text(f"{self._longest} {self._hardest}")
        part.replace(self._file)

    async def _beat(self) -> None:
        while True:
            began, computed = time.perf_counter(), time.thread_time()
            await asyncio.sleep(BEAT)
            self._longest = max(self._longest, time.perf_counter() - began - BEAT)
            self._hardest = max(self._hardest, time.thread_time() - computed)


async def follow(settings_file: Path, file: Path) -> None:
    """Run the daemon with ``settings_file``."""
    settings, monitor = load_settings(settings_file), LoopMonitor(file)
    logs.configure_logging(settings.log.format, settings.log.level)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, monitor.begin)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, monitor.write)
    with suppress(asyncio.CancelledError):
        await run_daemon(settings, file=settings_file)


if __name__ == "__main__":
    asyncio.run(follow(Path(sys.argv[1]), Path(sys.argv[2])))
