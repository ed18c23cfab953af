"""Renders what finds the workload of a request from outside: frontends, and the maps from host names and prefixes.

Host names are compared as they come, in lower case and without port and final dot. What decides is in maps that change
without a reload, except for rules with an expression or a host name, which stand in the frontends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from reconciler.engines.host.dataplane.haproxy.config import BY_RULES, NO_ROUTE, backend_name
from reconciler.engines.host.dataplane.haproxy.outside import allowed_clients, no_wake_lines
from reconciler.engines.host.dataplane.haproxy.rendering.quoting import path_text, quote_text
from reconciler.engines.host.dataplane.haproxy.rendering.render import client_seconds
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.engines.workload.routing.table import HTTP, HTTPS, HostEntry, RouteRule, RouteTable, RouteTarget
from reconciler.settings import IngressSettings

HOSTS, SUBDOMAINS, PREFIXES, SECURE = "hosts.map", "subdomains.map", "prefixes.map", "secure.map"
"""``HOST:NUMBER`` and the ends of such → ``BACKEND|SITE``, or ``BACKEND/CANONICAL`` at the endpoints of a workload;
``SITE|PREFIX`` → ``BACKEND|RULE``; hosts with TLS.
"""

_DOTS = r"(^|[/\\;]|%2f|%5c)(\.|%2e){1,2}([/\\;]|%2f|%5c|$)"
"""A segment `.` or `..` of a path, however it is written."""


_PLAIN = "^[a-z0-9._-]+$"


class Listener(msgspec.Struct, frozen=True):
    """A port that takes requests: ``number`` as in domains, ``port`` as here.

    ``tls`` are the words of ``bind`` for TLS, "" for a port without.
    """

    number: int
    port: int
    tls: str = ""


class Ingress(msgspec.Struct, frozen=True):
    """All that the frontends are made of. ``lines`` are for single workloads, once the backend is found.

    ``challenge`` is the line that answers an authority, and ``reloads`` counts what only a reload could change.
    """

    settings: IngressSettings
    table: RouteTable = RouteTable()
    listeners: tuple[Listener, ...] = ()
    lines: tuple[str, ...] = ()
    challenge: str = ""
    reloads: int = 0


def list_listeners(settings: IngressSettings, table: RouteTable, tls: str = "") -> Iterator[Listener]:
    """The ports that take requests; without words for TLS, none of those with TLS."""
    yield Listener(HTTP, settings.http_port)
    if tls:
        yield Listener(HTTPS, settings.https_port, tls)
    others = {site.number: site.secure for site in table.sites if site.number not in (HTTP, HTTPS)}
    for number, secure in sorted(others.items()):
        if tls or not secure:
            yield Listener(number, number, tls if secure else "")


def render_frontends(ingress: Ingress, seconds: int) -> str:
    """The sections of all listeners, and of requests without a workload. ``seconds`` is the longest timeout."""
    shown = [_render_frontend(ingress, listener, seconds) for listener in ingress.listeners]
    streams = [_render_stream(ingress, stream.number, stream.target) for stream in ingress.table.streams]
    count = f"# {ingress.reloads}\n" if ingress.reloads else ""
    sessions = _NO_SESSIONS if _wants_client_certificates(ingress.table) else ""
    return "".join([sessions, *shown, *streams, count]) if shown else ""


_NO_SESSIONS = "global\n  tune.ssl.cachesize 0\n"
"""A resumed session has the client certificate of its first connection, which another authority may have checked."""


def _wants_client_certificates(table: RouteTable) -> bool:
    return any(site.secure and site.tls.client_certificate is not None for site in table.sites)


def host_entries(table: RouteTable) -> dict[str, str]:
    """The map of host names; ``*:NUMBER`` stands for all."""
    return {host: _format_map_entry(table, entry) for host, entry in table.hosts.items() if not host.startswith(".")}


def subdomain_entries(table: RouteTable) -> dict[str, str]:
    """The map of the ends of host names, the longest first: the first that fits decides."""
    subdomains = (pair for pair in table.hosts.items() if pair[0].startswith("."))
    return {
        host: _format_map_entry(table, entry)
        for host, entry in sorted(subdomains, key=lambda subdomain: (-len(subdomain[0]), subdomain[0]))
    }


def prefix_entries(table: RouteTable) -> dict[str, str]:
    """The map of prefixes: the longest that fits decides."""
    rules = (rule for rule in table.rules if rule.site in table.mapped and rule.prefix is not None)
    return {f"{rule.site}|{path_text(rule.prefix or '')}": f"{target_name(rule.target)}|{rule.id}" for rule in rules}


def target_name(target: RouteTarget) -> str:
    """The backend of a port of a workload."""
    return backend_name(target.key, target.port)


def rule_line(rule: RouteRule) -> str:
    """The line that finds the backend of a rule which is not in a map."""
    conditions = [f"{{ var(txn.site) -m str {quote_text(rule.site)} }}"]
    if rule.regex is not None:
        conditions.append(f"{{ path -m reg -- {quote_text(f'^(?:{rule.regex})$')} }}")
    elif rule.prefix:
        conditions.append(f"{{ path -m beg -- {quote_text(path_text(rule.prefix))} }}")
    if rule.host_prefix:
        conditions.append(f"{{ var(txn.host) -m beg -- {quote_text(rule.host_prefix.lower())} }}")
    if rule.host_regex is not None:
        conditions.append(f"{{ var(txn.host) -i -m reg -- {quote_text(f'^(?:{rule.host_regex})$')} }}")
    text = quote_text(f"{target_name(rule.target)}|{rule.id}")
    return f"  http-request set-var(txn.route) str({text}) if !{{ var(txn.route) -m found }} {' '.join(conditions)}"


def in_frontend(table: RouteTable) -> list[RouteRule]:
    """The rules that are not in the map of prefixes, in their order."""
    return [rule for rule in table.rules if rule.prefix is None or rule.site not in table.mapped]


def _render_frontend(ingress: Ingress, listener: Listener, seconds: int) -> str:
    number = listener.number
    numbers = (HTTP, HTTPS) if number == HTTP else (number,)
    text = "if !{ var(txn.to) -m found }"
    lookups = [
        *(f"var(txn.host),concat(:{number}),map_str(./{HOSTS})" for number in numbers),
        *(f"var(txn.host),concat(:{number}),map_end(./{SUBDOMAINS})" for number in numbers),
        *(f"str(*:{number}),map_str(./{HOSTS})" for number in numbers),
    ]
    sites = {site.id for site in ingress.table.sites if site.number in numbers}
    rules = [rule for rule in in_frontend(ingress.table) if rule.site in sites]
    lines = [
        f"frontend {frontend_name(number)} from http-frontend",
        *_render_binds(ingress, listener),
        *_render_proxy_protocol(ingress.settings),
        f"  timeout client {client_seconds(seconds)}s",
        # By this protocol, a replica would take requests that the proxy does not see.
        "  http-request del-header upgrade if { req.hdr(upgrade) -i -m sub h2c }",
        "  http-request del-header http2-settings",
        "  http-request deny deny_status 400 if { req.hdrs -m reg '\\x00' }",
        f"  http-request set-var(txn.number) int({number})",
        "  http-request set-var(txn.authority) req.fhdr(host)",
        "  http-request set-var(txn.host) req.fhdr(host),lower,field(1,:),rtrim(.)",
        *(f"  http-request set-var(txn.to) {lookup} {text}" for lookup in lookups),
        "  http-request set-var(txn.backend) var(txn.to),field(1,|),field(1,/)",
        "  http-request set-var(txn.site) var(txn.to),field(2,|)",
        *_only_with_certificate(ingress, listener),
        f"  acl by_rules var(txn.backend) -m str -- {BY_RULES}",
        f"  http-request deny deny_status 400 if by_rules {{ path -i -m reg -- {quote_text(_DOTS)} }}",
        *map(rule_line, rules),
        "  http-request set-var(txn.path) path if by_rules",
        f"  http-request set-var(txn.route) var(txn.site),concat(|,txn.path),map_beg(./{PREFIXES})"
        " if by_rules !{ var(txn.route) -m found }",
        "  http-request set-var(txn.rule) var(txn.route),field(2,|) if { var(txn.route) -m found }",
        "  http-request set-var(txn.backend) var(txn.route),field(1,|) if { var(txn.route) -m found }",
        *ingress.lines,
        "  use_backend %[var(txn.backend)] if { var(txn.backend) -m found } !by_rules",
        f"  default_backend {NO_ROUTE}",
    ]
    return "\n".join([*lines, ""])


def service_lines(services: Iterable[Service], table: RouteTable) -> tuple[str, ...]:
    """What frontends do for single workloads: set apart requests that wake none."""
    lines: list[str] = []
    for workload_service in sorted(
        (service for service in services if service.no_wake), key=lambda candidate: candidate.key
    ):
        outside = table.workloads.get(workload_service.key)
        ports = ((0, workload_service.protocol), *(outside.ports if outside is not None else ()))
        names = [backend_name(workload_service.key, port) for port, protocol in ports if protocol != "tcp"]
        measured = workload_service.measures_latency
        lines += no_wake_lines(
            workload_service.no_wake, names, counted=workload_service.scales_by_requests, measured=measured
        )
    return tuple(lines)


def frontend_name(number: int) -> str:
    """The name of the frontend of a port; no name of a workload's frontend begins like this."""
    return f"_in:{number}"


def _only_with_certificate(ingress: Ingress, listener: Listener) -> Iterator[str]:
    """Refuse requests without TLS for domains that want certificates of their clients, and those on a connection for
    another host name, which another authority may have checked, or none. Send other clients to TLS.
    """
    # Before the lines that want TLS: an authority asks without it.
    if ingress.challenge and listener.number == HTTP:
        yield f"  {ingress.challenge}"
    for site in ingress.table.sites:
        if site.secure and site.tls.client_certificate is not None:
            here = f"{{ var(txn.site) -m str {quote_text(site.id)} }}"
            if not listener.tls:
                yield f"  http-request deny deny_status 403 if {here}"
                continue
            page = "http-request return status 421 content-type text/plain string '421: misdirected request'"
            yield f"  {page} if {here} !{{ ssl_c_used }} || {here} {{ ssl_fc_is_resumed }}"
            yield f"  {page} if {here} !{{ ssl_fc_sni,lower,strcmp(txn.host) eq 0 }}"
    if listener.number == HTTP:
        yield from _render_redirect(ingress)


def _render_redirect(ingress: Ingress) -> Iterator[str]:
    """Send clients to TLS where a certificate is served, unless a domain declares port 80 itself."""
    port = next((listener.port for listener in ingress.listeners if listener.number == HTTPS), 0)
    if port:
        location = f"https://%[var(txn.host)]{f':{port}' if port != HTTPS else ''}%[pathq]"
        yield f"  acl plain_http var(txn.host),concat(:{HTTP}),map_str(./{HOSTS}) -m found"
        # A certificate is for the name itself, or for its wildcard.
        for name in ("var(txn.host)", "var(txn.host),regsub(^[^.]+,*)"):
            yield f"  acl secure {name},map_str(./{SECURE}) -m found"
        where = f"secure !plain_http {{ var(txn.host) -m reg {_PLAIN} }}"
        # With 308, clients repeat the method and the body, which 301 lets them drop.
        yield f"  http-request redirect location {location} code 308 if {where}"


def _render_stream(ingress: Ingress, number: int, target: RouteTarget) -> str:
    lines = [
        f"frontend {frontend_name(number)} from tcp-frontend",
        *_render_binds(ingress, Listener(number, number)),
        *_render_proxy_protocol(ingress.settings),
        *_refused_clients(ingress.table, target),
        # A name that is in no other section lets the backend come and go at run time.
        f"  use_backend %[str({target_name(target)})]",
        "",
    ]
    return "\n".join(lines)


def _refused_clients(table: RouteTable, target: RouteTarget) -> Iterator[str]:
    outside = table.workloads.get(target.key)
    yield from allowed_clients("src", outside.inbound if outside is not None else ())
    yield "  tcp-request content reject if !allowed"


def _render_binds(ingress: Ingress, listener: Listener) -> Iterator[str]:
    words = f" {listener.tls}" if listener.tls else ""
    if words and _wants_client_certificates(ingress.table):
        # A ticket resumes a session too: see `_NO_SESSIONS`.
        words += " no-tls-tickets"
    # Without v6only, :: takes IPv4 too, and is in the way of 0.0.0.0.
    for address in ingress.settings.addresses:
        yield f"  bind {f'[{address}]' if ':' in address else address}:{listener.port}" + (
            f" v6only{words}" if ":" in address else words
        )


def _render_proxy_protocol(settings: IngressSettings) -> Iterator[str]:
    if settings.proxy_protocol:
        yield f"  tcp-request connection expect-proxy layer4 if {{ src {' '.join(settings.proxy_protocol)} }}"


def _format_map_entry(table: RouteTable, entry: HostEntry) -> str:
    name = target_name(entry.target) if entry.target is not None else BY_RULES
    if entry.site:
        return f"{name}|{entry.site}"
    outside = table.workloads.get(entry.target.key) if entry.target is not None else None
    return f"{name}/{outside.host}" if outside is not None else name


def map_text(entries: Mapping[str, str]) -> str:
    """The file of a map."""
    return "".join(f"{key} {value}\n" for key, value in entries.items())


def route_entries(table: RouteTable, secure: Iterable[str] = ()) -> dict[str, Mapping[str, str]]:
    """The entries of each map of ``table``. ``secure`` are the host names with a certificate."""
    hosts = dict.fromkeys(sorted(secure), "1")
    return {
        HOSTS: host_entries(table),
        SUBDOMAINS: subdomain_entries(table),
        PREFIXES: prefix_entries(table),
        SECURE: hosts,
    }
