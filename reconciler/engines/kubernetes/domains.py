"""What a cluster reports about the domains that lead to its workloads: where they answer, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler.engines.domain_status import DomainCondition, DomainEndpoint, DomainReport
from reconciler.engines.kubernetes.client.objects import HTTP_ROUTE, INGRESS
from reconciler.engines.kubernetes.desired import DesiredObjects
from reconciler.engines.kubernetes.mirror import ClusterMirror
from reconciler.engines.kubernetes.status.readiness import ReadinessState, compute_readiness
from reconciler.engines.workload.routing.table import HTTP, HTTPS, RouteTable
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import Domain
from reconciler.reasons import ConditionType, Reason


def report_domains(
    location: str, workloads: Iterable[Key], desired: DesiredObjects, mirror: ClusterMirror
) -> Mapping[Key, DomainReport]:
    """The report about each domain that leads to one of ``workloads``."""
    reports = {}
    for domain, keys in desired.list_domains(set(workloads)):
        problems = [] if desired.serves_hosts else [_explain_no_ingress(location)]
        endpoints: set[DomainEndpoint] = set()
        for key in keys:
            endpoints |= set(_list_endpoints(domain, desired.table_of(key)))
            problems += _list_faults(key, mirror)
        message = "; ".join(dict.fromkeys(problems))
        conditions = (DomainCondition(ConditionType.NOT_SERVED, Reason.ROUTE_NOT_SERVED, message),) if message else ()
        served = tuple(sorted(endpoints)) if desired.serves_hosts else ()
        reports[Key(Kind.DOMAIN, "", domain.name)] = DomainReport(
            location, served, conditions, ingress=desired.serves_hosts
        )
    return reports


def _explain_no_ingress(location: str) -> str:
    return (
        f"the cluster of {location} takes no requests by host name: set `locations.{location}.cluster.gateway` or "
        "`cluster.ingressClass` in the settings"
    )


def _list_endpoints(domain: Domain, table: RouteTable) -> Iterable[DomainEndpoint]:
    sites = {site.id: site for site in table.sites if site.domain == domain.name}
    for address, entry in table.hosts.items():
        host, site = address.rpartition(":")[0], sites.get(entry.site)
        if site is None or host == "*":
            continue
        name = f"*{host}" if host.startswith(".") else host
        port = "" if site.number in (HTTP, HTTPS) else f":{site.number}"
        yield DomainEndpoint(f"{'https' if site.secure else 'http'}://{name}{port}")


def _list_faults(key: Key, mirror: ClusterMirror) -> Iterable[str]:
    """Why a route of a workload is not served, in the words of the cluster."""
    for item in mirror.of_key(key):
        if item.id.kind in (HTTP_ROUTE, INGRESS):
            readiness = compute_readiness(item.decode())
            if readiness.state is ReadinessState.FAILED:
                yield f"{item.id}: {readiness.message}"
