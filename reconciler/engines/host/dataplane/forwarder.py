"""Brings the connections of one workload to its ready replicas, and holds them while there is none."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.engines.host.dataplane.protocol import Service, Traffic
from reconciler.settings import HoldSettings
from reconciler.tasks import cancel_and_wait

UNPROVEN = 10
"""The most connections of a replica that has not answered yet: all that were held would else reach it at once."""

CHUNK = 65_536
CONNECT_SECONDS = 2.0
RETRY_SECONDS = 0.1
AVOID_SECONDS = 1.0
"""Seconds in which a replica that refused a connection gets new ones only if all others are full."""

UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 23\r\nConnection: close\r\n\r\nno replica is ready yet\n"
)

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Load:
    """Counts connections: all that came, those that are open, and the sum of their seconds. Times are monotonic."""

    def __init__(self, now: float) -> None:
        self.arrived = 0
        self.open = 0
        self._seconds = 0.0
        self._at = now

    def add(self, count: int, now: float) -> None:
        """Count ``count`` more open connections (or fewer, if it is negative)."""
        self._seconds += self.open * (now - self._at)
        self._at = now
        self.open += count

    def traffic(self, waiting: int, now: float) -> Traffic:
        """The counts now, with ``waiting`` connections that wait."""
        self.add(0, now)
        return Traffic(self.arrived, self.open, waiting, self._seconds)

    def arrive(self) -> None:
        """Count a connection that came."""
        self.arrived += 1


class _Backend:
    """A replica: how many connections it has ``open``, and whether it has ``answered`` yet."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.open = 0
        self.answered = False
        self.refused_at = float("-inf")

    def add(self, count: int) -> None:
        """Count ``count`` more open connections."""
        self.open += count

    def note_answer(self) -> None:
        """Remember that it answers."""
        self.answered = True

    def note_refusal(self, now: float) -> None:
        """Remember that it refused a connection."""
        self.refused_at = now


class _RefusedError(Exception):
    """Too many connections wait already."""


class _ClientGoneError(Exception):
    """The client closed its connection before a replica took it."""


class Forwarder:
    """The connections of one workload. ``wake`` is called when one must wait, and none waited before.

    Every connection takes the same way, held or not: it waits in line, and the line moves on when a replica becomes
    ready, answers for the first time, or has a connection less.
    """

    def __init__(
        self, service: Service, limits: HoldSettings, wake: Callable[[], None], time: Callable[[], float]
    ) -> None:
        self.service = service
        self._load = Load(time())
        self._refused = 0
        self._limits = limits
        self._wake = wake
        self._time = time
        self._ready: dict[str, _Backend] = {}
        self._waiting: deque[asyncio.Future[_Backend]] = deque()
        self._timeouts: set[asyncio.Timeout] = set()

    @property
    def waiting(self) -> int:
        """How many connections wait for a replica."""
        return len(self._waiting)

    def traffic(self) -> Traffic:
        """What was counted so far."""
        return self._load.traffic(self.waiting, self._time())

    def take_refused(self) -> int:
        """The number of connections that got no replica since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def update(self, service: Service, ready: Iterable[Endpoint]) -> None:
        """Give new connections to these replicas only; open ones go on."""
        before, self.service = self.service, service
        if before.hold_until != service.hold_until:
            end = asyncio.get_running_loop().time() + self._patience()
            for timeout in self._timeouts:
                if not timeout.expired():
                    timeout.reschedule(end)
        port, known, self._ready = str(self.service.port), self._ready, {}
        for each in ready:
            host, _, number = each.ports.get(port, "").rpartition(":")
            if host:
                former = known.get(each.name)
                stays = former is not None and (former.host, former.port) == (host, int(number))
                self._ready[each.name] = former if former is not None and stays else _Backend(host, int(number))
        self.dispatch()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until it ends."""
        self._load.arrive()
        head = bytearray()
        try:
            backend, upstream = await self._reach_in_time(reader, head)
        except (_RefusedError, TimeoutError):
            self._refused += 1
            await self._refuse(writer)
        except _ClientGoneError:
            pass
        else:
            try:
                await self._carry((reader, writer), upstream, backend, bytes(head))
            finally:
                self._release(backend)
                upstream[1].close()
        finally:
            writer.close()

    async def _reach_in_time(self, reader: asyncio.StreamReader, head: bytearray) -> tuple[_Backend, Stream]:
        async with asyncio.timeout(self._patience()) as timeout:
            self._timeouts.add(timeout)
            try:
                return await self._reach(reader, head)
            finally:
                self._timeouts.discard(timeout)

    def _patience(self) -> float:
        """For how many seconds a connection waits from now."""
        return max(self.service.hold_until - self._time(), 0.0) + self._limits.seconds

    async def _reach(self, reader: asyncio.StreamReader, head: bytearray) -> tuple[_Backend, Stream]:
        """A connection to a replica. What the client sends while it waits is added to ``head``."""
        while True:
            backend = await self._take(reader, head)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return backend, await asyncio.open_connection(backend.host, backend.port)
            except (OSError, TimeoutError):
                # It ends just now, or its backlog is full: it may take the next connection, and others can take this.
                backend.note_refusal(self._time())
                self._release(backend)
            except BaseException:
                self._release(backend)
                raise
            await asyncio.sleep(RETRY_SECONDS)

    async def _take(self, reader: asyncio.StreamReader, head: bytearray) -> _Backend:
        backend = self._free_backend() if not self._waiting else None
        if backend is not None:
            return self._occupy(backend)
        if len(self._waiting) >= self._limits.requests:
            raise _RefusedError
        place: asyncio.Future[_Backend] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        if len(self._waiting) == 1:
            self._wake()
        leaving = asyncio.create_task(_read_until_gone(reader, head))
        try:
            await asyncio.wait((place, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not place.done():
                raise _ClientGoneError
            return place.result()
        except asyncio.CancelledError:
            if place.done():
                self._release(place.result())
            raise
        finally:
            # It stops reading in the next iteration of the loop, before a connection to a replica can be there.
            leaving.cancel()
            if not place.done():
                self._waiting.remove(place)

    def dispatch(self) -> None:
        """Give the connections at the head of the line to replicas that may have more."""
        while self._waiting and (backend := self._free_backend()) is not None:
            self._waiting.popleft().set_result(self._occupy(backend))

    def _free_backend(self) -> _Backend | None:
        """The replica with the fewest connections of those that may have one more; none during a hold."""
        if self._time() < self.service.hold_until:
            return None
        free = [each for each in self._ready.values() if each.open < self._most(each)]
        recent = self._time() - AVOID_SECONDS
        return min(free, key=lambda each: (each.refused_at > recent, each.open), default=None)

    def _most(self, backend: _Backend) -> float:
        """How many connections a replica may have at once."""
        return self.service.max_concurrency or (float("inf") if backend.answered else UNPROVEN)

    def _occupy(self, backend: _Backend) -> _Backend:
        backend.add(1)
        self._load.add(1, self._time())
        return backend

    def _release(self, backend: _Backend) -> None:
        backend.add(-1)
        self._load.add(-1, self._time())
        self.dispatch()

    async def _carry(self, client: Stream, upstream: Stream, backend: _Backend, head: bytes) -> None:
        """Copy in both directions until the replica has closed its side, or the client is lost."""
        upstream[1].write(head)
        sending = asyncio.create_task(_send(client[0], upstream[1]))
        try:
            with suppress(OSError):
                while data := await upstream[0].read(CHUNK):
                    if not backend.answered:
                        backend.note_answer()
                        self.dispatch()
                    client[1].write(data)
                    await client[1].drain()
        finally:
            await cancel_and_wait((sending,), f"a connection of {self.service.key}")

    async def _refuse(self, writer: asyncio.StreamWriter) -> None:
        if self.service.protocol == "http":
            with suppress(OSError):
                writer.write(UNAVAILABLE)
                await writer.drain()


async def _send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy what a client sends. Its end is passed on; its loss ends the connection to the replica."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()


async def _read_until_gone(reader: asyncio.StreamReader, head: bytearray) -> None:
    """Return when the client has closed its side: it gave up, even if it could still read an answer.

    With ``head`` full, return never: the rest is read when a replica takes the connection.
    """
    with suppress(OSError):
        while len(head) < CHUNK:
            data = await reader.read(CHUNK)
            if not data:
                return
            head += data
        await asyncio.get_running_loop().create_future()
