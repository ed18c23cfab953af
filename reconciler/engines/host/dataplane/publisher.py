"""Publishes what the workloads of a location serve: through its data plane, with the holds of operators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.domain_status import DomainReport
from reconciler.engines.host.dataplane.builtin import BuiltinDataPlane
from reconciler.engines.host.dataplane.certificates.store import Served
from reconciler.engines.host.dataplane.choice import DATAPLANE, end_former, make_dataplane
from reconciler.engines.host.dataplane.domains import DomainFacts, report_domains, report_without_ingress
from reconciler.engines.host.dataplane.error_log import ErrorLog
from reconciler.engines.host.dataplane.ports import ServicePorts
from reconciler.engines.host.dataplane.protocol import DataPlane, PlaneContext, Service, service_of
from reconciler.engines.host.dataplane.secure_routes import SecureRoutes
from reconciler.engines.host.dataplane.split import Splits
from reconciler.engines.host.dataplane.unserved_routes import (
    endpoint_without_tls,
    explain_unserved,
    unserved_ingress,
)
from reconciler.engines.host.logs.collector import Collector
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.workload.routing.domains import KnownDomains
from reconciler.engines.workload.routing.router import Router
from reconciler.engines.workload.routing.table import RouteTable
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.no_wake import NoWake, read_no_wake
from reconciler.model.record import Record
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

HOLD_SECONDS = 10.0
"""The longest wait for a hold to be in force: HAProxy may need a reload for it."""
HOLD_PAUSE = 0.1


class HoldTimes:
    """Until when operators hold the requests of each workload; ``refresh`` reads it from the records."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[Key, tuple[float, float]] = {}
        self._new: dict[Key, float] = {}
        self._dirty = asyncio.Event()

    def refresh(self, records: LocationRecords) -> None:
        """Read all current holds. Raises RecordsError.

        A hold that is known already ends when it would have, even if the wall clock was set since.
        """
        ahead = self._clock.monotonic() - self._clock.now()
        ends, self._ends = self._ends, {}
        for traffic_hold in records.traffic_holds():
            former = ends.get(traffic_hold.key)
            unchanged = former is not None and former[0] == traffic_hold.until
            self._ends[traffic_hold.key] = (
                former if former is not None and unchanged else (traffic_hold.until, traffic_hold.until + ahead)
            )
            if not unchanged:
                self._new[traffic_hold.key] = traffic_hold.until
                self._dirty.set()

    def end(self, key: Key) -> float:
        """The end of the hold of a workload in monotonic seconds, possibly past; 0 without one."""
        return self._ends.get(key, (0.0, 0.0))[1]

    async def confirm(self, synchronize: Callable[[Key], Awaitable[bool]], signals: LocationSignals) -> None:
        """Report each new hold once it is in force, until cancelled.

        ``synchronize`` returns when that is so, with False where the workload is not served.
        """
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            while self._new:
                key, until = self._new.popitem()
                with suppress(EngineError), contain_bugs(f"hold of {key}"):
                    if await synchronize(key):
                        message = f"in force: new requests wait until {format_iso_time(until)}"
                        signals.report(key, Reason.HOLDING_REQUESTS, message)


class ServicePublisher(LocationPart):
    """The services of the location whose directory is ``root``.

    ``collector`` stores the lines about requests that the data plane answers with an error.
    """

    def __init__(
        self,
        site: EngineContext,
        root: Path,
        signals: LocationSignals,
        collector: Collector,
    ) -> None:
        settings = site.settings
        self._errors = ErrorLog(root / DATAPLANE / "errors", collector, site.clock)
        ports = ServicePorts(root / DATAPLANE / "ports.json", settings.host)
        bound = settings.locations.get(site.location)
        ingress = bound.ingress if bound is not None else None
        self._router = Router(site.records, settings.endpoint_domain) if ingress is not None else None
        routes = self._router.table if self._router is not None else RouteTable
        self._certificates: SecureRoutes | None = None
        if ingress is not None:
            self._certificates = SecureRoutes(site, ingress, root / DATAPLANE, signals)
        store = self._certificates.store if self._certificates is not None else None
        hold, log = settings.host.hold, self._errors.write
        context = PlaneContext(ports, hold, site.clock, signals, ingress, routes, log, store)
        self.dataplane: DataPlane = make_dataplane(settings, site.location, root, context)
        self._root = root
        self._records = site.records
        self._signals = signals
        self._problems: Mapping[str, tuple[str, ...]] = {}
        self._holds = HoldTimes(site.clock)
        self._no_wake: dict[Key, NoWake] = {}
        self._services: dict[Key, Service] = {}
        self._domains = KnownDomains(site.records)
        self._splits = Splits(root / DATAPLANE / "splits.json")
        self._clock = site.clock
        self._location = site.location
        # The builtin one serves no domain, and never will.
        self._compared = self.dataplane.name == BuiltinDataPlane.name

    async def open(self, _records: Sequence[Record]) -> None:
        """End what another data plane left running here, and read the holds. Raises RecordsError."""
        end_former(self.dataplane, self._root)
        self._errors.open()
        if self._certificates is not None:
            self._certificates.open(self.dataplane.reroute)
        self.refresh()

    def refresh(self) -> None:
        """Read the holds of operators, the domains and the certificates again; ``want`` applies the holds.

        Raises RecordsError.
        """
        self._holds.refresh(self._records)
        if self._certificates is not None:
            self._certificates.store.refresh_soon()
        if self._router is not None:
            self._router.refresh()
            self.dataplane.reroute()
        else:
            self._domains.refresh()

    def work(self) -> tuple[Coroutine[None, None, None], ...]:
        """What runs until it is cancelled: the data plane, the events of new holds, and the orders of certificates."""
        orders = self._certificates.work() if self._certificates is not None else ()
        return self.dataplane.run(), self._holds.confirm(self._synchronize, self._signals), *orders

    async def close(self) -> None:
        """End the connections that the data plane itself has; addresses stay reserved."""
        await self.dataplane.close()

    def on_serving_change(self) -> None:
        """Report new problems of domains; called first once everything was compared with what is wanted."""
        self._compared = True
        problems, awaited = self.dataplane.route_problems(), self._served_certificates.awaited
        for name, texts in problems.items():
            for text in texts:
                if text not in self._problems.get(name, ()) and text not in awaited:
                    self._signals.report(Key(Kind.DOMAIN, "", name), Reason.ROUTE_NOT_SERVED, text)
        self._problems = problems
        self._signals.report_change()

    def read_manifest(self, key: Key, body: bytes, _revision: str) -> None:
        """Read from the manifest of a workload which requests start no replica."""
        self._no_wake[key] = read_no_wake(body)

    def want(self, template: ReplicaTemplate, spec: WorkloadSpec) -> WorkloadSpec:
        """Serve the workload of ``template`` as it is declared, or not at all if it serves nothing now."""
        key = template.desired.key
        if self._router is not None:
            self._router.serve(template)
            self.dataplane.reroute()
        service = service_of(template.desired, template.spec, self._holds.end(key))
        if service is None:
            self.end(key)
            return spec
        if template.desired.suspended:
            self._services.pop(key, None)
            self.dataplane.suspend(service)
            return spec
        to_zero = template.desired.options.autoscaling.min_scale == 0
        no_wake = self._no_wake[key] if to_zero else NoWake()
        self._services[key] = msgspec.structs.replace(service, no_wake=no_wake, split=self._splits.find(key))
        self.dataplane.publish(self._services[key])
        return spec

    def end(self, key: Key) -> None:
        """Take no new connections for a workload that is suspended or being deleted."""
        self._services.pop(key, None)
        self.dataplane.withdraw(key)

    def forget(self, key: Key) -> None:
        """Release the address of a deleted workload."""
        self._no_wake.pop(key, None)
        self._errors.forget(key)
        self._services.pop(key, None)
        self._splits.release(key)
        self.dataplane.forget(key)
        if self._router is not None:
            self._router.remove(key)
            self.dataplane.reroute()

    def split(self, key: Key, percents: Mapping[int, int] | None) -> None:
        """Give each version of a workload its percent of new clients, as in Service; None ends the split.

        It outlasts the daemon, also while the workload is suspended. Raises ValueError unless the percents are 100
        together, and EngineError.
        """
        self._splits.assign(key, percents)
        if (service := self._services.get(key)) is not None:
            self._services[key] = msgspec.structs.replace(service, split=self._splits.find(key))
            self.dataplane.publish(self._services[key])

    def domain_endpoints(self, key: Key) -> tuple[str, ...]:
        """The addresses of a workload by its domains, such as ``shop.example.com/api``."""
        return self._router.table().endpoints.get(key, ()) if self._router is not None else ()

    def domains(self) -> dict[Key, DomainReport] | None:
        """What is served of the domains that lead to workloads here; None until the data plane has compared it."""
        if self._router is None:
            names = (domain.name for domain, _ in self._domains.leading_to(self._services.keys()))
            return {Key(Kind.DOMAIN, "", name): report_without_ingress(self._location) for name in names}
        if not self._compared:
            return None
        routed = {domain.name: (domain, keys) for domain, keys in self._router.domains()}
        lacking = tuple(unserved_ingress(self.dataplane.name))
        errors = {
            name: (*lacking, *dict.fromkeys(filter(None, map(self.dataplane.error, keys))))
            for name, (_, keys) in routed.items()
        }
        now, problems = self._clock.now(), self.dataplane.route_problems()
        hook = self._certificates is not None and self._certificates.dns_hook
        facts = DomainFacts(
            self._location, now, self._router.table(), self._served_certificates, problems, errors, hook
        )
        reports = report_domains((domain for domain, _ in routed.values()), facts)
        return {Key(Kind.DOMAIN, "", name): report for name, report in reports.items()}

    def address(self, key: Key) -> str:
        """``host:port`` where the workload is served; "" if it is not served."""
        return self.dataplane.address(key)

    def error(self, key: Key) -> str:
        """Why the workload is not served at its address; "" if it is."""
        return self.dataplane.error(key)

    def limitations(self, template: ReplicaTemplate) -> Iterator[str]:
        """A sentence for each wish that the data plane does not enforce."""
        spec = template.desired
        yield from self.dataplane.limitations(spec)
        if self._router is not None:
            yield from unserved_ingress(self.dataplane.name)
            yield from explain_unserved(
                self._router, spec.key, self.dataplane.route_problems(), self._served_certificates
            )
            if (outside := self._router.table().workloads.get(spec.key)) is not None:
                yield from endpoint_without_tls(self._served_certificates.without_domain.get(outside.host, ""))

    @property
    def _served_certificates(self) -> Served:
        """The certificates that were found last; none without an ingress."""
        return self._certificates.store.served if self._certificates is not None else Served()

    async def _synchronize(self, key: Key) -> bool:
        """Return once the data plane holds the requests of a workload; False if it does not serve it as wanted."""
        deadline = self._clock.monotonic() + HOLD_SECONDS
        await self.dataplane.synchronize(key)
        while not self.dataplane.is_on_hold(key) and self._clock.monotonic() < min(deadline, self._holds.end(key)):
            await self._clock.sleep(HOLD_PAUSE)
            await self.dataplane.synchronize(key)
        return self.dataplane.is_on_hold(key) and bool(self.dataplane.address(key)) and not self.dataplane.error(key)
