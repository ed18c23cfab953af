"""Builds the table of routes from the domains, GVCs and workloads that are applied at a location."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from reconciler.engines.workload.routing.table import (
    HTTP,
    HTTPS,
    HostEntry,
    Outside,
    RouteRule,
    RouteTable,
    RouteTarget,
    Site,
    Stream,
    normalize_host,
)
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import Domain, Port, Route


class GvcRouting(msgspec.Struct, frozen=True):
    """What a GVC declares for requests from outside."""

    alias: str
    domain: str = ""
    dedicated: bool = False
    trusted_proxies: int = 0


class ServedWorkload(msgspec.Struct, frozen=True):
    """A workload that serves requests: the protocols of its declared ports by number, its first port first."""

    key: Key
    ports: Mapping[int, str]
    inbound: tuple[str, ...] = ()


class RoutingInput(msgspec.Struct, frozen=True):
    """All that the table is built from. GVCs are by name, domains in any order."""

    location: str
    endpoint_domain: str
    workloads: tuple[ServedWorkload, ...] = ()
    gvcs: Mapping[str, GvcRouting] = {}
    domains: tuple[Domain, ...] = ()


def build_table(inputs: RoutingInput) -> RouteTable:
    """The table of routes. The same input gives the same table, in any order of its parts.

    Of two that claim one host name, the endpoints of workloads come first, then domains by name, then the deprecated
    ``domain`` of a GVC; the other gets a problem.
    """
    return _Builder(inputs).build()


class _Builder:
    def __init__(self, inputs: RoutingInput) -> None:
        self._inputs = inputs
        self._workloads = {workload.key: workload for workload in inputs.workloads}
        self._members: dict[str, list[Key]] = {}
        for key in sorted(self._workloads):
            self._members.setdefault(key.gvc, []).append(key)
        self._hosts: dict[str, HostEntry] = {}
        self._sites: list[Site] = []
        self._rules: list[RouteRule] = []
        self._mapped: set[str] = set()
        self._streams: dict[int, Stream] = {}
        self._problems: dict[str, list[str]] = {}
        self._endpoints: dict[Key, list[str]] = {}

    def build(self) -> RouteTable:
        for key in sorted(self._workloads):
            self._add_own(key)
        for domain in sorted(self._inputs.domains, key=lambda domain_entry: domain_entry.name):
            for port in domain.spec.ports or (Port(),):
                self._add_port(domain, port)
        for name, gvc in sorted(self._inputs.gvcs.items()):
            if (base := normalize_host(gvc.domain)) is not None:
                for key in self._members.get(name, ()):
                    self._claim(base, f"{key.name}.{base}", HTTPS, HostEntry("", RouteTarget(key)))
        return RouteTable(
            self._hosts,
            tuple(self._sites),
            tuple(self._rules),
            frozenset(self._mapped),
            tuple(self._streams[number] for number in sorted(self._streams)),
            {name: tuple(dict.fromkeys(texts)) for name, texts in sorted(self._problems.items())},
            {key: tuple(dict.fromkeys(texts)) for key, texts in self._endpoints.items()},
            self._outsides(),
        )

    def _outsides(self) -> dict[Key, Outside]:
        """How each workload takes requests, with the sites and rules that lead to it."""
        rules: dict[Key, list[RouteRule]] = {}
        used: dict[Key, set[str]] = {}
        for route_rule in self._rules:
            rules.setdefault(route_rule.target.key, []).append(route_rule)
            used.setdefault(route_rule.target.key, set()).add(route_rule.site)
        for entry in self._hosts.values():
            if entry.target is not None and entry.site:
                used.setdefault(entry.target.key, set()).add(entry.site)
        ports: dict[Key, set[int]] = {}
        targets = [*(rule.target for rule in self._rules), *(stream.target for stream in self._streams.values())]
        for target in targets:
            if target.port:
                ports.setdefault(target.key, set()).add(target.port)
        sites = {site.id: site for site in self._sites}
        outsides = {}
        for key, served in self._workloads.items():
            if (gvc := self._inputs.gvcs.get(key.gvc)) is not None:
                host = f"{key.name}-{gvc.alias}.{self._inputs.endpoint_domain}"
                mine = tuple(sites[text] for text in sorted(used.get(key, ())) if text in sites)
                more = tuple((number, served.ports[number]) for number in sorted(ports.get(key, ())))
                outsides[key] = Outside(
                    host, served.inbound, gvc.trusted_proxies, mine, tuple(rules.get(key, ())), more
                )
        return outsides

    def _add_own(self, key: Key) -> None:
        """The canonical endpoint, and that of the location."""
        gvc, inputs = self._inputs.gvcs.get(key.gvc), self._inputs
        if gvc is None or self._protocol(RouteTarget(key)) == "tcp":
            return
        host, entry = f"{key.name}-{gvc.alias}", HostEntry("", RouteTarget(key))
        for base in (inputs.endpoint_domain, f"{inputs.location}.{inputs.endpoint_domain}"):
            self._hosts.setdefault(f"{host}.{base.lower()}:{HTTPS}", entry)

    def _add_port(self, domain: Domain, port: Port) -> None:
        if port.protocol == "tcp":
            self._add_stream(domain, port)
            return
        spec, name = domain.spec, domain.name
        site = _build_site(domain, port)
        entries = list(self._entries(domain, port, site))
        if not entries:
            return
        self._sites.append(site)
        for host, entry in entries:
            self._claim(name, host, port.number, entry)
            if entry.target is not None:
                self._note(entry.target.key, host.removeprefix("."), port.number)
        if spec.accept_all_hosts and len(entries) == 1:
            self._claim(name, "*", port.number, entries[0][1])
        elif spec.accept_all_hosts:
            self._problem(name, "acceptAllHosts has no effect on a domain of a GVC: a request names no workload")
        if spec.accept_all_subdomains:
            for host, entry in entries:
                self._claim(name, f".{host}", port.number, entry)

    def _entries(self, domain: Domain, port: Port, site: Site) -> Iterator[tuple[str, HostEntry]]:
        """The host names of a port of ``domain``, with their entries."""
        spec = domain.spec
        if spec.gvc_link:
            for key in self._members.get(linked_gvc(spec.gvc_link), ()):
                if self._protocol(RouteTarget(key)) != "tcp":
                    yield f"{key.name}.{domain.name}", HostEntry(site.id, RouteTarget(key))
        elif spec.workload_link:
            target = RouteTarget(linked_workload(spec.workload_link))
            if self._is_served(domain.name, target):
                yield domain.name, HostEntry(site.id, target)
        elif rules := list(self._routes(domain.name, port, site.id)):
            self._rules += _sort_rules(rules)
            if not any(rule.prefix is not None and _has_host(rule) for rule in rules):
                self._mapped.add(site.id)
            for route_rule in rules:
                self._note(route_rule.target.key, domain.name, port.number, route_rule.prefix or "")
            yield domain.name, HostEntry(site.id)

    def _routes(self, name: str, port: Port, site: str) -> Iterator[RouteRule]:
        for number, route in enumerate(port.routes):
            target = self._target(route.workload_link, route.port)
            if not self._is_served(name, target):
                continue
            if route.regex is not None and route.replace_prefix is not None:
                self._problem(name, f"route {number + 1} of port {port.number}: replacePrefix has no effect on a regex")
            yield _build_rule(f"{site}/{number}", site, target, route)

    def _add_stream(self, domain: Domain, port: Port) -> None:
        """A tcp port: all its connections go to one workload, since they carry no host name."""
        links = [link for link in (domain.spec.workload_link, *(route.workload_link for route in port.routes)) if link]
        if not links:
            self._problem(domain.name, f"tcp port {port.number} needs a workloadLink or a route: no workload is named")
            return
        target = self._target(links[0], port.routes[0].port if port.routes else 0)
        if target.key not in self._workloads:
            return
        gvc = self._inputs.gvcs.get(target.key.gvc)
        if gvc is None or not gvc.dedicated:
            what = f"tcp port {port.number} needs `loadBalancer: {{dedicated: true}}` in the GVC {target.key.gvc}"
            self._problem(domain.name, what)
        elif port.number in (HTTP, HTTPS):
            self._problem(domain.name, f"port {port.number} of the ingress takes http only: choose another for tcp")
        elif (other := self._streams.get(port.number)) is not None:
            self._problem(domain.name, f"tcp port {port.number} is that of the domain {other.domain} already")
        elif self._protocol(target) != "tcp":
            self._problem(domain.name, f"tcp port {port.number} leads to a port of {target.key} that is not tcp")
        else:
            self._streams[port.number] = Stream(port.number, target, domain.name)
            self._note(target.key, domain.name, port.number)

    def _target(self, link: str, port: int) -> RouteTarget:
        key = linked_workload(link)
        served = self._workloads.get(key)
        return RouteTarget(key, 0 if served is not None and port == next(iter(served.ports)) else port)

    def _is_served(self, name: str, target: RouteTarget) -> bool:
        """Whether ``target`` serves http here; if it could not anywhere, ``name`` gets a problem."""
        served = self._workloads.get(target.key)
        if served is None:
            return False
        if target.port and target.port not in served.ports:
            self._problem(name, f"{target.key} declares no port {target.port}")
            return False
        if self._protocol(target) == "tcp":
            self._problem(name, f"{target.key} speaks tcp, not http: give the domain a port with the protocol tcp")
            return False
        return True

    def _protocol(self, target: RouteTarget) -> str:
        ports = self._workloads[target.key].ports
        return ports.get(target.port or next(iter(ports)), "http")

    def _claim(self, name: str, host: str, number: int, entry: HostEntry) -> None:
        holder = self._hosts.setdefault(f"{host}:{number}", entry)
        if holder is not entry:
            owner = holder.site.partition(":")[0] or (holder.target.key if holder.target is not None else "")
            self._problem(name, f"the host name {host} at port {number} is that of {owner} already")

    def _note(self, key: Key, host: str, number: int, path: str = "") -> None:
        port_suffix = "" if number in (HTTP, HTTPS) else f":{number}"
        self._endpoints.setdefault(key, []).append(f"{host}{port_suffix}{path if path != '/' else ''}")

    def _problem(self, name: str, text: str) -> None:
        self._problems.setdefault(name, []).append(text)


def _build_site(domain: Domain, port: Port) -> Site:
    name, dns = domain.name, domain.spec.cert_challenge_type == "dns01"
    secure = port.number != HTTP and (port.number == HTTPS or port.protocol == "http2" or port.tls.is_customized)
    cors = port.cors if port.cors.allow_origins else None
    return Site(f"{name}:{port.number}", name, port.number, secure, port.protocol == "http2", cors, port.tls, dns)


def _build_rule(identity: str, site: str, target: RouteTarget, route: Route) -> RouteRule:
    prefix = route.prefix if route.regex is None else None
    return RouteRule(
        identity,
        site,
        target,
        prefix,
        route.regex,
        route.host_prefix,
        route.host_regex,
        route.replace_prefix if prefix is not None else None,
        tuple(sorted(route.headers.request.set.items())),
    )


def _sort_rules(rules: Iterable[RouteRule]) -> list[RouteRule]:
    """Rules in order: expressions as in the manifest, then the longest prefix; a host name comes before none."""
    return sorted(rules, key=lambda rule: (rule.prefix is not None, -len(rule.prefix or ""), not _has_host(rule)))


def _has_host(rule: RouteRule) -> bool:
    return rule.host_prefix is not None or rule.host_regex is not None


def linked_gvc(link: str) -> str:
    """The name of the GVC in a link in normal form; "" without a link."""
    return link.partition("/gvc/")[2].partition("/")[0]


def linked_workload(link: str) -> Key:
    """The workload that a link in normal form leads to."""
    return Key(Kind.WORKLOAD, linked_gvc(link), link.rpartition("/")[2])
