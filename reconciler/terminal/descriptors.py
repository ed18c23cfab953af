"""Waits in the event loop until descriptors can be read or written; none of them has to be non-blocking."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable

READ_SIZE = 1 << 16
"""The largest number of bytes that one read returns."""


async def wait_readable(descriptor: int) -> None:
    """Return when a read from ``descriptor`` does not block. A regular file never blocks."""
    loop = asyncio.get_running_loop()
    await _wait_for_descriptor(descriptor, loop.add_reader, loop.remove_reader)


async def wait_writable(descriptor: int) -> None:
    """Return when a write of PIPE_BUF bytes to ``descriptor`` does not block."""
    loop = asyncio.get_running_loop()
    await _wait_for_descriptor(descriptor, loop.add_writer, loop.remove_writer)


async def read_some(descriptor: int) -> bytes:
    """The next bytes of ``descriptor``, b"" at its end. Raises OSError."""
    await wait_readable(descriptor)
    return os.read(descriptor, READ_SIZE)


async def write_all(descriptor: int, content: bytes) -> None:
    """Write all of ``content``, and block only this coroutine. Raises OSError.

    The descriptor may be shared with other programs, so its mode stays as it is, and each write is small enough not to
    block.
    """
    rest = memoryview(content)
    while rest:
        await wait_writable(descriptor)
        try:
            rest = rest[os.write(descriptor, rest[: select.PIPE_BUF]) :]
        except BlockingIOError:
            continue


async def _wait_for_descriptor(descriptor: int, add: Callable[..., object], remove: Callable[[int], object]) -> None:
    ready = asyncio.Event()
    try:
        add(descriptor, ready.set)
    except PermissionError:  # a regular file, or a device such as /dev/null
        return
    try:
        await ready.wait()
    finally:
        remove(descriptor)
