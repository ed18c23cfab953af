"""What a location reports about the domains that lead to its workloads: where they answer, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from reconciler.engines.domain_status import DomainCondition, DomainEndpoint, DomainReport
from reconciler.engines.host.dataplane.certificates.selection import expires_soon
from reconciler.engines.host.dataplane.certificates.store import Served
from reconciler.engines.workload.routing.table import HTTP, HTTPS, RouteTable, Site
from reconciler.model.kinds.domain import Domain
from reconciler.reasons import ConditionType, Reason
from reconciler.times import format_iso_time


class DomainFacts(msgspec.Struct, frozen=True):
    """All that the reports of a location are made of; ``now`` is in seconds of the epoch.

    ``problems`` are why parts of domains are not served, ``errors`` why their workloads are not, both by domain. With
    ``dns_hook``, an authority can check records of DNS.
    """

    location: str
    now: float
    table: RouteTable = RouteTable()
    served: Served = Served()
    problems: Mapping[str, tuple[str, ...]] = {}
    errors: Mapping[str, tuple[str, ...]] = {}
    dns_hook: bool = False


def report_domains(domains: Iterable[Domain], facts: DomainFacts) -> dict[str, DomainReport]:
    """The report about each of ``domains``, by name."""
    if not (requested := tuple(domains)):
        # The table of a location with many workloads is long, and this is asked after every change.
        return {}
    sites = {site.id: site for site in facts.table.sites}
    hosts: dict[str, list[tuple[str, Site]]] = {}
    for address, entry in facts.table.hosts.items():
        host, site = address.rpartition(":")[0], sites.get(entry.site)
        if site is not None and host != "*":
            hosts.setdefault(site.domain, []).append((f"*{host}" if host.startswith(".") else host, site))
    return {domain.name: _make_report(domain, hosts.get(domain.name, []), facts) for domain in requested}


def report_without_ingress(location: str) -> DomainReport:
    """The report about a domain that leads to workloads at a location without an ingress."""
    message = (
        "no location with its workloads has an ingress, which takes requests by host name: set "
        "`locations.NAME.ingress` in the settings"
    )
    condition = DomainCondition(ConditionType.NOT_SERVED, Reason.ROUTE_NOT_SERVED, message)
    return DomainReport(location, conditions=(condition,), ingress=False)


def _make_report(domain: Domain, hosts: list[tuple[str, Site]], facts: DomainFacts) -> DomainReport:
    endpoints = [endpoint for host, site in hosts if (endpoint := _make_endpoint(host, site, facts.served)) is not None]
    streams = (stream for stream in facts.table.streams if stream.domain == domain.name)
    endpoints += (DomainEndpoint(f"tcp://{domain.name}:{stream.number}") for stream in streams)
    conditions = _list_conditions(domain, sorted({host for host, _ in hosts}), facts)
    return DomainReport(facts.location, tuple(sorted(set(endpoints))), tuple(conditions))


def _make_endpoint(host: str, site: Site, served: Served) -> DomainEndpoint | None:
    """Where a host name of ``site`` answers; None if only TLS is permitted there, and it has no certificate."""
    port = "" if site.number in (HTTP, HTTPS) else f":{site.number}"
    if not site.secure:
        return DomainEndpoint(f"http://{host}{port}")
    if (match := served.certificates.get(host)) is not None:
        return DomainEndpoint(f"https://{host}{port}", format_iso_time(match.certificate.not_after))
    # Port 80 serves the routes of 443 too.
    plain = site.number == HTTPS and site.tls.client_certificate is None
    return DomainEndpoint(f"http://{host}") if plain else None


def _list_conditions(domain: Domain, hosts: list[str], facts: DomainFacts) -> Iterator[DomainCondition]:
    served, name = facts.served, domain.name
    unverified = served.unverified.get(name, "")
    without_tls = served.missing.get(name, ())
    parts = [text for text in facts.problems.get(name, ()) if text not in without_tls]
    conditions = {
        (ConditionType.NOT_SERVED, Reason.ROUTE_NOT_SERVED): [*facts.errors.get(name, ()), *parts],
        (ConditionType.NOT_VERIFIED, Reason.NOT_VERIFIED): [unverified],
        # A domain that is not verified has no certificate for that reason.
        (ConditionType.CERTIFICATE_MISSING, Reason.CERTIFICATE_MISSING): [
            text for text in without_tls if not unverified or unverified not in text
        ],
        (ConditionType.CERTIFICATE_EXPIRING, Reason.CERTIFICATE_EXPIRING): _describe_expiring_certificates(
            hosts, served, facts.now
        ),
    }
    for (kind, reason), texts in conditions.items():
        if message := "; ".join(filter(None, texts)):
            yield DomainCondition(kind, reason, message)
    if message := " ".join(list_limitations(domain, dns_hook=facts.dns_hook)):
        yield DomainCondition(ConditionType.NOT_ENFORCED, Reason.NOT_ENFORCED, message)


def _describe_expiring_certificates(hosts: list[str], served: Served, now: float) -> Iterator[str]:
    """A text for each certificate that expires soon or was not renewed, with its hosts."""
    expirations: dict[tuple[float, str], list[str]] = {}
    for host in hosts:
        match, problem = served.certificates.get(host), served.not_renewed.get(host, "")
        if match is not None and (problem or expires_soon(match.certificate, now)):
            expirations.setdefault((match.certificate.not_after, problem), []).append(host)
    for (end, problem), names in sorted(expirations.items()):
        renewal = f", and could not be renewed: {problem}" if problem else ""
        yield f"the certificate for {', '.join(names)} expires at {format_iso_time(end)}{renewal}"


def list_limitations(domain: Domain, *, dns_hook: bool = False) -> Iterator[str]:
    """A sentence for each part of ``domain`` that the ingress does not enforce."""
    if domain.spec.cert_challenge_type == "dns01" and not dns_hook:
        yield "certChallengeType dns01 has no effect: certificates are ordered with http01, for no wildcard names."
    if domain.spec.dns_mode == "ns":
        yield "dnsMode ns has no effect: this program is no name server."
