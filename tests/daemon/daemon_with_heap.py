"""A daemon that writes to FILE at SIGUSR2 by how much a block grows its heap.

``python -m tests.daemon.daemon_with_heap FILE``.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from reconciler import logs
from reconciler.daemon.service import serve
from reconciler.settings import load_settings, settings_path
from tests.support.heap import heap

BLOCK = 256 << 10
"""Bytes, as of asyncio's buffer for a read; Python's table of interned strings is larger."""


def write_growth(file: Path) -> None:
    """Allocate and free a large block, and write from where malloc takes the next ones."""
    bytes(2 * BLOCK)
    before = heap()
    blocks = [bytes(BLOCK) for _ in range(4)]
    growth = heap().size - before.size, heap().mapped - before.mapped
    blocks.clear()
    new = file.with_suffix(".new")
    new.write_text("{} {}".format(*growth))
    new.replace(file)


async def run(file: Path) -> None:
    """Serve until a signal ends it."""
    settings = load_settings(settings_path(None))
    logs.configure(settings.log.format, settings.log.level)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, write_growth, file)
    await serve(settings)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
