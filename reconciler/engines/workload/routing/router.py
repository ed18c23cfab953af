"""Keeps the table of routes of a location up to date: from the records, and from the workloads that are served."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reconciler.engines.context import LocationRecords
from reconciler.engines.workload.routing.build import (
    GvcRouting,
    RoutingInput,
    ServedWorkload,
    build_table,
)
from reconciler.engines.workload.routing.domains import KnownDomains
from reconciler.engines.workload.routing.table import RouteTable
from reconciler.engines.workload.spec import Type
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import Domain
from reconciler.model.kinds.gvc import Gvc


class Router:
    """The routes of ``location``. The table is built when it is needed, and the same object until something changes."""

    def __init__(self, records: LocationRecords, endpoint_domain: str) -> None:
        self._records = records
        self._location = records.location
        self._endpoint_domain = endpoint_domain
        self._workloads: dict[Key, ServedWorkload] = {}
        self._gvcs: dict[str, GvcRouting] = {}
        self._domains = KnownDomains(records)
        self._table: RouteTable | None = None

    def refresh(self) -> None:
        """Read the domains again; only changed ones are decoded. Raises RecordsError."""
        if self._domains.refresh():
            self._table = None

    def serve(self, template: ReplicaTemplate) -> None:
        """Lead requests to the workload of ``template`` from now on, if it serves any. Raises RecordsError."""
        key = template.desired.key
        served = read_served(template)
        if served is None:
            self.remove(key)
            return
        routing = read_gvc_routing(self._records, key.gvc, template.env_context.alias)
        if self._gvcs.get(key.gvc) != routing:
            self._gvcs[key.gvc], self._table = routing, None
        if self._workloads.get(key) != served:
            self._workloads[key], self._table = served, None

    def remove(self, key: Key) -> None:
        """Lead no request to a workload any more."""
        if self._workloads.pop(key, None) is not None:
            self._table = None

    def domains(self) -> Iterator[tuple[Domain, list[Key]]]:
        """The domains that lead to workloads here, with these."""
        return self._domains.leading_to(self._workloads.keys())

    def leads_to(self, name: str, key: Key) -> bool:
        """Whether the domain ``name`` leads to the workload ``key``."""
        return self._domains.leads_to(name, key)

    def table(self) -> RouteTable:
        """The current table."""
        if self._table is None:
            workloads = tuple(self._workloads.values())
            inputs = RoutingInput(
                self._location, self._endpoint_domain, workloads, dict(self._gvcs), self._domains.all()
            )
            self._table = build_table(inputs)
        return self._table


def read_served(template: ReplicaTemplate) -> ServedWorkload | None:
    """What the workload of ``template`` serves; None if it takes no requests."""
    desired, spec = template.desired, template.spec
    ports = {port.number: port.protocol for container in spec.containers for port in container.ports}
    first = next((container.ports for container in desired.containers if container.ports), ())
    if not first or desired.type is Type.CRON:
        return None
    ordered = {number: ports.get(number, "http") for number in (first[0], *ports)}
    return ServedWorkload(desired.key, ordered, spec.firewall_config.external.inbound_ranges)


def read_gvc_routing(records: LocationRecords, gvc: str, alias: str) -> GvcRouting:
    """What a GVC declares for requests from outside. Raises RecordsError."""
    record = records.find_shared(Key(Kind.GVC, "", gvc))
    spec = msgspec.json.decode(record.body, type=Gvc).spec if record is not None else Gvc().spec
    balancer = spec.load_balancer
    return GvcRouting(alias, spec.domain, balancer.dedicated, balancer.trusted_proxies)
