"""A data plane with a real HAProxy, replicas that answer HTTP, and clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec

from reconciler.clock import SystemClock
from reconciler.engines.host.dataplane.certificates.store import CertificateStore
from reconciler.engines.host.dataplane.haproxy.config import MASTER_SOCKET
from reconciler.engines.host.dataplane.haproxy.discovery import Setup, find_master
from reconciler.engines.host.dataplane.haproxy.plane import HaproxyDataPlane
from reconciler.engines.host.dataplane.ports import ServicePorts
from reconciler.engines.host.dataplane.protocol import PlaneContext, Service
from reconciler.engines.host.runtimes.procfs import find_process, list_children
from reconciler.engines.workload.routing.table import RouteTable
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.settings import HoldSettings, HostSettings, IngressSettings
from tests.engines.host.dataplane.kit import PATIENCE, PORT, Replica, until
from tests.engines.host.signals import RecordedSignals

KEY = Key(Kind.WORKLOAD, "shop", "web")
OTHER = Key(Kind.WORKLOAD, "shop", "api")
SERVICE = Service(KEY, PORT)
_NEW_SECONDS = count(100)
HOLD = HoldSettings(requests=40, seconds=20.0)


class Answer(NamedTuple):
    """The response to a request; status 0 if the connection ended without one."""

    status: int
    headers: dict[str, str]
    body: str


class WebReplica(Replica):
    """An HTTP server that answers with its name, once ``gate`` is open; ``most`` requests were open at once."""

    def __init__(self, name: str, version: int = 1) -> None:
        super().__init__(name, version)
        self.status = b"200 OK"
        self.heads: list[str] = []

    async def start(self, port: int = 0) -> WebReplica:
        """As Replica.start."""
        await super().start(port)
        return self

    async def _wait(self) -> None:
        await self.gate.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                self.open += 1
                self.most = max(self.most, self.open)
                try:
                    await self._wait()
                finally:
                    self.open -= 1
                body = self.name.encode()
                writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (self.status, len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()


class Browser:
    """A connection that sends one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, address: str) -> Browser:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, *headers: str, host: str = "web") -> None:
        lines = ("GET / HTTP/1.1", f"Host: {host}", *headers, "", "")
        self._writer.write("\r\n".join(lines).encode())

    async def answer(self) -> Answer:
        """The next response; its body has a length."""
        async with asyncio.timeout(PATIENCE):
            try:
                head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await self._reader.readexactly(int(headers.get("content-length", 0)))
            except (asyncio.IncompleteReadError, OSError):
                return Answer(0, {}, "")
        return Answer(int(head[0].split()[1]), headers, body.decode())

    def close(self) -> None:
        self._writer.close()


async def get(address: str, *headers: str, host: str = "web") -> Answer:
    """The answer to one request for ``host`` on a connection of its own; 0 where nothing listens."""
    try:
        browser = await Browser.to(address)
    except OSError:
        return Answer(0, {}, "")
    try:
        browser.send("Connection: close", *headers, host=host)
        return await browser.answer()
    finally:
        browser.close()


async def answer_of(address: str, status: int) -> Answer:
    """The first answer with ``status``."""
    async with asyncio.timeout(PATIENCE):
        while (found := await get(address)).status != status:
            await asyncio.sleep(0.01)
    return found


class Plane:
    """A data plane that runs below ``path``, with what it reported. HAProxy outlives it.

    ``root`` has the files of systemd, ``user`` is that of HAProxy.
    """

    def __init__(
        self,
        path: Path,
        hold: HoldSettings = HOLD,
        ingress: IngressSettings | None = None,
        routes: Callable[[], RouteTable] = RouteTable,
        root: Path = Path("/"),
        certificates: CertificateStore | None = None,
        user: tuple[int, int] | None = None,
    ) -> None:
        self.signals = RecordedSignals()
        self.events, self.woken = self.signals.events, self.signals.listener.woken
        self.lines: list[tuple[Key, str]] = []
        self.running: asyncio.Task[None] | None = None
        self.directory = path / "haproxy"
        self.clock = SystemClock()
        ports = ServicePorts(path / "ports.json", HostSettings())
        context = PlaneContext(ports, hold, self.clock, self.signals, ingress, routes, self._log, certificates)
        self.dataplane = HaproxyDataPlane(self.directory, Setup("here", user, root), context)

    def _log(self, key: Key, line: str) -> None:
        self.lines.append((key, line))

    @property
    def changes(self) -> int:
        """How often an address or an error has changed."""
        return self.signals.listener.changes

    async def command(self, line: str) -> str:
        """The answer of HAProxy to a command that comes from somebody else."""
        reader, writer = await asyncio.open_unix_connection(str(self.directory / MASTER_SOCKET))
        writer.write(f"@1 {line}\n".encode())
        writer.write_eof()
        try:
            return (await reader.read()).decode()
        finally:
            writer.close()

    @property
    def master(self) -> int:
        """The number of the process; 0 if none runs."""
        return find_master(self.directory) or 0

    @property
    def worker(self) -> int:
        """The number of the newest worker; 0 if there is none."""
        return newest_worker(self.master)

    async def address(self, service: Service = SERVICE, *replicas: WebReplica) -> str:
        """Publish ``service`` with ``replicas``; its address, once it is served."""
        await self.ready(*replicas, key=service.key)
        return await self.serve(service)

    async def serve(self, service: Service) -> str:
        """Publish ``service``; its address, once it is served."""
        self.dataplane.publish(service)
        await until(lambda: self.dataplane.address(service.key))
        await self.dataplane.synchronize(service.key)
        return self.dataplane.address(service.key)

    async def reload(self) -> None:
        """Let HAProxy be reloaded: the options of a workload change."""
        worker = self.worker
        self.dataplane.publish(msgspec.structs.replace(SERVICE, key=OTHER, timeout_seconds=next(_NEW_SECONDS)))
        # While it is reloaded, no process may be at its socket.
        await until(lambda: self.worker not in (0, worker))
        await until(lambda: self.dataplane.address(OTHER))

    async def ready(self, *replicas: WebReplica, key: Key = KEY) -> None:
        """Let just these be ready, and wait until that is in force."""
        self.dataplane.update(key, tuple(each.endpoint for each in replicas))
        await self.dataplane.synchronize(key)

    async def hold_in_force(self, key: Key = KEY) -> None:
        """Return when the hold of a workload is in force."""
        while not self.dataplane.is_on_hold(key):
            await self.dataplane.synchronize(key)
            await asyncio.sleep(0.02)

    async def waiting(self, count: int, key: Key = KEY, beside: int = 0) -> None:
        """Return when so many requests wait for a replica, and at most ``beside`` more."""
        for _ in range(1000):
            with contextlib.suppress(EngineError):  # a worker that is new may not answer in time
                if count <= (await self.dataplane.traffic())[key].waiting <= count + beside:
                    return
            await asyncio.sleep(0.02)
        raise AssertionError(f"never {count} requests wait: {await self.dataplane.traffic()}")

    async def waiting_at_least(self, count: int, key: Key = KEY) -> None:
        """Return when at least so many requests wait for a replica."""
        async with asyncio.timeout(PATIENCE):
            while (await self.dataplane.traffic())[key].waiting < count:
                await asyncio.sleep(0.1)

    def stop(self) -> None:
        """End the daemon's part; HAProxy goes on."""
        assert self.running is not None
        self.running.cancel()


def newest_worker(master: int) -> int:
    """The number of the worker that ``master`` has started last; 0 if there is none.

    Its number may be less than that of a former worker, since the kernel begins anew after the greatest one.
    """
    numbers = list_children(master) if master else []
    found = [each for each in map(find_process, numbers) if each is not None and each.alive]
    return max(found, key=lambda each: each.start).pid if found else 0


def play(plane: Callable[[], Plane], story: Callable[[Plane], Awaitable[None]]) -> None:
    """Play ``story`` while a data plane runs."""

    async def whole() -> None:
        opened = plane()
        opened.running = running = asyncio.create_task(opened.dataplane.run())
        try:
            await story(opened)
        finally:
            running.cancel()
            await opened.dataplane.close()

    asyncio.run(whole())


def end(path: Path) -> None:
    """End the HAProxy below ``path`` with its workers, also ones that hang."""
    if (found := find_master(path / "haproxy")) is not None:
        os.killpg(found, signal.SIGKILL)
