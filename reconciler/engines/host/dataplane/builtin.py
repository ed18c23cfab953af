"""The built-in data plane: a TCP port of this host for each workload, served by the daemon itself.

It is what a fresh machine has, for the first hour and for development. It counts connections, not requests.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from reconciler.bugs import contain_bugs
from reconciler.engines.host.controllers.fair_turn import event_or_time
from reconciler.engines.host.dataplane.endpoints import ADDRESS, Endpoint
from reconciler.engines.host.dataplane.limitations import builtin_limitations
from reconciler.engines.host.dataplane.protocol import DataPlane, PlaneContext, Service, Traffic, report_refused
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.tasks import cancel_and_wait

BACKLOG, CHUNK, CONNECT_SECONDS = 1024, 65_536, 2.0
PAUSE_SECONDS = 0.1
"""Seconds in which a replica that refused a connection gets none, and between two ticks while connections wait."""
RETRY_SECONDS = 2.0
"""Seconds until a port that another program uses is tried again, and until refused connections are reported."""
FILES_EACH = 4
"""One connection takes two files of the daemon; half of all files remain for everything else."""

UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 23\r\nConnection: close\r\n\r\nno replica is ready yet\n"
)

Target = tuple[str, str]
_open: dict[asyncio.Task[None], PlaneContext] = {}
"""The connections at all locations: together they may use half of the files that the daemon may open."""


class BuiltinDataPlane(DataPlane):
    """Serves each workload at its port of ``context.ports``."""

    name = "builtin"
    metrics = frozenset({"concurrency"})
    counted = "connection"

    def __init__(self, context: PlaneContext) -> None:
        self._context = context
        self._forwarders: dict[Key, Forwarder] = {}
        self._dirty = asyncio.Event()

    async def run(self) -> None:
        """Keep one listener for each published service, and the lines of connections moving, until cancelled."""
        clock, retry_at = self._context.clock, 0.0
        while True:
            now, forwarders = clock.monotonic(), list(self._forwarders.values())
            if retry := self._dirty.is_set() or now >= retry_at:
                retry_at = now + RETRY_SECONDS
            self._dirty.clear()
            for service_forwarder in forwarders:
                with contain_bugs("data plane"):
                    await service_forwarder.tick(retry=retry)
            waits, fails = any(it.line for it in forwarders), any(it.error or it.refused for it in forwarders)
            due = now + PAUSE_SECONDS if waits else retry_at if fails else None
            await event_or_time(self._dirty, clock, due)

    async def close(self) -> None:
        """Stop listening and end all connections."""
        for forwarder in self._forwarders.values():
            forwarder.publish(None)
        await cancel_and_wait([task for task, context in _open.items() if context is self._context], "the data plane")

    def publish(self, service: Service) -> None:
        """Serve ``service`` at the port of its workload; a changed service takes effect for new connections."""
        self._forwarder(service.key).publish(service)

    def withdraw(self, key: Key) -> None:
        """Stop listening for ``key``; open connections go on until their replica ends."""
        self._forwarder(key).publish(None)

    def forget(self, key: Key) -> None:
        """Withdraw ``key`` and release its port, which another workload may lack."""
        self.withdraw(key)
        del self._forwarders[key]
        self._context.ports.release(key)

    def update(self, key: Key, ready: tuple[Endpoint, ...]) -> None:
        """Give new connections of ``key`` to ``ready`` only."""
        self._forwarder(key).update(ready)

    def address(self, key: Key) -> str:
        """``127.0.0.1:port`` of a served workload; "" if it is not served."""
        return f"{ADDRESS}:{self._context.ports.find(key)}" if self._forwarder(key).server is not None else ""

    def error(self, key: Key) -> str:
        """Why nothing listens at the port of ``key``; "" if something does."""
        return self._forwarder(key).error

    def limitations(self, spec: WorkloadSpec) -> Iterator[str]:
        """What a forwarder of connections cannot do."""
        return builtin_limitations(spec, self._forwarder(spec.key).service)

    def open_requests(self, key: Key, replica: str) -> int:
        """The open connections of a replica, now."""
        return self._forwarder(key).active[replica]

    async def traffic(self) -> dict[Key, Traffic]:
        """The connections of each served workload."""
        return {key: forwarder.traffic() for key, forwarder in self._forwarders.items() if forwarder.server is not None}

    def _forwarder(self, key: Key) -> Forwarder:
        if (forwarder := self._forwarders.get(key)) is None:
            forwarder = self._forwarders[key] = Forwarder(key, self._context, self._dirty.set)
        return forwarder


class Waiting(NamedTuple):
    """A connection in line: since when it waits; name and address of the replica that it gets, None if it gets none."""

    since: float
    replica: asyncio.Future[Target | None]
    writer: asyncio.StreamWriter

    @property
    def is_gone(self) -> bool:
        """Whether its client has closed its side: it gave up, even if it could read an answer. 1: TCP_ESTABLISHED."""
        tcp = self.writer.get_extra_info("socket")
        return self.writer.is_closing() or tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != b"\x01"


class Forwarder:
    """Brings the connections of one workload to its ready replicas; ``active`` counts them by replica.

    Every connection takes the same way, held or not: it waits in line, and the line moves on when a replica becomes
    ready, answers for the first time, or has a connection less. ``dirty`` is called for a ``tick`` at once.
    """

    def __init__(self, key: Key, context: PlaneContext, dirty: Callable[[], None]) -> None:
        self.service: Service | None = None
        self.server: asyncio.Server | None = None
        self.error = ""
        self.line: list[Waiting] = []
        self.refused = self._arrived = 0
        self._key, self._context, self._dirty = key, context, dirty
        self._limits, self._now = context.limits, context.clock.monotonic
        self._hold_end = self._active_seconds = 0.0
        self._ready: tuple[Endpoint, ...] = ()
        self._paused_until: dict[str, float] = {}
        self._answered: set[str] = set()
        self.active: Counter[str] = Counter()

    def publish(self, service: Service | None) -> None:
        """Serve ``service``; None: stop listening, and refuse the connections that wait. Open ones go on."""
        former, self.service = self.service, service
        if service is None:
            if self.server is not None:
                self.server.close()
            self.server, self.error = None, ""
        elif former is None or service.hold_until != former.hold_until:
            self._hold_end = max(service.hold_until, self._now())
        self._move_on()
        self._dirty()

    def update(self, ready: tuple[Endpoint, ...]) -> None:
        """Give new connections to these replicas only; open ones go on."""
        self._ready = ready
        self._answered &= {address for endpoint in ready for address in endpoint.ports.values()}
        self._move_on()

    async def listen(self) -> None:
        """Listen at the port if nothing does yet."""
        service = self.service
        if service is None or self.server is not None:
            return
        try:
            # asyncio would wait to resolve numbers
            listener = socket.create_server((ADDRESS, self._context.ports.usable(self._key)))
            self.server = await asyncio.start_server(self._accept, sock=listener, backlog=BACKLOG)
            self.error = ""
        except (EngineError, OSError) as error:
            self.error = str(error)
        if self.service is None:  # It was withdrawn meanwhile.
            self.publish(None)
        self._context.signals.serving_changed()

    async def tick(self, *, retry: bool) -> None:
        """Move the line on, without connections that gave up or waited too long. ``retry``: also listen, and report."""
        if retry:
            await self.listen()
        if retry and self.refused:
            report_refused(self._context.signals, self._key, "connection", self.refused)
            self.refused = 0
        for connection in [waiting for waiting in self.line if waiting.is_gone]:
            self._leave(connection)
        while self.line and max(self.line[0].since, self._hold_end) + self._limits.seconds <= self._now():
            self._leave(self.line[0], refused=1)
        self._move_on()

    def traffic(self) -> Traffic:
        """What was counted so far."""
        active = self.active.total()
        return Traffic(self._arrived, active, len(self.line), self._active_seconds + active * self._now())

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.service is None or len(_open) >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // FILES_EACH:
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer, self.service.protocol))
        _open[task] = self._context
        task.add_done_callback(_open.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: str) -> None:
        """Forward one connection until it ends."""
        self._arrived, since = self._arrived + 1, self._now()
        try:
            while replica := await self._wait(since, writer):
                if await self._carry(reader, writer, replica):
                    return
            if protocol == "http":
                writer.write(UNAVAILABLE)
        finally:
            writer.close()

    async def _wait(self, since: float, writer: asyncio.StreamWriter) -> Target | None:
        """The replica for a connection. One that a replica refused comes back to its former place."""
        waiting = Waiting(since, asyncio.get_running_loop().create_future(), writer)
        insort(self.line, waiting, key=lambda connection: connection.since)
        self._move_on()
        if self.line == [waiting]:
            self._dirty()
            if not self._ready:
                self._context.signals.wake(self._key)
        return await waiting.replica

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, replica: Target) -> bool:
        """Bring a connection to a replica until that has closed it, or the client is lost. False: it refused."""
        host, port = replica[1].rsplit(":", 1)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                answers, sink = await asyncio.open_connection(host, port)
            sending = asyncio.create_task(self._copy(reader, sink))
            try:
                await self._copy(answers, writer, replica[1])
            finally:
                sending.cancel()
                sink.close()
        except OSError:
            # It ends just now, or its backlog is full: it may take the next connection, and others can take this.
            self._paused_until[replica[1]] = self._now() + PAUSE_SECONDS
            self._dirty()
            return False
        finally:
            self.active -= Counter((replica[0],))
            self._active_seconds += self._now()
            self._move_on()
        return True

    def _move_on(self) -> None:
        """Give the first connections of the line to replicas that may have more, and refuse those that are too many."""
        while self.line and (replica := self._next_replica()):
            self.active[replica[0]] += 1
            self._active_seconds -= self._now()
            self._leave(self.line[0], replica)
        while len(self.line) > (self._limits.requests if self.service is not None else 0):
            self._leave(self.line[-1], refused=1)

    def _leave(self, waiting: Waiting, replica: Target | None = None, refused: int = 0) -> None:
        """Take a connection out of the line."""
        self.refused += refused
        self.line.remove(waiting)
        waiting.replica.set_result(replica)

    def _next_replica(self) -> Target | None:
        """The replica with the fewest connections of those that may have one more; None if none, and during a hold."""
        service, now = self.service, self._now()
        if service is None or now < service.hold_until:
            return None
        targets = ((endpoint.name, endpoint.ports.get(str(service.port), "")) for endpoint in self._ready)
        ready = (target for target in targets if target[1] and self._paused_until.get(target[1], 0.0) <= now)
        limits = {target: service.limit(proven=target[1] in self._answered) for target in ready}
        free = (target for target, limit in limits.items() if not limit or self.active[target[0]] < limit)
        return min(free, key=lambda target: self.active[target[0]], default=None)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str = "") -> None:
        """Copy in one direction, what the replica at ``address`` answers if set. End and loss are passed on."""
        try:
            while data := await reader.read(CHUNK):
                if address and address not in self._answered:
                    self._answered.add(address)
                    self._move_on()
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        except OSError:
            writer.transport.abort()
