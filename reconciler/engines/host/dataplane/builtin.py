"""The built-in data plane: a TCP port of this host for each workload, served by the daemon itself.

It is what a fresh machine has, for the first hour and for development. It counts connections, not requests.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Iterator, Mapping

from reconciler.bugs import contained
from reconciler.engines.host.dataplane.endpoints import ADDRESS, Endpoint
from reconciler.engines.host.dataplane.forwarder import Forwarder
from reconciler.engines.host.dataplane.protocol import LatencyListener, PlaneContext, Service, Traffic
from reconciler.engines.host.dataplane.split import checked_percents
from reconciler.engines.host.fair_turn import event_or_time
from reconciler.engines.host.spec import WorkloadSpec
from reconciler.engines.protocol import EngineEvent
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.workload import metric_of
from reconciler.reasons import Reason
from reconciler.tasks import cancel_and_wait

RETRY_SECONDS = 2.0
"""Seconds until a port that another program uses is tried again."""

BACKLOG = 1024

FILES_EACH = 4
"""One connection takes two files of the daemon; half of all files remain for everything else."""

NOT_COUNTED = ("rps", "latency")
"""Scaling metrics that need a view of the requests inside a connection."""

_open: set[asyncio.Task[None]] = set()
"""The connections at all locations: together they may use half of the files that the daemon may open."""


class BuiltinDataPlane:
    """Serves each workload at its port of ``context.ports``."""

    name = "builtin"
    metrics = frozenset({"concurrency"})

    def __init__(self, context: PlaneContext) -> None:
        self._ports = context.ports
        self._limits = context.limits
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // FILES_EACH
        self._clock = context.clock
        self._append_event = context.append_event
        self._wake = context.wake
        self._changed = context.changed
        self._ready: dict[Key, tuple[Endpoint, ...]] = {}
        self._forwarders: dict[Key, Forwarder] = {}
        self._servers: dict[Key, asyncio.Server] = {}
        self._errors: dict[Key, str] = {}
        self._split: set[Key] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._dirty = asyncio.Event()

    async def run(self) -> None:
        """Keep one listener for each published service, until cancelled."""
        while True:
            self._dirty.clear()
            with contained("data plane"):
                await self._listen()
            self._report_refused()
            await event_or_time(self._dirty, self._clock, self._next_due())
            for forwarder in self._forwarders.values():
                forwarder.dispatch()

    async def close(self) -> None:
        """Stop listening and end all connections."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        await cancel_and_wait(self._connections, "the data plane")

    def publish(self, service: Service) -> None:
        """Serve ``service`` at the port of its workload; a changed service takes effect for new connections."""
        forwarder = self._forwarders.get(service.key)
        if forwarder is None:
            key = service.key
            forwarder = Forwarder(service, self._limits, lambda: self._hold(key), self._clock.monotonic)
            self._forwarders[key] = forwarder
        elif forwarder.service == service:
            return
        self._dirty.set()
        forwarder.update(service, self._ready.get(service.key, ()))

    def withdraw(self, key: Key) -> None:
        """Stop listening for ``key``; open connections go on until their replica ends."""
        if self._forwarders.pop(key, None) is not None:
            self._dirty.set()

    def forget(self, key: Key) -> None:
        """Withdraw ``key`` and release its port."""
        self.withdraw(key)
        self._ready.pop(key, None)
        self._split.discard(key)
        self._ports.release(key)

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

    def reroute(self) -> None:
        """Do nothing: this data plane knows no host names."""

    def route_problems(self) -> Mapping[str, tuple[str, ...]]:
        """No problems, since no domain is served."""
        return {}

    async def synchronize(self, key: Key) -> None:
        """Do nothing: ``update`` is in force when it returns."""

    def address(self, key: Key) -> str:
        """``127.0.0.1:port`` of a served workload; "" if it is not served."""
        return f"{ADDRESS}:{self._ports.find(key)}" if key in self._servers else ""

    def error(self, key: Key) -> str:
        """Why nothing listens at the port of ``key``; "" if something does."""
        return self._errors.get(key, "")

    def limitations(self, wanted: WorkloadSpec) -> Iterator[str]:
        """What a forwarder of connections cannot do."""
        forwarder = self._forwarders.get(wanted.key)
        service = forwarder.service if forwarder is not None else None
        return limitations(wanted, service, split=wanted.key in self._split)

    async def traffic(self) -> dict[Key, Traffic]:
        """The connections of each served workload."""
        return {key: self._forwarders[key].traffic() for key in self._servers if key in self._forwarders}

    def listen(self, listener: LatencyListener) -> None:
        """Do nothing: a forwarder of connections sees no responses."""

    async def _listen(self) -> None:
        for key in [key for key in self._servers if key not in self._forwarders]:
            self._servers.pop(key).close()
            self._errors.pop(key, None)
        for key in [key for key in self._errors if key not in self._forwarders]:
            del self._errors[key]
        for key in [key for key in self._forwarders if key not in self._servers]:
            try:
                listener = self._bind(key)
            except EngineError as error:
                self._errors[key] = str(error)
            else:
                self._errors.pop(key, None)
                self._servers[key] = await asyncio.start_server(self._accept(key), sock=listener, backlog=BACKLOG)
            self._changed()

    def _accept(self, key: Key) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            forwarder = self._forwarders.get(key)
            if forwarder is None or len(_open) >= self._most:
                writer.close()
                return
            task = asyncio.create_task(forwarder.serve(reader, writer))
            for connections in (self._connections, _open):
                connections.add(task)
                task.add_done_callback(connections.discard)

        return accept

    def _bind(self, key: Key) -> socket.socket:
        """A socket at the port of ``key``, or at a free one that becomes its port. Raises EngineError."""
        known = self._ports.find(key)
        port = known or self._ports.choose(key)
        try:
            listener = _listener(port)
        except OSError as error:
            message = f"the endpoint {ADDRESS}:{port} of {key} cannot be opened: {error.strerror}"
            raise EngineError(message, reason=Reason.NO_FREE_PORT) from None
        if known is None:
            self._ports.reserve(key, port)
        return listener

    def _hold(self, key: Key) -> None:
        """A connection waits, the first in its line."""
        self._dirty.set()
        if not self._ready.get(key):
            self._wake(key)

    def _next_due(self) -> float | None:
        """When to try a port again, report refused connections, or end a hold of requests."""
        now, forwarders = self._clock.monotonic(), self._forwarders.values()
        due = [each.service.hold_until for each in forwarders if each.service.hold_until > now]
        if self._errors or any(each.waiting for each in forwarders):
            due.append(now + RETRY_SECONDS)
        return min(due, default=None)

    def _report_refused(self) -> None:
        for key, forwarder in self._forwarders.items():
            if count := forwarder.take_refused():
                refused = "a connection was" if count == 1 else f"{count} connections were"
                text = f"{refused} refused: no replica was free in time, or too many waited already"
                self._append_event(EngineEvent(key, Reason.CONNECTIONS_REFUSED, text))


def limitations(wanted: WorkloadSpec, service: Service | None, *, split: bool = False) -> Iterator[str]:
    """What a forwarder of connections does not enforce of ``wanted``, which is served as ``service`` if it is.

    ``split``: its requests are to be split by version.
    """
    scale, metric = wanted.options.autoscaling, metric_of(wanted.type, wanted.options)
    scales = not wanted.suspended and scale.min_scale < scale.max_scale
    if metric in NOT_COUNTED and scales:
        yield f"Requests are not counted here: nothing scales by {metric}, and at least one replica stays."
    if metric == "concurrency" and scales:
        yield "Concurrency is the number of open connections: the built-in data plane counts no requests."
    if service is not None and service.no_wake and scale.min_scale == 0:
        yield "The tag reconciler/no-wake is not applied: every connection starts a replica."
    if service is not None and split:
        yield "Requests are not split by version: the built-in data plane forwards connections to all ready replicas."
    if service is not None:
        yield (
            "The endpoint is one port of 127.0.0.1, without host names, TLS, routes, request timeouts and retries: the "
            "built-in data plane forwards connections, while the daemon runs."
        )


def _listener(port: int) -> socket.socket:
    """A socket bound to ``port``. Raises OSError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, port))
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
