"""The built-in data plane: a TCP port of this host for each workload, served by the daemon itself.

It is what a fresh machine has, for the first hour and for development. It counts connections, not requests.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterator, Mapping
from functools import partial

from reconciler.bugs import contained
from reconciler.engines.host.dataplane.endpoints import ADDRESS, Endpoint
from reconciler.engines.host.dataplane.forwarder import Forwarder
from reconciler.engines.host.dataplane.limitations import builtin_limitations
from reconciler.engines.host.dataplane.protocol import DataPlane, PlaneContext, Service, Traffic, refused_event
from reconciler.engines.host.dataplane.split import checked_percents
from reconciler.engines.host.fair_turn import event_or_time
from reconciler.engines.host.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.tasks import cancel_and_wait

BACKLOG = 1024

RETRY_SECONDS = 2.0
"""Seconds until a port that another program uses is tried again, and until refused connections are reported."""

FILES_EACH = 4
"""One connection takes two files of the daemon; half of all files remain for everything else."""

_open: set[asyncio.Task[None]] = set()
"""The connections at all locations: together they may use half of the files that the daemon may open."""


class BuiltinDataPlane(DataPlane):
    """Serves each workload at its port of ``context.ports``."""

    name = "builtin"
    metrics = frozenset({"concurrency"})

    def __init__(self, context: PlaneContext) -> None:
        self._context = context
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // FILES_EACH
        self._ready: dict[Key, tuple[Endpoint, ...]] = {}
        self._split: set[Key] = set()
        self._forwarders: dict[Key, Forwarder] = {}
        self._servers: dict[Key, asyncio.Server] = {}
        self._errors: dict[Key, str] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._dirty = asyncio.Event()

    async def run(self) -> None:
        """Keep one listener for each published service, until cancelled."""
        clock = self._context.clock
        while True:
            self._dirty.clear()
            with contained("data plane"):
                for key in self._forwarders.keys() - self._servers.keys():
                    await self._listen(key)
                for key, forwarder in self._forwarders.items():
                    forwarder.dispatch()
                    if count := forwarder.take_refused():
                        self._context.append_event(refused_event(key, "connection", count))
            due = min((each.next_due() for each in self._forwarders.values()), default=float("inf"))
            if self._errors or due < float("inf"):
                due = min(due, clock.monotonic() + RETRY_SECONDS)
            await event_or_time(self._dirty, clock, due)

    async def close(self) -> None:
        """Stop listening and end all connections."""
        for key in list(self._forwarders):
            self.withdraw(key)
        await cancel_and_wait(self._connections, "the data plane")

    def publish(self, service: Service) -> None:
        """Serve ``service`` at the port of its workload; a changed service takes effect for new connections."""
        key = service.key
        if (forwarder := self._forwarders.get(key)) is None:
            self._forwarders[key] = forwarder = Forwarder(service, self._context, partial(self._on_wait, key))
        forwarder.update(service, self._ready.get(key, ()))
        self._dirty.set()

    def withdraw(self, key: Key) -> None:
        """Stop listening for ``key``; open connections go on until their replica ends."""
        self._errors.pop(key, None)
        if (server := self._servers.pop(key, None)) is not None:
            server.close()
        if (forwarder := self._forwarders.pop(key, None)) is not None:
            forwarder.close()

    def forget(self, key: Key) -> None:
        """Withdraw ``key`` and release its port."""
        self.withdraw(key)
        self._ready.pop(key, None)
        self._split.discard(key)
        self._context.ports.release(key)
        # Another workload may lack a port.
        self._dirty.set()

    def update(self, key: Key, ready: tuple[Endpoint, ...]) -> None:
        """Give new connections of ``key`` to ``ready`` only."""
        self._ready[key] = ready
        if (forwarder := self._forwarders.get(key)) is not None:
            forwarder.update(forwarder.service, ready)

    def split(self, key: Key, percents: Mapping[int, int] | None) -> None:
        """Report that the split is not enforced."""
        self._split.discard(key)
        if checked_percents(percents):
            self._split.add(key)

    def address(self, key: Key) -> str:
        """``127.0.0.1:port`` of a served workload; "" if it is not served."""
        return f"{ADDRESS}:{self._context.ports.find(key)}" if key in self._servers else ""

    def error(self, key: Key) -> str:
        """Why nothing listens at the port of ``key``; "" if something does."""
        return self._errors.get(key, "")

    def limitations(self, wanted: WorkloadSpec) -> Iterator[str]:
        """What a forwarder of connections cannot do."""
        forwarder = self._forwarders.get(wanted.key)
        service = forwarder.service if forwarder is not None else None
        return builtin_limitations(wanted, service, split=wanted.key in self._split)

    async def traffic(self) -> dict[Key, Traffic]:
        """The connections of each served workload."""
        return {key: self._forwarders[key].traffic() for key in self._servers}

    async def _listen(self, key: Key) -> None:
        try:
            port = self._context.ports.assign(key)
            listener = socket.create_server((ADDRESS, port))
            server = await asyncio.start_server(partial(self._accept, key), sock=listener, backlog=BACKLOG)
        except EngineError as error:
            self._errors[key] = str(error)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            self._errors[key] = f"the endpoint {ADDRESS}:{port} of {key} cannot be opened: {why}"
        else:
            self._errors.pop(key, None)
            self._servers[key] = server
            if key not in self._forwarders:
                # It was withdrawn meanwhile.
                self.withdraw(key)
        self._context.changed()

    def _accept(self, key: Key, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        forwarder = self._forwarders.get(key)
        if forwarder is None or len(_open) >= self._most:
            writer.close()
            return
        task = asyncio.create_task(forwarder.serve(reader, writer))
        for connections in (self._connections, _open):
            connections.add(task)
            task.add_done_callback(connections.discard)

    def _on_wait(self, key: Key) -> None:
        self._dirty.set()
        if not self._ready.get(key):
            self._context.wake(key)
