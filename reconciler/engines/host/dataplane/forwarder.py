"""Brings the connections of one workload to its ready replicas, and holds them while there is none."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from secrets import token_bytes

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.engines.host.dataplane.protocol import UNPROVEN, PlaneContext, Service, Traffic

CHUNK = 65_536
CONNECT_SECONDS = 2.0

PAUSE_SECONDS = 0.1
"""Seconds in which a replica that refused a connection gets none."""

UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 23\r\nConnection: close\r\n\r\nno replica is ready yet\n"
)

_NEVER = token_bytes(32)
"""Bytes that no client sends."""

_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_Waiting = tuple[float, "asyncio.Future[str]"]
"""A connection in line: since when it waits, and the address of the replica that it gets."""


class _RefusedError(Exception):
    """A connection waited too long, or too many wait already."""


class Forwarder:
    """The connections of one workload. ``on_wait`` is called when one waits while none did before, or was refused.

    Every connection takes the same way, held or not: it waits in line, and the line moves on when a replica becomes
    ready, answers for the first time, or has a connection less. Replicas are known by their addresses.
    """

    def __init__(self, service: Service, context: PlaneContext, on_wait: Callable[[], None]) -> None:
        self.service = service
        self._limits = context.limits
        self._now = context.clock.monotonic
        self._on_wait = on_wait
        self._hold_end = service.hold_until
        self._free_at: dict[str, float] = {}
        self._answered: set[str] = set()
        self._active: Counter[str] = Counter()
        self._line: deque[_Waiting] = deque()
        self._closed = False
        self._arrived = 0
        self._refused = 0
        self._active_seconds = 0.0
        self._counted_at = self._now()

    def update(self, service: Service, ready: tuple[Endpoint, ...]) -> None:
        """Give new connections to these replicas only; open ones go on."""
        if service.hold_until != self.service.hold_until:
            self._hold_end = max(service.hold_until, self._now())
        self.service = service
        found = (each.ports.get(str(service.port)) for each in ready)
        self._free_at = {address: self._free_at.get(address, 0.0) for address in found if address}
        self._answered &= self._free_at.keys()
        self.dispatch()

    def dispatch(self) -> None:
        """Refuse connections that have waited too long, and give the next ones to replicas that may have more."""
        while self._line and (self._closed or self._deadline() <= self._now()):
            self._refused += 1
            self._line.popleft()[1].set_exception(_RefusedError)
        while self._line and (replica := self._next_replica()) is not None:
            self._count(replica, 1)
            self._line.popleft()[1].set_result(replica)

    def next_due(self) -> float:
        """When ``dispatch`` has something to do, if nothing else happens; infinite if no connection waits."""
        if not self._line:
            return float("inf")
        later = (each for each in (self.service.hold_until, *self._free_at.values()) if each > self._now())
        return min((self._deadline(), *later))

    def close(self) -> None:
        """Refuse the connections that wait, and all others that come; open ones go on."""
        self._closed = True
        self.dispatch()

    def take_refused(self) -> int:
        """The number of connections that got no replica since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def traffic(self) -> Traffic:
        """What was counted so far."""
        self._count_time()
        return Traffic(self._arrived, self._active.total(), len(self._line), self._active_seconds)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until it ends."""
        self._arrived += 1
        since = self._now()
        try:
            replica = await self._take(reader, since, self._line.append)
            while not await self._carry((reader, writer), replica):
                replica = await self._take(reader, since, self._line.appendleft)
        except _RefusedError:
            if self.service.protocol == "http":
                writer.write(UNAVAILABLE)
        finally:
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, since: float, join: Callable[[_Waiting], None]) -> str:
        """The replica for a connection. It joins the line, and leaves it if its client closes it."""
        place: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        join((since, place))
        self.dispatch()
        if place.done():
            return place.result()
        if len(self._line) > self._limits.requests:
            self._refused += 1
            self._line.remove((since, place))
            raise _RefusedError
        if len(self._line) == 1:
            self._on_wait()
        watching = asyncio.create_task(self._leave_when_gone(reader, (since, place)))
        try:
            return await place
        finally:
            # It stops reading in the next iteration of the loop, before a connection to a replica can be there.
            watching.cancel()

    async def _leave_when_gone(self, reader: asyncio.StreamReader, waiting: _Waiting) -> None:
        """End a connection in line when its client has closed its side: it gave up, even if it could read an answer.

        What it sends stays unread.
        """
        try:
            await reader.readuntil(_NEVER)
        except asyncio.LimitOverrunError:
            # The rest is read when a replica takes the connection.
            return
        except (OSError, asyncio.IncompleteReadError):
            pass
        if waiting[1].cancel():
            self._line.remove(waiting)

    async def _carry(self, client: _Stream, replica: str) -> bool:
        """Bring a connection to ``replica`` until that has closed it, or the client is lost. False: it refused."""
        host, _, port = replica.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                upstream = await asyncio.open_connection(host, port)
            await self._copy(client, upstream, replica)
            return True
        except OSError:
            # It ends just now, or its backlog is full: it may take the next connection, and others can take this.
            if replica in self._free_at:
                self._free_at[replica] = self._now() + PAUSE_SECONDS
            self._on_wait()
            return False
        finally:
            self._count(replica, -1)
            self.dispatch()

    async def _copy(self, client: _Stream, upstream: _Stream, replica: str) -> None:
        """Copy in both directions."""
        sending = asyncio.create_task(_send(client[0], upstream[1]))
        try:
            with suppress(OSError):
                if first := await upstream[0].read(CHUNK):
                    self._answered.add(replica)
                    self.dispatch()
                client[1].write(first)
                await _pump(upstream[0], client[1])
        finally:
            sending.cancel()
            upstream[1].close()

    def _deadline(self) -> float:
        """When the first connection of the line is refused."""
        return max(self._line[0][0], self._hold_end) + self._limits.seconds

    def _next_replica(self) -> str | None:
        """The replica with the fewest connections of those that may have one more; none during a hold."""
        now, most = self._now(), self.service.max_concurrency
        if now < self.service.hold_until:
            return None
        ready = (each for each, free_at in self._free_at.items() if free_at <= now)
        limits = {each: most or (float("inf") if each in self._answered else UNPROVEN) for each in ready}
        free = (each for each, limit in limits.items() if self._active[each] < limit)
        return min(free, key=self._active.__getitem__, default=None)

    def _count(self, replica: str, more: int) -> None:
        """Count ``more`` open connections of ``replica``."""
        self._count_time()
        self._active[replica] += more
        # Those without a connection are left out.
        self._active = +self._active

    def _count_time(self) -> None:
        now = self._now()
        self._active_seconds += self._active.total() * (now - self._counted_at)
        self._counted_at = now


async def _send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy what a client sends. Its end is passed on; its loss ends the connection to the replica."""
    try:
        await _pump(reader, writer)
        writer.write_eof()
    except OSError:
        writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
