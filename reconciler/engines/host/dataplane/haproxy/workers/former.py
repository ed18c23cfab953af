"""Former workers: after a reload, each goes on with the connections that it has, and counts them alone.

A WebSocket stays with its worker, so what is open is the sum of all workers. Their requests that still wait arrive
again, at the new worker, since no former one gets to know new replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from reconciler.engines.host.dataplane.haproxy.live import Live, LiveBackend, StatReader, count_limit_changes
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.host.dataplane.protocol import Traffic
from reconciler.errors import EngineError

ARRIVE = "arrive again"
"""A command of our script."""
FEW = 100
"""With more workloads, one former worker is read at a time: each read takes some milliseconds of both sides."""


class FormerWorkers:
    """The counts of the workers that take no new connections.

    Not all of them are ``known`` if one could not be read.
    """

    def __init__(self, master: Master) -> None:
        self.known = True
        self._master = master
        self._readers: dict[str, StatReader] = {}
        self._live: dict[str, Live] = {}
        self._arrived: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    async def read(self, former: Sequence[str]) -> None:
        """Read the workers with the numbers ``former``; all others have ended."""
        for worker in self._live.keys() - set(former):
            del self._live[worker]
        self._readers = {text: reader for text, reader in self._readers.items() if text in former}
        for worker in self._due(former):
            # It may have ended since; `known` shows whether one was never read.
            with suppress(EngineError):
                await self._read(worker)
        self.known = self._live.keys() == set(former)

    def open(self, name: str, replica: str) -> int:
        """The requests that a server of the backend ``name`` works on."""
        servers = (backend.servers.get(replica) for backend in self._find(name))
        return sum(server.open for server in servers if server is not None)

    def traffic(self, name: str) -> Traffic:
        """The requests of the backend ``name``: those that any former worker had so far, and the open ones."""
        return Traffic(self._arrived[name], sum(backend.active for backend in self._find(name)))

    def count_refused(self, name: str) -> int:
        """How many requests of the backend ``name`` former workers have refused."""
        return self._refused[name]

    def names(self) -> set[str]:
        """The backends that former workers have."""
        return {name for live in self._live.values() for name in live}

    def _find(self, name: str) -> Iterator[LiveBackend]:
        return (live[name] for live in self._live.values() if name in live)

    def _due(self, former: Sequence[str]) -> list[str]:
        """The workers to read now: all, or if that is much, the new ones and one of the others."""
        if all(len(live) <= FEW for live in self._live.values()):
            return [*former]
        return [*(text for text in former if text not in self._live), *list(self._live)[:1]]

    async def _read(self, worker: str) -> None:
        before, reader = self._live.get(worker, {}), self._readers.setdefault(worker, StatReader())
        # After `@!` comes the number of a process, after `@` the rank of a current worker.
        backends = reader.read(await self._master.ask(f"@!{worker} show stat -1 6 -1"))
        # It goes to the end, so that each has its turn.
        self._live.pop(worker, None)
        self._live[worker] = backends
        for name, live_backend in backends.items():
            # The counts of a worker end with it, so what is new is added to a sum.
            previous = before.get(name)
            self._arrived[name] += live_backend.traffic().arrived - (
                previous.traffic().arrived if previous is not None else 0
            )
            self._refused[name] += live_backend.refused - (previous.refused if previous is not None else 0)
        waiting = (
            (name, backend.wait) for name, backend in backends.items() if backend.wait.queued or backend.wait.open
        )
        lines = [
            f"@!{worker} {ARRIVE} {name} {count_limit_changes(wait)}"
            for name, wait in waiting
            if wait.limit or wait.queued
        ]
        if lines:
            await self._master.ask(";".join(lines))
