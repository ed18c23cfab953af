"""Waits of a test inside its event loop, and servers beside it."""

from __future__ import annotations

import asyncio
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 60.0
"""Seconds that anything may take before a test gives up on it."""


async def until(question: Callable[[], object], what: str = "") -> None:
    """Return once the answer is true; AssertionError with ``what`` where it never is."""
    deadline = time.monotonic() + PATIENCE
    while not question():
        assert time.monotonic() < deadline, f"in {PATIENCE:.0f} s never: {what or question}"
        await asyncio.sleep(0.01)


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    """``server`` answers in a thread; it is closed at the end."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
