"""Whether a HAProxy that is silent at its socket still works: it is ended only if it does nothing at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from reconciler.engines.host.dataplane.haproxy.config import ALIVE_SOCKET
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.host.runtimes import procfs

ASK_SECONDS = 1.0
SILENT_SECONDS = 2.0
"""Seconds in which no worker works after which HAProxy is ended and started again; a new one answers before."""
LONG_SECONDS = 10.0
"""The same for a master alone, which changes nothing any more while its workers answer requests; and where /proc hides
all of them, so that only their silence shows.
"""


class _Work(NamedTuple):
    """What processes have used of the processor; None where /proc hides them. ``waits``: one waits for it now."""

    seconds: float | None
    waits: bool


class _Silence:
    """The time in which some processes have not worked."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._work = _Work(None, waits=False)

    def end(self) -> None:
        self._since = None

    def note(self, processes: Sequence[int], now: float) -> float:
        """The seconds until ``now`` in which they have not worked, as far as that shows."""
        work = _read_work(processes)
        # One that waits for the processor does not hang: other programs are in its way.
        if self._since is None or work.waits or work.seconds != self._work.seconds:
            self._since, self._work = now, work
        return now - self._since

    @property
    def is_hidden(self) -> bool:
        return self._work.seconds is None


class WorkerProgress:
    """Observes the processes of ``master`` from the first time that they do not answer."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._of_workers, self._of_master = _Silence(), _Silence()

    def note_answer(self) -> None:
        """Note that it answered at its socket."""
        self._of_workers.end()
        self._of_master.end()

    async def has_stopped(self, now: float) -> bool:
        """Whether it has done nothing for a while until ``now`` (monotonic seconds).

        It neither uses the processor nor waits for it, nor answers a request. Call it after each silence.
        """
        pids = self._master.processes()
        if await self._answers():
            self._of_workers.end()
            return self._of_master.note(pids[:1], now) >= LONG_SECONDS
        silent = self._of_workers.note(pids[1:], now)
        return silent >= (LONG_SECONDS if self._of_workers.is_hidden else SILENT_SECONDS)

    async def _answers(self) -> bool:
        """Whether a worker answers a request that reaches no workload."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                reader, writer = await asyncio.open_unix_connection(self._master.socket_path(ALIVE_SOCKET))
                try:
                    writer.write(b"GET / HTTP/1.0\r\n\r\n")
                    return bool(await reader.read(1))
                finally:
                    writer.close()
        except OSError:
            return False


def _read_work(processes: Sequence[int]) -> _Work:
    process_infos = [
        process_info
        for process_info in map(procfs.find_process, processes)
        if process_info is not None and process_info.alive
    ]
    seconds = sum(process_info.cpu_seconds for process_info in process_infos) if process_infos else None
    return _Work(seconds, any(process_info.runnable for process_info in process_infos))
