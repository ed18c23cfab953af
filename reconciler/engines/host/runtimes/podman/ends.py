"""How containers end: the kernel reports the end of their processes, Podman their codes.

Podman calls a container running for ever if its monitor (conmon) was killed, so both processes are watched. A list
finds unreported ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from reconciler.engines.host.runtimes.exit_watch import ExitWatcher
from reconciler.engines.host.runtimes.podman.api.answers import Inspected, PodmanError
from reconciler.engines.host.runtimes.podman.starting import Starter
from reconciler.engines.host.runtimes.podman.sweep import Sweeper
from reconciler.engines.host.runtimes.podman.tracked import KILLED, ContainerOutcome, HostProcess, Tracked

_PATIENCE = 10.0
"""Seconds until Podman must have noticed the end of a container."""
_PAUSE, _LONG_PAUSE = 0.02, 1.0
_KERNEL_LOG = Path("/dev/kmsg")
# The kernel refuses to read a record into a smaller buffer than it needs.
_RECORD_BYTES = 8192


class EndWatcher:
    """Watches the processes of containers. ``on_suspicion`` is called with the ID when one of them has ended.

    ``direct``: the processes of all containers are visible, so one that is not has ended.
    """

    def __init__(self, starter: Starter, sweeper: Sweeper, direct: bool, on_suspicion: Callable[[str], None]) -> None:
        self._starter = starter
        self._sweeper = sweeper
        self._direct = direct
        self._on_suspicion = on_suspicion
        self._watcher = ExitWatcher()

    def watch(self, tracked: Tracked) -> None:
        """Watch a container that runs."""
        for host_process in (tracked.program, tracked.monitor):
            if host_process.pid:
                self._watcher.watch(host_process.pid, lambda: self._on_suspicion(tracked.id))
            elif self._direct:
                asyncio.get_running_loop().call_soon(self._on_suspicion, tracked.id)

    def forget(self, tracked: Tracked) -> None:
        """Stop watching a container."""
        for host_process in (tracked.program, tracked.monitor):
            self._watcher.forget(host_process.pid)

    def close(self) -> None:
        """Stop watching all."""
        self._watcher.close()

    async def outcome(self, tracked: Tracked) -> ContainerOutcome | None:
        """How a container ended; None if it runs. Waits for a service that does not answer."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            # Before the question: a monitor that ends in order has written the code, and Podman's answer has it.
            orphaned, ended = self._is_gone(tracked.monitor), self._is_gone(tracked.program)
            try:
                inspected = await self._starter.inspect(tracked.id)
                if not inspected.running:
                    return await recorded_outcome(inspected)
                if orphaned or (ended and time.monotonic() > deadline):
                    return await self._end_orphan(tracked, ended=ended)
                if not ended:
                    return None
            except PodmanError as error:
                if error.missing:
                    return ContainerOutcome(None)
                await asyncio.sleep(_LONG_PAUSE)
            await asyncio.sleep(_PAUSE)

    def _is_gone(self, host_process: HostProcess) -> bool:
        return not host_process.alive and (host_process.pid > 0 or self._direct)

    async def _end_orphan(self, tracked: Tracked, *, ended: bool) -> ContainerOutcome:
        """End a container without its monitor: nothing reads its output, and nothing would record its code."""
        if not ended and tracked.program.alive:
            # As the first process of its namespace, it ends all others with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(tracked.program.pid, signal.SIGKILL)
        await self._sweeper.delete_wholly([tracked.id])
        return ContainerOutcome(None if ended else KILLED)


async def recorded_outcome(inspected: Inspected) -> ContainerOutcome:
    """How Podman says that a container ended; with control groups of version 1 it never blames the memory."""
    code = inspected.state.exit_code
    memory = inspected.state.oom_killed
    if code == KILLED and not memory:
        memory = await asyncio.to_thread(was_out_of_memory, inspected.id)
    return ContainerOutcome(code if code >= 0 else None, memory)


def was_out_of_memory(container: str, log: Path = _KERNEL_LOG) -> bool:
    """Whether the kernel has killed a process of a container for its memory, as its log says. Blocks."""
    words = f"libpod-{container}".encode()
    try:
        # With O_NONBLOCK, a read after the last record fails; otherwise it would wait for the next one.
        file = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return any(b"oom-kill:" in record and words in record for record in _iterate_records(file))
    finally:
        os.close(file)


def _iterate_records(file: int) -> Iterator[bytes]:
    while True:
        try:
            record = os.read(file, _RECORD_BYTES)
        except BrokenPipeError:
            continue  # the kernel overwrote the record that was next
        except OSError:
            return
        if not record:
            return
        yield record
