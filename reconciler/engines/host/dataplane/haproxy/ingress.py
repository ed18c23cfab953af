"""Renders what finds the workload of a request from outside: frontends, and the maps from host names and prefixes.

Host names are compared as they come, in lower case and without port and final dot. What decides is in maps that change
without a reload, except for rules with an expression or a host name, which stand in the frontends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from reconciler.engines.host.dataplane.haproxy.config import BY_RULES, NO_ROUTE, backend_name
from reconciler.engines.host.dataplane.haproxy.outside import allowed_clients, no_wake_lines
from reconciler.engines.host.dataplane.haproxy.rendering.quoting import path_text, quoted
from reconciler.engines.host.dataplane.haproxy.rendering.render import client_seconds
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.engines.workload.routing.table import HTTP, HTTPS, Entry, RouteTable, Rule, Target
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


def listeners(settings: IngressSettings, table: RouteTable, tls: str = "") -> Iterator[Listener]:
    """The ports that take requests; without words for TLS, none of those with TLS."""
    yield Listener(HTTP, settings.http_port)
    if tls:
        yield Listener(HTTPS, settings.https_port, tls)
    others = {each.number: each.secure for each in table.sites if each.number not in (HTTP, HTTPS)}
    for number, secure in sorted(others.items()):
        if tls or not secure:
            yield Listener(number, number, tls if secure else "")


def frontends(ingress: Ingress, seconds: int) -> str:
    """The sections of all listeners, and of requests without a workload. ``seconds`` is the longest timeout."""
    shown = [_frontend(ingress, each, seconds) for each in ingress.listeners]
    streams = [_stream(ingress, each.number, each.target) for each in ingress.table.streams]
    count = f"# {ingress.reloads}\n" if ingress.reloads else ""
    sessions = _NO_SESSIONS if _wants_client_certificates(ingress.table) else ""
    return "".join([sessions, *shown, *streams, count]) if shown else ""


_NO_SESSIONS = "global\n  tune.ssl.cachesize 0\n"
"""A resumed session has the client certificate of its first connection, which another authority may have checked."""


def _wants_client_certificates(table: RouteTable) -> bool:
    return any(each.secure and each.tls.client_certificate is not None for each in table.sites)


def host_entries(table: RouteTable) -> dict[str, str]:
    """The map of host names; ``*:NUMBER`` stands for all."""
    return {host: _entry(table, entry) for host, entry in table.hosts.items() if not host.startswith(".")}


def subdomain_entries(table: RouteTable) -> dict[str, str]:
    """The map of the ends of host names, the longest first: the first that fits decides."""
    found = (each for each in table.hosts.items() if each[0].startswith("."))
    return {host: _entry(table, entry) for host, entry in sorted(found, key=lambda each: (-len(each[0]), each[0]))}


def prefix_entries(table: RouteTable) -> dict[str, str]:
    """The map of prefixes: the longest that fits decides."""
    rules = (each for each in table.rules if each.site in table.mapped and each.prefix is not None)
    return {f"{each.site}|{path_text(each.prefix or '')}": f"{target_name(each.target)}|{each.id}" for each in rules}


def target_name(target: Target) -> str:
    """The backend of a port of a workload."""
    return backend_name(target.key, target.port)


def rule_line(rule: Rule) -> str:
    """The line that finds the backend of a rule which is not in a map."""
    conditions = [f"{{ var(txn.site) -m str {quoted(rule.site)} }}"]
    if rule.regex is not None:
        conditions.append(f"{{ path -m reg -- {quoted(f'^(?:{rule.regex})$')} }}")
    elif rule.prefix:
        conditions.append(f"{{ path -m beg -- {quoted(path_text(rule.prefix))} }}")
    if rule.host_prefix:
        conditions.append(f"{{ var(txn.host) -m beg -- {quoted(rule.host_prefix.lower())} }}")
    if rule.host_regex is not None:
        conditions.append(f"{{ var(txn.host) -i -m reg -- {quoted(f'^(?:{rule.host_regex})$')} }}")
    found = quoted(f"{target_name(rule.target)}|{rule.id}")
    return f"  http-request set-var(txn.route) str({found}) if !{{ var(txn.route) -m found }} {' '.join(conditions)}"


def in_frontend(table: RouteTable) -> list[Rule]:
    """The rules that are not in the map of prefixes, in their order."""
    return [each for each in table.rules if each.prefix is None or each.site not in table.mapped]


def _frontend(ingress: Ingress, listener: Listener, seconds: int) -> str:
    number = listener.number
    numbers = (HTTP, HTTPS) if number == HTTP else (number,)
    found = "if !{ var(txn.to) -m found }"
    lookups = [
        *(f"var(txn.host),concat(:{each}),map_str(./{HOSTS})" for each in numbers),
        *(f"var(txn.host),concat(:{each}),map_end(./{SUBDOMAINS})" for each in numbers),
        *(f"str(*:{each}),map_str(./{HOSTS})" for each in numbers),
    ]
    sites = {each.id for each in ingress.table.sites if each.number in numbers}
    rules = [each for each in in_frontend(ingress.table) if each.site in sites]
    lines = [
        f"frontend {frontend_name(number)} from http-frontend",
        *_binds(ingress, listener),
        *_announced(ingress.settings),
        f"  timeout client {client_seconds(seconds)}s",
        # By this protocol, a replica would take requests that the proxy does not see.
        "  http-request del-header upgrade if { req.hdr(upgrade) -i -m sub h2c }",
        "  http-request del-header http2-settings",
        "  http-request deny deny_status 400 if { req.hdrs -m reg '\\x00' }",
        f"  http-request set-var(txn.number) int({number})",
        "  http-request set-var(txn.authority) req.fhdr(host)",
        "  http-request set-var(txn.host) req.fhdr(host),lower,field(1,:),rtrim(.)",
        *(f"  http-request set-var(txn.to) {each} {found}" for each in lookups),
        "  http-request set-var(txn.backend) var(txn.to),field(1,|),field(1,/)",
        "  http-request set-var(txn.site) var(txn.to),field(2,|)",
        *_only_with_certificate(ingress, listener),
        f"  acl by_rules var(txn.backend) -m str -- {BY_RULES}",
        f"  http-request deny deny_status 400 if by_rules {{ path -i -m reg -- {quoted(_DOTS)} }}",
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
    for each in sorted((each for each in services if each.no_wake), key=lambda found: found.key):
        outside = table.workloads.get(each.key)
        ports = ((0, each.protocol), *(outside.ports if outside is not None else ()))
        names = [backend_name(each.key, port) for port, protocol in ports if protocol != "tcp"]
        measured = each.measures_latency
        lines += no_wake_lines(each.no_wake, names, counted=each.scales_by_requests, measured=measured)
    return tuple(lines)


def frontend_name(number: int) -> str:
    """The name of the frontend of a port; no name of a workload's frontend begins like this."""
    return f"_in:{number}"


def _only_with_certificate(ingress: Ingress, listener: Listener) -> Iterator[str]:
    """Refuse requests without TLS for domains that want certificates of their clients, and those on a connection for
    another host name, which another authority may have checked, or none. Send other clients to TLS.
    """
    if ingress.challenge and listener.number == HTTP:
        yield f"  {ingress.challenge}"
    for each in ingress.table.sites:
        if each.secure and each.tls.client_certificate is not None:
            here = f"{{ var(txn.site) -m str {quoted(each.id)} }}"
            if not listener.tls:
                yield f"  http-request deny deny_status 403 if {here}"
                continue
            page = "http-request return status 421 content-type text/plain string '421: misdirected request'"
            yield f"  {page} if {here} !{{ ssl_c_used }} || {here} {{ ssl_fc_is_resumed }}"
            yield f"  {page} if {here} !{{ ssl_fc_sni,lower,strcmp(txn.host) eq 0 }}"
    if listener.number == HTTP:
        yield from _redirect(ingress)


def _redirect(ingress: Ingress) -> Iterator[str]:
    """Send clients to TLS where a certificate is served, unless a domain declares port 80 itself."""
    port = next((each.port for each in ingress.listeners if each.number == HTTPS), 0)
    if port:
        place = f"https://%[var(txn.host)]{f':{port}' if port != HTTPS else ''}%[pathq]"
        yield f"  acl plain_http var(txn.host),concat(:{HTTP}),map_str(./{HOSTS}) -m found"
        for name in ("var(txn.host)", "var(txn.host),regsub(^[^.]+,*)"):
            yield f"  acl secure {name},map_str(./{SECURE}) -m found"
        where = f"secure !plain_http {{ var(txn.host) -m reg {_PLAIN} }}"
        yield f"  http-request redirect location {place} code 308 if {where}"


def _stream(ingress: Ingress, number: int, target: Target) -> str:
    lines = [
        f"frontend {frontend_name(number)} from tcp-frontend",
        *_binds(ingress, Listener(number, number)),
        *_announced(ingress.settings),
        *_refused_clients(ingress.table, target),
        # A name that is in no other section lets the backend come and go at run time.
        f"  use_backend %[str({target_name(target)})]",
        "",
    ]
    return "\n".join(lines)


def _refused_clients(table: RouteTable, target: Target) -> Iterator[str]:
    outside = table.workloads.get(target.key)
    yield from allowed_clients("src", outside.inbound if outside is not None else ())
    yield "  tcp-request content reject if !allowed"


def _binds(ingress: Ingress, listener: Listener) -> Iterator[str]:
    words = f" {listener.tls}" if listener.tls else ""
    if words and _wants_client_certificates(ingress.table):
        words += " no-tls-tickets"
    for address in ingress.settings.addresses:
        yield f"  bind {f'[{address}]' if ':' in address else address}:{listener.port}" + (
            f" v6only{words}" if ":" in address else words
        )


def _announced(settings: IngressSettings) -> Iterator[str]:
    if settings.proxy_protocol:
        yield f"  tcp-request connection expect-proxy layer4 if {{ src {' '.join(settings.proxy_protocol)} }}"


def _entry(table: RouteTable, entry: Entry) -> str:
    name = target_name(entry.target) if entry.target is not None else BY_RULES
    if entry.site:
        return f"{name}|{entry.site}"
    outside = table.workloads.get(entry.target.key) if entry.target is not None else None
    return f"{name}/{outside.host}" if outside is not None else name


def map_text(entries: Mapping[str, str]) -> str:
    """The file of a map."""
    return "".join(f"{key} {value}\n" for key, value in entries.items())
