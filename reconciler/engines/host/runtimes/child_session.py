"""A session whose program is a child process of ours, in a container of any runtime."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable

from reconciler.engines.host.runtimes.exit_watch import ExitWatcher
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.host.runtimes.streams import Streams
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.terminal.session import StreamOutput, TerminalSize

_KILLED = 137
_REST = 0.2
"""Seconds to wait for more output after the program has ended, since other processes may have it open."""
_END_SECONDS, _PAUSE = 0.5, 0.01
"""Seconds in which a container that is killed ends together with its programs."""


class ChildSession:
    """The ``child`` leads a session of its own and has ``streams`` (see ExecSession for the methods).

    ``has_ended`` is whether the container at ``container_id`` has ended.
    """

    def __init__(
        self,
        container_id: ContainerId,
        child: subprocess.Popen[bytes],
        streams: Streams,
        ends: ExitWatcher,
        has_ended: Callable[[], bool],
    ) -> None:
        self._place = container_id
        self._child = child
        self._streams = streams
        self._has_ended = has_ended
        self._over = asyncio.Event()
        self._wake: Callable[[], object] = lambda: None
        ends.watch(child.pid, self._on_end)

    async def write(self, content: bytes) -> None:
        """Write to the pipe or the pty."""
        await self._streams.write(content)

    async def close_stdin(self) -> None:
        """Close the pipe, or type Ctrl-D on the pty."""
        await self._streams.close_stdin()

    async def read(self) -> StreamOutput | None:
        """Read from whichever stream has output."""
        while self._streams.outputs:
            over = self._over.is_set()
            descriptor = await self._wait_output(_REST if over else None)
            if descriptor is None and over:
                break
            if descriptor is not None and (output := self._streams.take(descriptor)) is not None:
                return output
        return None

    async def resize(self, size: TerminalSize) -> None:
        """Set the size of the pty."""
        self._streams.resize(size)

    async def wait(self) -> int:
        """Wait for the program. Raises EngineError if it was killed together with its container."""
        await self._over.wait()
        code: int = self._child.returncode
        code = code if code >= 0 else 128 - code
        if code == _KILLED and await self._ends_now():
            message = f"container {self._place.container} of {self._place.replica} has ended, and the program with it"
            raise EngineError(message, reason=Reason.NOT_RUNNING)
        return code

    async def close(self) -> None:
        """Hang up."""
        self.hang_up()

    def hang_up(self) -> None:
        """Close the streams, and send SIGHUP to the program if it still runs; it is reaped when it ends."""
        if not self._over.is_set():
            # The process is not reaped yet, so its number still belongs to it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGHUP)
        self._streams.close()

    def _on_end(self) -> None:
        self._child.wait()
        self._over.set()
        self._wake()

    async def _ends_now(self) -> bool:
        """Whether the container has ended, or does so in a moment."""
        deadline = asyncio.get_running_loop().time() + _END_SECONDS
        while not self._has_ended():
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_PAUSE)
        return True

    async def _wait_output(self, patience: float | None) -> int | None:
        """A descriptor with output; None if the program ended meanwhile, or after ``patience`` seconds."""
        loop = asyncio.get_running_loop()
        descriptor_future: asyncio.Future[int | None] = loop.create_future()

        def wake(descriptor: int | None = None) -> None:
            if not descriptor_future.done():
                descriptor_future.set_result(descriptor)

        self._wake = wake
        timer = loop.call_later(patience, wake) if patience is not None else None
        watched = list(self._streams.outputs)
        for number in watched:
            loop.add_reader(number, wake, number)
        try:
            return await descriptor_future
        finally:
            for number in watched:
                loop.remove_reader(number)
            if timer is not None:
                timer.cancel()
