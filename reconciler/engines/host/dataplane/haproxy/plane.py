"""HAProxy as the data plane of a location: a file with all that is wanted, and a live process that is brought to it.

What the process does is compared with what is wanted after every change and every two seconds, so a lost command, a
crash and an earlier daemon make no difference.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

from reconciler.bugs import contain_bugs
from reconciler.engines.host.controllers.fair_turn import event_or_time
from reconciler.engines.host.dataplane.endpoints import ADDRESS, Endpoint
from reconciler.engines.host.dataplane.haproxy.certificates import LiveCertificates, RouteCertificates
from reconciler.engines.host.dataplane.haproxy.config import (
    LOG_SOCKET,
    OWN,
    ConnectionLimits,
    ProxyOptions,
    backend_name,
    connection_limits,
    decode_key,
    encode_name,
)
from reconciler.engines.host.dataplane.haproxy.desired import DesiredState
from reconciler.engines.host.dataplane.haproxy.discovery import ProxyUnit, Setup
from reconciler.engines.host.dataplane.haproxy.live import LiveServer
from reconciler.engines.host.dataplane.haproxy.log_socket import LogSocket
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.host.dataplane.haproxy.measuring import read_request_counts
from reconciler.engines.host.dataplane.haproxy.program import Program, usable_program
from reconciler.engines.host.dataplane.haproxy.proxy import LiveProxy
from reconciler.engines.host.dataplane.haproxy.rendering.profiles import FEW_WAITING
from reconciler.engines.host.dataplane.haproxy.rendering.render import FILES
from reconciler.engines.host.dataplane.haproxy.routes import RouteServer
from reconciler.engines.host.dataplane.limitations import haproxy_limitations
from reconciler.engines.host.dataplane.protocol import (
    LatencyListener,
    PlaneContext,
    RequestCounts,
    Service,
    Traffic,
    report_refused,
)
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason

COMPARE_SECONDS = 2.0
"""Seconds between two comparisons of the live state with what is wanted."""
LATER_SECONDS = 0.5
"""How much later it compares by itself where counts are read, since each read of these compares too."""
PROVING_SECONDS = 0.05
"""The same while a replica works on its first requests: it gets more than a few only after an answer."""
THREADS = 4
"""The most threads of HAProxy."""
APPLIED_SECONDS = 1.0
"""The longest wait for a change to be in force: HAProxy may be down."""


class HaproxyDataPlane:
    """Serves each workload at its port of ``context.ports``. ``directory`` has the files of HAProxy."""

    name, counted = "haproxy", "request"
    metrics = frozenset({"concurrency", "rps", "latency"})

    def __init__(self, directory: Path, setup: Setup, context: PlaneContext) -> None:
        self._setup = setup
        self._context = context
        self._clock = context.clock
        self._desired = DesiredState(context.ports)
        self._directory = directory
        self._master = Master(directory, self._on_end, ProxyUnit(setup.location, setup.root))
        self._proxy = LiveProxy(self._master, context.clock)
        self._outside = RouteServer(self._master, context.ingress, context.routes)
        self._log = LogSocket(self._desired.services.__contains__, self._on_hold, context.log)
        self._dirty = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._updated: set[Key] = set()
        self._due = self._counted_at = float("-inf")
        self._refused: dict[str, int] = {}
        self._opened = self._crowded = self._full = False
        self._program: Program | None = None
        self._failure = ""
        self._shown: object = None

    async def run(self) -> None:
        """Bring HAProxy to what is wanted, until cancelled."""
        while True:
            self._dirty.clear()
            waiting, self._waiting = self._waiting, []
            try:
                with contain_bugs("data plane"):
                    await self._follow()
            finally:
                # A cancelled future ends the wait of `_wait_until_applied` like a result, also after a failure.
                for future in waiting:
                    future.cancel()
            # A block of its own: after a bug in the comparison, the loop still waits.
            with contain_bugs("data plane"):
                await self._wait()

    async def close(self) -> None:
        """Leave HAProxy alone: it goes on without the daemon."""
        self._log.close()
        self._master.close()
        self._opened = False

    def publish(self, service: Service) -> None:
        """Serve ``service`` at the port of its workload from now on."""
        if self._desired.publish(service):
            self._compare_soon()

    def withdraw(self, key: Key) -> None:
        """Stop listening for ``key``; open requests go on until their replica ends."""
        if self._desired.withdraw(key):
            self._compare_soon()

    def suspend(self, service: Service) -> None:
        """Answer the requests of ``service`` with its suspension; a tcp port takes no connections."""
        if self._desired.suspend(service):
            self._compare_soon()

    def forget(self, key: Key) -> None:
        """Withdraw ``key`` and release its port."""
        self.withdraw(key)
        self._refused.pop(backend_name(key), None)
        self._desired.forget(key)

    def update(self, key: Key, ready: tuple[Endpoint, ...]) -> None:
        """Give new requests of ``key`` to ``ready`` only; ``synchronize`` returns when it is so."""
        self._desired.update(key, ready, self._clock.monotonic())
        self._updated.add(key)
        self._dirty.set()

    def reroute(self) -> None:
        """Bring requests from outside to workloads as the table of routes is now."""
        if self._context.ingress is not None:
            self._compare_soon()

    def route_problems(self) -> Mapping[str, tuple[str, ...]]:
        """Why parts of domains are not served, by the name of the domain."""
        return self._outside.problems

    async def synchronize(self, key: Key) -> None:
        """Return when new requests of ``key`` go to its ready replicas only, or after a second."""
        if key in self._desired.services:
            await self._wait_until_applied()

    def is_on_hold(self, key: Key) -> bool:
        """Whether the hold of a workload is in force: it may need a reload."""
        lua = self._program is not None and self._program.lua
        # Without scripts, the replicas leave by commands instead, and no reload decides.
        return not lua or all(map(self._proxy.is_on_hold, self._desired.names(key)))

    @property
    def routes_in_force(self) -> bool:
        """Whether requests from outside go as the table of routes is now."""
        return self._outside.in_force is self._context.routes()

    def address(self, key: Key) -> str:
        """``127.0.0.1:port`` of a served workload; "" if it is not served."""
        return f"{ADDRESS}:{self._desired.port(key)}" if self._serves(key) else ""

    def error(self, key: Key) -> str:
        """Why the workload is not served as wanted; "" if it is."""
        if key not in self._desired.services:
            return ""
        return self._desired.errors.get(key, self._failure or self._outside.error)

    def limitations(self, spec: WorkloadSpec) -> Iterator[str]:
        """What HAProxy is not used for yet."""
        service = self._desired.services.get(spec.key)
        outside = self._context.ingress is not None
        return haproxy_limitations(service, self._program, outside=outside) if service is not None else iter(())

    async def traffic(self) -> dict[Key, Traffic]:
        """The counts of each workload that scales by requests. Raises EngineError if they are too old, or not all."""
        if not (counted := self._desired.scaled_by_requests()):
            return {}
        self._counted_at = self._clock.monotonic()
        self._compare_soon()
        await self._wait_until_applied()
        # Without the counts of a former worker, its open WebSockets would look closed.
        if self._clock.monotonic() - self._proxy.read_at > 2 * COMPARE_SECONDS or not self._proxy.counts_all:
            raise EngineError("HAProxy shows no counts", reason=Reason.PROXY_FAILED)
        traffics: dict[Key, Traffic] = {}
        for name in counted.keys() & self._proxy.live.keys():
            key, apart = counted[name]
            traffic = self._proxy.traffic(name, apart=apart)
            traffics[key] = traffics[key].plus(traffic) if key in traffics else traffic
        return traffics

    async def count_requests(self) -> dict[Key, RequestCounts]:
        """The counts of all backends. Raises EngineError."""
        return read_request_counts(await self._proxy.show_backends(), self._desired.keys_of_backends)

    def live_servers(self, key: Key) -> dict[str, LiveServer]:
        """The replicas of ``key`` that HAProxy knows, by their encoded names, as it was read last."""
        live_backend = self._proxy.live.get(backend_name(key))
        return (
            {name: server for name, server in live_backend.servers.items() if name not in OWN}
            if live_backend is not None
            else {}
        )

    def open_requests(self, key: Key, replica: str) -> int:
        """The requests that a replica of ``key`` works on, as of the last comparison."""
        return self._proxy.open_requests(self._proxy.backends_of(backend_name(key)), encode_name(replica))

    def listen(self, listener: LatencyListener) -> None:
        """Call ``listener`` for each answered request of a workload that scales by latency."""
        self._log.listen(listener)

    def _serves(self, key: Key) -> bool:
        return key in self._desired.services and self._proxy.serves(backend_name(key), self._desired.port(key))

    def _compare_soon(self) -> None:
        """Compare everything with what is wanted at once, not only what was updated."""
        self._due = float("-inf")
        self._dirty.set()

    async def _wait_until_applied(self) -> None:
        applied = asyncio.get_running_loop().create_future()
        self._waiting.append(applied)
        self._dirty.set()
        await asyncio.wait((applied,), timeout=APPLIED_SECONDS)

    async def _follow(self) -> None:
        """Compare everything if it is time for that; else bring updated workloads to what is wanted."""
        updated, self._updated = self._updated, set()
        if self._clock.monotonic() < self._due:
            await self._apply({name for key in updated for name in self._desired.names(key)})
            return
        self._due = float("inf")
        await self._reconcile()
        # A change that came meanwhile has made it earlier.
        self._due = min(self._due, self._next_due())

    def _next_due(self) -> float:
        now = self._clock.monotonic()
        ends = (service.hold_until for service in self._desired.services.values() if service.hold_until > now)
        counts = now - self._counted_at < 2 * COMPARE_SECONDS
        next_comparison = now + COMPARE_SECONDS + (LATER_SECONDS if counts else 0.0)
        return min(next_comparison, self._proxy.due or float("inf"), *ends)

    async def _wait(self) -> None:
        """Return after a change, or when it is time to compare; see meanwhile whether new replicas answer."""
        while not self._dirty.is_set() and (now := self._clock.monotonic()) < self._due:
            names = self._desired.unproven(self._proxy.live, now)
            await event_or_time(self._dirty, self._clock, min(self._due, now + PROVING_SECONDS) if names else self._due)
            if names and not self._dirty.is_set():
                await self._apply(names, read=True)

    async def _apply(self, names: set[str], *, read: bool = False) -> None:
        """Bring the servers of the backends ``names`` to what is wanted; ``read`` their state before."""
        try:
            if read:
                await self._proxy.read_backends(names)
                self._desired.note_answers(self._proxy.live)
            await self._proxy.send(self._desired.backends(self._proxy.live, self._clock.monotonic(), names))
            if self._desired.note_answers(self._proxy.live):
                # Requests that waited came at once.
                await self._proxy.send(self._desired.backends(self._proxy.live, self._clock.monotonic(), names))
        except EngineError:
            # The comparison reports it.
            self._compare_soon()

    async def _reconcile(self) -> None:
        failure = ""
        try:
            await self._bring()
        except EngineError as error:
            failure = str(error)
        shown = (failure, dict(self._desired.errors), frozenset(self._proxy.live), self._outside.state)
        if shown != self._shown:
            self._failure, self._shown = failure, shown
            self._context.signals.serving_changed()

    async def _bring(self) -> None:
        if not self._opened:
            self._open(await asyncio.to_thread(usable_program))
        self._master.find()
        if not self._desired.is_needed and self._context.ingress is None:
            self._proxy.end()
            return
        self._desired.route((await self._outside.prepare()).workloads)
        now = self._clock.monotonic()
        # Before the read, which takes long with many workloads: a new one is served at once. A process that an earlier
        # daemon left is not known yet, and its ports would seem to be those of another program.
        if self._proxy.bound_ports:
            await self._proxy.introduce(self._desired.lacking(self._proxy.live, now))
        await self._proxy.read(self._desired.scaled_by_requests().keys())
        self._desired.note_answers(self._proxy.live)
        holds = self._desired.holds(now, self._clock.now())
        frontends = self._outside.frontends(self._desired.services.values())
        self._desired.use_bound(self._proxy.bound_ports, self._proxy.listens)
        backends, suspended = self._desired.backends(self._proxy.live, now), self._desired.list_suspended()
        await self._proxy.bring(backends, suspended, holds, frontends)
        await self._outside.bring(complete=self._proxy.current)
        self._report(restarted=self._proxy.take_lost())

    def _open(self, program: Program) -> None:
        """Use ``program``, and what an earlier daemon left running. Raises EngineError."""
        user, self._program = self._setup.user, program
        if not program.lua:
            self._desired.drain_on_hold()
        self._master.open(program.path)
        shared = self._setup.location, self._context.limits, min(os.cpu_count() or 1, THREADS)
        options = ProxyOptions(*shared, program.lua, user, program.runtime, program.version, _compute_limits())
        self._proxy.open(options, self._context.ports.spare)
        log_user = user[0] if user is not None else None
        # Each start brings another process, so the number is asked for each time.
        self._log.open(self._master.socket_path(LOG_SOCKET), log_user, lambda: self._master.pid)
        self._desired.adopt(self._master.config())
        if self._context.certificates is not None and program.tls:
            live = LiveCertificates(self._directory, self._master, self._clock)
            self._outside.secure(RouteCertificates(live, self._context.certificates))
        self._outside.open()
        self._opened = True

    def _report(self, *, restarted: bool) -> None:
        """Wake workloads with requests that wait for the first replica, and append events."""
        waiting = self._proxy.waiting()
        for name in self._proxy.live:
            if waiting.get(name):
                self._on_hold(decode_key(name))
            if (refused := self._proxy.count_refused(name)) != (before := self._refused.get(name)):
                # The first count may be of an earlier daemon: only what is added to it is new.
                self._refused[name] = refused
                self._report_refused(name, refused - before if before is not None else 0)
        self._report_crowd()
        self._report_full()
        for key in self._desired.services if restarted else ():
            text = "HAProxy had ended and was started again: the requests in flight were lost"
            self._context.signals.report(key, Reason.PROXY_RESTARTED, text)

    def _report_crowd(self) -> None:
        """Append an event that names the workload with the most requests that wait, once there are too many."""
        crowded, self._crowded = self._crowded, self._proxy.crowded
        if crowded or not self._crowded:
            return
        key, count = self._busiest(self._proxy.waiting())
        if key is not None:
            text = (
                f"{count} requests wait, the most of all workloads here. HAProxy has so many connections "
                f"that only {FEW_WAITING} requests of each may wait for now"
            )
            self._context.signals.report(key, Reason.MANY_REQUESTS_WAIT, text)

    def _report_full(self) -> None:
        """Append an event that names the workload with the most connections, once there is hardly room for others."""
        is_full, self._full = self._full, self._proxy.full
        if is_full or not self._full:
            return
        key, count = self._busiest({name: backend.open for name, backend in self._proxy.live.items()})
        if key is not None:
            text = (
                f"{count} requests and connections are open, the most of all workloads here. HAProxy has hardly "
                f"room for others, so no workload gets more than {self._proxy.limits.share} for now"
            )
            self._context.signals.report(key, Reason.MANY_CONNECTIONS, text)

    def _busiest(self, counts: Mapping[str, int]) -> tuple[Key | None, int]:
        """The workload of the highest of ``counts``, which are by backend, and that count; None if none is served."""
        name = max(counts, key=counts.__getitem__, default="")
        count = counts.get(name, 0)
        key = decode_key(name) if count else None
        return (key if key in self._desired.services else None), count

    def _report_refused(self, name: str, count: int) -> None:
        key = decode_key(name)
        # A new process counts from 0 again, so the difference can be below 0.
        if count > 0 and key in self._desired.services:
            report_refused(self._context.signals, key, "request", count)

    def _on_hold(self, key: Key) -> None:
        # Requests wait beside busy replicas too: those are a matter of autoscaling.
        if key in self._desired.services and self._desired.is_empty(key):
            self._context.signals.wake(key)

    def _on_end(self) -> None:
        self._compare_soon()


def _compute_limits() -> ConnectionLimits:
    # HAProxy raises its soft limit to what it needs, so the hard one decides.
    return connection_limits(min(FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
