"""Keeps the table of routes of a location up to date: from the records, and from the workloads that are served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from reconciler.engines.context import LocationRecords
from reconciler.engines.host.dataplane.certificates.store import Served, without_tls
from reconciler.engines.host.dataplane.routing.domains import KnownDomains
from reconciler.engines.workload.routing.build import (
    GvcRouting,
    RoutingInput,
    ServedWorkload,
    build_table,
)
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
        key, spec = template.desired.key, template.spec
        ports = {port.number: port.protocol for container in spec.containers for port in container.ports}
        first = next((container.ports for container in template.desired.containers if container.ports), ())
        if not first or template.desired.type is Type.CRON:
            self.remove(key)
            return
        ordered = {number: ports.get(number, "http") for number in (first[0], *ports)}
        self._read_gvc(key.gvc, template.env_context.alias)
        served = ServedWorkload(key, ordered, spec.firewall_config.external.inbound_ranges)
        if self._workloads.get(key) != served:
            self._workloads[key], self._table = served, None

    def remove(self, key: Key) -> None:
        """Lead no request to a workload any more."""
        if self._workloads.pop(key, None) is not None:
            self._table = None

    def domains(self) -> Iterator[tuple[Domain, list[Key]]]:
        """The domains that lead to workloads here, with these."""
        return self._domains.leading_to(self._workloads.keys())

    def explain_unserved(self, key: Key, problems: Mapping[str, tuple[str, ...]], served: Served) -> Iterator[str]:
        """A sentence for each of ``problems``, which are by domain, of a domain that leads to the workload ``key``.

        Of host names without TLS, only those of the workload itself count.
        """
        for name, texts in problems.items():
            if self._domains.leads_to(name, key):
                without = served.missing.get(name, ())
                yield from unserved_routes(name, (text for text in texts if text not in without))
                own = lacking_hosts(self.table(), key, served) if without else {}
                yield from unserved_routes(name, without_tls(own))

    def table(self) -> RouteTable:
        """The current table."""
        if self._table is None:
            workloads = tuple(self._workloads.values())
            inputs = RoutingInput(
                self._location, self._endpoint_domain, workloads, dict(self._gvcs), self._domains.all()
            )
            self._table = build_table(inputs)
        return self._table

    def _read_gvc(self, name: str, alias: str) -> None:
        record = self._records.find_shared(Key(Kind.GVC, "", name))
        spec = msgspec.json.decode(record.body, type=Gvc).spec if record is not None else Gvc().spec
        balancer = spec.load_balancer
        routing = GvcRouting(alias, spec.domain, balancer.dedicated, balancer.trusted_proxies)
        if self._gvcs.get(name) != routing:
            self._gvcs[name], self._table = routing, None


def lacking_hosts(table: RouteTable, key: Key, served: Served) -> dict[str, str]:
    """The host names of the workload ``key`` by its domains that have no certificate, each with the reason."""
    hosts = (text.partition("/")[0].partition(":")[0] for text in table.endpoints.get(key, ()))
    return {host: served.lacking[host] for host in hosts if host in served.lacking}


def unserved_routes(name: str, problems: Iterable[str]) -> Iterator[str]:
    """What of the domain ``name`` is not served, and why."""
    for problem in problems:
        yield f"The domain {name} is not served as it is declared: {problem}."


def endpoint_without_tls(problem: str) -> Iterator[str]:
    """Why the endpoint of a workload has no certificate; nothing if it has one."""
    if problem:
        yield f"The endpoint is not served with TLS: {problem}."


def unserved_ingress(dataplane: str) -> Iterator[str]:
    """Why an ingress serves nothing, with the data plane that the location has."""
    if dataplane == "builtin":
        yield "The ingress is not served: install HAProxy 2.6 or newer with Lua, and restart the daemon."
