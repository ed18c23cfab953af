"""What a data plane is: it gives each workload one address, and brings what arrives there to the ready replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.autoscaling.decide import scales_by_requests
from reconciler.engines.host.dataplane.certificates.store import CertificateStore
from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.engines.host.dataplane.ports import ServicePorts
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.workload.routing.table import Outside, RouteTable
from reconciler.engines.workload.spec import Type, WorkloadSpec
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Specification, metric_of
from reconciler.model.no_wake import NoWake
from reconciler.reasons import Reason
from reconciler.settings import HoldSettings, IngressSettings

UNPROVEN = 10
"""The most requests of a replica that has not answered yet: all that waited would else reach it at once."""


class Service(msgspec.Struct, frozen=True):
    """What a workload serves: its first declared port, and how many requests one replica may have at once (0: any).

    Until ``hold_until`` (monotonic seconds) no replica gets new requests: they wait, as if no replica were ready, and
    ``host.hold.seconds`` begin at that time. Without another call, they continue then. 0: nothing is held.

    The rest is for a data plane that sees requests: the seconds until the response, the number of retries and the
    failures for them, whether a response names its replica on demand, whether latency is measured, and whether the
    number of replicas depends on its traffic.

    ``outside`` is how it takes requests from outside, None where the location has no ingress.

    ``split`` gives versions their percents of new clients; others return to their version. One that is not named, or
    has 0, gets no requests. Without a split, all replicas get requests.

    Requests that match ``no_wake`` start no replica: without a ready one they are refused at once. They count as no
    traffic, as far as the data plane can separate them, so that monitoring keeps no replica running.
    """

    key: Key
    port: int
    protocol: str = "http"
    max_concurrency: int = 0
    hold_until: float = 0.0
    timeout_seconds: int = 5
    retries: int = 2
    retry_on: tuple[str, ...] = ("connect-failure",)
    debug: bool = False
    measures_latency: bool = False
    scales_by_requests: bool = True
    no_wake: NoWake = NoWake()
    outside: Outside | None = None
    split: tuple[tuple[int, int], ...] = ()

    def limit(self, *, proven: bool) -> int:
        """How many requests a replica may have at once, which has answered some if ``proven``; 0: any number."""
        return self.max_concurrency or (0 if proven else UNPROVEN)


class Traffic(msgspec.Struct, frozen=True, gc=False):
    """The requests of one workload, as a data plane has counted them; connections where it sees no requests.

    ``arrived`` counts all that came so far, waiting ones included; it may begin at 0 again when the proxy restarts.
    ``active`` is how many the replicas work on now, ``waiting`` how many wait for a replica now. ``active_seconds`` is
    the sum of the seconds in which each of them was active, if the data plane knows it: ``active`` over time.
    """

    arrived: int
    active: int
    waiting: int = 0
    active_seconds: float | None = None

    def plus(self, other: Traffic) -> Traffic:
        """The counts of both together."""
        arrived, active = self.arrived + other.arrived, self.active + other.active
        return Traffic(arrived, active, self.waiting + other.waiting)


LatencyListener = Callable[[Key, str, float], None]
"""Takes the workload and the name of the replica that answered a request, and the milliseconds until the response."""


class RequestCounts(msgspec.Struct, frozen=True, gc=False):
    """The requests of a workload so far, or connections; the count may begin at 0 again, as that of Traffic.

    What they took is known by ``active_seconds``, as in Traffic, or as the mean ``latency`` of the last ones in
    milliseconds; None where it is not.
    """

    arrived: int
    active_seconds: float | None = None
    latency: float | None = None

    def plus(self, other: RequestCounts) -> RequestCounts:
        """The counts of two backends together; their latency by what came."""
        arrived = self.arrived + other.arrived
        weighed = (self.latency or 0.0) * self.arrived + (other.latency or 0.0) * other.arrived
        return RequestCounts(arrived, None, weighed / arrived if arrived else None)


class PlaneContext(msgspec.Struct, frozen=True):
    """What a data plane gets from its location.

    ``routes`` returns the table for requests from outside, which arrive at ``ingress``, if it is set; ``certificates``
    are those of its host names. ``log`` takes a workload and a line of its log.
    """

    ports: ServicePorts
    limits: HoldSettings
    clock: Clock
    signals: LocationSignals
    ingress: IngressSettings | None = None
    routes: Callable[[], RouteTable] = RouteTable
    log: Callable[[Key, str], None] = lambda _key, _line: None
    certificates: CertificateStore | None = None


class DataPlane(Protocol):
    """Serves the workloads of one location, and counts their requests; ``counted`` names what else it counts.

    ``metrics`` are the metrics of autoscaling that its counts suffice for: ``concurrency`` needs ``active``, ``rps``
    needs an ``arrived`` that counts requests, and ``latency`` needs calls of a LatencyListener.
    """

    name: str
    metrics: frozenset[str]
    counted: str

    async def run(self) -> None:
        """Serve until cancelled."""

    async def close(self) -> None:
        """End the connections that are left; addresses stay reserved."""

    def publish(self, service: Service) -> None:
        """Serve ``service`` at the address of its workload from now on."""

    def withdraw(self, key: Key) -> None:
        """Take no new connections for a workload that is suspended or being deleted; its address stays reserved."""

    def suspend(self, service: Service) -> None:
        """Serve ``service`` no longer. Where requests are seen, each gets an answer that names the suspension."""
        self.withdraw(service.key)

    def forget(self, key: Key) -> None:
        """Release the address of a deleted workload."""

    def update(self, key: Key, ready: tuple[Endpoint, ...]) -> None:
        """Set the ready replicas of a workload; they are in force when ``synchronize`` returns."""

    def reroute(self) -> None:
        """Bring requests from outside to workloads as the table of routes is now; nothing where no host is served."""
        return

    async def synchronize(self, key: Key) -> None:  # noqa: ARG002 - the default needs none
        """Return when new requests of a workload go to its ready replicas and to no other, or after a second.

        The termination of a replica begins after that. Nothing to do where ``update`` is in force when it returns.
        """
        return

    def is_on_hold(self, key: Key) -> bool:  # noqa: ARG002 - the default needs none
        """Whether the hold of a workload is in force, once ``synchronize`` has returned."""
        return True

    def open_requests(self, key: Key, replica: str) -> int:
        """The requests that a replica of ``key`` works on, as far as that is known: some seconds ago."""

    def address(self, key: Key) -> str:
        """``host:port`` where the workload is served; "" if it is not served."""

    def error(self, key: Key) -> str:
        """Why the workload is not served at its address; "" if it is."""

    def route_problems(self) -> Mapping[str, tuple[str, ...]]:
        """Why parts of domains are not served, by the name of the domain; none where no host is served."""
        return {}

    def limitations(self, spec: WorkloadSpec) -> Iterable[str]:
        """A sentence for each part of ``spec`` that this data plane does not enforce."""

    async def traffic(self) -> Mapping[Key, Traffic]:
        """The counts of all served workloads that scale by requests; called every 2 seconds. Raises EngineError.

        A workload that is missing, like an error, means that its traffic is unknown, not that there is none.
        """

    async def count_requests(self) -> Mapping[Key, RequestCounts]:
        """The counts of all served workloads, for people; called every minute. Raises EngineError."""
        traffics = await self.traffic()
        return {key: RequestCounts(each.arrived, each.active_seconds) for key, each in traffics.items()}

    def listen(self, listener: LatencyListener) -> None:  # noqa: ARG002 - the default needs none
        """Call ``listener`` for every answered request from now on, if this data plane measures latency."""
        return


def report_refused(signals: LocationSignals, key: Key, what: str, count: int) -> None:
    """Report ``count`` requests of a workload, or whatever the data plane counts, that got no replica."""
    text = f"{format_count(what, count)} refused: no replica was free in time, or too many waited or were open already"
    signals.report(key, Reason.CONNECTIONS_REFUSED, text)


def format_count(what: str, count: int) -> str:
    """A count of requests, or whatever a data plane counts, as the begin of a sentence: ``3 requests were``."""
    return f"a {what} was" if count == 1 else f"{count} {what}s were"


def service_of(workload_spec: WorkloadSpec, spec: Specification, hold_until: float = 0.0) -> Service | None:
    """What the workload serves, or would if it was not suspended; None if it has no port or runs on a schedule.

    Endpoints lead to the first port of the first container (docs/platform/workload.md#endpoints). ``hold_until`` is as
    in Service.
    """
    ports = next((container.ports for container in workload_spec.containers if container.ports), ())
    if not ports or workload_spec.type is Type.CRON:
        return None
    protocols = {port.number: port.protocol for container in spec.containers for port in container.ports}
    retry = spec.request_retry_policy
    return Service(
        workload_spec.key,
        ports[0],
        protocols.get(ports[0], "http"),
        workload_spec.options.autoscaling.max_concurrency,
        hold_until,
        workload_spec.options.timeout_seconds,
        retry.attempts,
        tuple(sorted(retry.retry_on)),
        workload_spec.options.debug,
        metric_of(workload_spec.type, workload_spec.options) == "latency",
        scales_by_requests(workload_spec),
    )
