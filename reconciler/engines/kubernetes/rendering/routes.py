"""Which requests from outside lead to a workload: host names, paths, and what is changed in them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from reconciler.engines.kubernetes.rendering.inputs import WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import domain_route_name, endpoint_route_name
from reconciler.engines.kubernetes.rendering.services import is_open, list_ports
from reconciler.engines.workload.routing.table import HTTP, HTTPS, HostEntry, RouteRule, Site
from reconciler.model.kinds.domain import Tls

_PATH = re.compile(r"/(?!.*(//|/\./|/\.\./|/\.\.?$|#|%2f|%2F))[!-~]*")
"""A path that a gateway compares."""
_HOST = re.compile(r"(\*\.)?([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""A host name of a route; those with other characters, such as ``_``, have none."""
_HEADER = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]{1,256}")


class PathRule(msgspec.Struct, frozen=True):
    """The paths that begin with ``prefix``, or match ``regex`` if that is set, and the port of the workload for them.

    ``replacement`` takes the place of the prefix, None for none. ``headers`` are set in the request.
    """

    port: int
    prefix: str = "/"
    regex: str = ""
    replacement: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class HostRoute(msgspec.Struct, frozen=True):
    """Host names at the port ``number`` outside, with what leads from there to a workload; no host stands for all.

    ``name`` is that of its object. ``secure``: with TLS only. ``certificate`` links to a secret with the certificate of
    the domain, "" if it has none of its own.
    """

    name: str
    hosts: tuple[str, ...]
    number: int
    secure: bool
    rules: tuple[PathRule, ...]
    certificate: str = ""


def plan_routes(inputs: WorkloadInputs) -> tuple[HostRoute, ...]:
    """The routes of a workload; none while it is suspended, or where addresses of clients would have to be compared.

    A gateway does not know the firewall of a workload: what it lets in could be anyone.
    """
    desired, ports = inputs.template.desired, list_ports(inputs.template.spec)
    if desired.suspended or not ports or desired.job is not None or not is_open(inputs):
        return ()
    first, workload = next(iter(ports)), desired.key.name
    own = endpoint_hosts(inputs) if ports[first] != "tcp" else ()
    domains = []
    for address, entry in sorted(inputs.routes.hosts.items()):
        host, number = _split_address(address)
        site = inputs.routes.sites.get(entry.site)
        if host and not _HOST.fullmatch(host):
            continue
        if site is None:
            own = tuple(sorted({*own, host}))
            continue
        rules = tuple(_list_rules(inputs, entry, first))
        certificate = site.tls.server_certificate.secret_link if site.tls.server_certificate is not None else ""
        hosts = (host,) if host else ()
        name = domain_route_name(workload, address)
        domains.append(HostRoute(name, hosts, number, site.secure, rules, certificate))
    endpoint = HostRoute(endpoint_route_name(workload), own, HTTPS, False, (PathRule(first),))
    return (*((endpoint,) if own else ()), *(route for route in domains if route.rules))


def endpoint_hosts(inputs: WorkloadInputs) -> tuple[str, ...]:
    """The host names of the canonical endpoint, and of that of the location."""
    context = inputs.template.env_context
    host = f"{context.workload}-{context.alias}"
    return f"{host}.{context.endpoint_domain}".lower(), f"{host}.{context.location}.{context.endpoint_domain}".lower()


def list_route_faults(inputs: WorkloadInputs, *, by_gateway: bool) -> Iterator[str]:
    """A sentence for each part of the domains of a workload that neither a gateway nor an Ingress has.

    ``by_gateway`` is whether it has routes of the Gateway API.
    """
    for address in sorted(inputs.routes.hosts):
        host, _ = _split_address(address)
        if host and not _HOST.fullmatch(host):
            yield f"The host name {host} is not served: a gateway takes letters, digits, hyphens and dots."
    for name in sorted(inputs.routes.sites):
        yield from _describe_site(inputs.routes.sites[name], by_gateway=by_gateway)
    for rule in inputs.routes.rules:
        fault = _find_fault(rule, by_gateway=by_gateway)
        if fault:
            yield f"A route of the domain {rule.site.rpartition(':')[0]} {fault}."


def _split_address(address: str) -> tuple[str, int]:
    """``HOST:NUMBER`` of the table of routes as a host name of a route, "" for all, and the number."""
    host, _, number = address.rpartition(":")
    return "" if host == "*" else f"*{host}" if host.startswith(".") else host, int(number)


def _list_rules(inputs: WorkloadInputs, entry: HostEntry, first: int) -> Iterator[PathRule]:
    if entry.target is not None:
        yield PathRule(entry.target.port or first)
        return
    for rule in inputs.routes.rules:
        if rule.site == entry.site and not _is_lost(rule):
            headers = tuple(pair for pair in rule.headers if _is_header(*pair))
            prefix = rule.prefix if rule.prefix is not None else "/"
            yield PathRule(rule.target.port or first, prefix, rule.regex or "", rule.replace_prefix, headers)


def _is_lost(rule: RouteRule) -> bool:
    """Whether ``rule`` would match other requests than it should; so it has no route."""
    by_host = rule.host_prefix is not None or rule.host_regex is not None
    return by_host or (rule.prefix is not None and not _PATH.fullmatch(rule.prefix))


def _is_header(name: str, value: str) -> bool:
    """Whether a header can be set as it is written, without values from the request."""
    return bool(_HEADER.fullmatch(name)) and "%" not in value


def _find_fault(rule: RouteRule, *, by_gateway: bool) -> str:
    """What of ``rule`` is not as it is declared; "" for nothing."""
    if rule.host_prefix is not None or rule.host_regex is not None:
        return "has no effect: it depends on a part of the host name (hostPrefix, hostRegex)"
    if rule.prefix is not None and not _PATH.fullmatch(rule.prefix):
        return f"has no effect: a gateway does not compare paths with {rule.prefix}"
    if not by_gateway and rule.regex is not None and not rule.regex.startswith("/"):
        return f"has no effect: the expression of an Ingress begins with /, and {rule.regex} does not"
    if not by_gateway and (rule.replace_prefix is not None or rule.headers):
        return "changes no path and no header (replacePrefix, headers): an Ingress changes nothing in a request"
    if not all(_is_header(*pair) for pair in rule.headers):
        return "does not set headers with values from the request"
    if rule.prefix is not None and not rule.prefix.endswith("/"):
        return f"matches {rule.prefix} and the paths below it only, not longer words that begin with it"
    return ""


def _describe_site(site: Site, *, by_gateway: bool) -> Iterator[str]:
    if site.cors is not None:
        yield f"cors of the domain {site.domain} has no effect: not every gateway understands it."
    own = msgspec.structs.replace(site.tls, server_certificate=None) if not by_gateway else site.tls
    if own != Tls():
        yield f"tls of the domain {site.domain} has no effect: the gateway decides about versions and certificates."
    if not by_gateway and site.number not in (HTTP, HTTPS):
        yield f"Port {site.number} of the domain {site.domain} is not served: an Ingress has the ports 80 and 443."
