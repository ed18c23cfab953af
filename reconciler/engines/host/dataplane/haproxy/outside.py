"""Renders what a workload does with requests from outside: whom it lets in, what it changes in them, and CORS.

The lines are of its backend. A request through the workload's own port of this host has no `txn.number`, and is left as
it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv6Network, ip_network

from reconciler.engines.host.dataplane.haproxy.config import AGAIN, EMPTY, PASSED
from reconciler.engines.host.dataplane.haproxy.rendering.quoting import (
    LONGEST_LINE,
    format_text,
    format_value,
    is_plain,
    is_token,
    list_references,
    path_text,
    quote_text,
)
from reconciler.engines.workload.routing.table import Outside, RouteRule, Site
from reconciler.model.kinds.domain import Cors, Origin
from reconciler.model.no_wake import NoWake

COUNTED = "_counted"
"""The table of the requests to each backend that count as traffic, where others do not."""

_EVERYONE = "0.0.0.0/0"
_MAPPED = IPv6Network("::ffff:0:0/96")
"""HAProxy compares an IPv4 address with IPv6 ranges too, in this form."""
_AT_ONCE = 20
"""Addresses on a line: HAProxy takes 64 words."""
_PARTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def outside_lines(outside: Outside) -> Iterator[str]:
    """The lines for ``outside``, in the order in which they are in force."""
    yield "  acl outside var(txn.number) -m found"
    yield from _render_client_address(outside.trusted_proxies)
    yield from allowed_clients("var(txn.client)", outside.inbound)
    # Unlike "deny", it is not counted with the requests that found no replica.
    yield "  http-request return status 403 default-errorfiles if outside !allowed"
    for number, site in enumerate(outside.sites):
        if site.cors is not None:
            yield from _render_cors(f"{number}", site, site.cors)
    yield from _render_forwarded_headers(outside.trusted_proxies)
    # The canonical endpoint stands in the map of host names.
    yield "  http-request set-header host %[var(txn.to),field(2,/)] if outside !{ var(txn.site) -m found }"
    for rule in outside.rules:
        yield from change_lines(rule)


def allowed_clients(sample: str, inbound: Iterable[str]) -> Iterator[str]:
    """The condition ``allowed`` for addresses in ``inbound``. 0.0.0.0/0 stands for all clients."""
    words = [word for fromkey in dict.fromkeys(inbound) for word in _convert_range(fromkey)]
    if _EVERYONE in words:
        yield "  acl allowed always_true"
        return
    if not words:
        yield "  acl allowed always_false"
    for start in range(0, len(words), _AT_ONCE):
        yield f"  acl allowed {sample} -m ip {' '.join(words[start : start + _AT_ONCE])}"


def _convert_range(text: str) -> list[str]:
    """An address or range as HAProxy gets it: one for IPv6 is for no client with IPv4."""
    with suppress(ValueError):
        address_range = ip_network(text, strict=False)
        if isinstance(address_range, IPv6Network) and _MAPPED.subnet_of(address_range):
            return [str(network) for network in address_range.address_exclude(_MAPPED)]
    return [text]


def no_wake_lines(requests: NoWake, backends: Sequence[str], *, counted: bool, measured: bool) -> Iterator[str]:
    """Refuse requests that start no replica while none is ready, before they reach one of ``backends`` and its counts.

    ``counted``: count all other requests apart, since the counts of a backend contain these once a replica is ready.
    ``measured``: log all other requests only, so that the latency of these is not measured.
    """
    agents = ("req.fhdr(user-agent) -i -m sub", requests.agents)
    forms = (("path -m str", requests.paths), ("path -m beg", requests.prefixes), agents)
    name = f"no_wake:{backends[0]}" if backends else ""
    if lines := [
        f"  acl {name} {form} -- {quote_text(value)}" for form, values in forms for value in values if backends
    ]:
        yield from lines
        for backend in backends:
            where = f"{{ var(txn.backend) -m str {backend} }}"
            empty = f"{{ str({backend}),map_str(./{EMPTY}) -m found }}"
            yield f"  http-request deny deny_status 503 if {where} {empty} !{{ stopping }} {name}"
            if counted:
                # One that arrives again was counted the first time.
                first = f"!{{ src {AGAIN} {PASSED} }}"
                yield f"  http-request track-sc0 str({backend}) table {COUNTED} if {where} !{name} {first}"
            if measured:
                yield f"  http-request set-var(txn.no_wake) bool(true) if {where} {name}"


def change_lines(rule: RouteRule) -> Iterator[str]:
    """What a rule changes in requests: the start of their path, and headers."""
    here = f"if outside {{ var(txn.rule) -m str {quote_text(rule.id)} }}"
    if rule.replace_prefix is not None:
        start, length = format_text(path_text(rule.replace_prefix)), len(path_text(rule.prefix or ""))
        yield f"  http-request set-path {quote_text(f'{start}%[path,bytes({length})]')} {here}"
        # The rule may have replaced the first slash, and a path begins with one.
        yield f"  http-request set-path /%[path] {here} !{{ path_beg / }}"
    for name, value in rule.headers:
        yield f"  http-request set-header {quote_text(name)} {quote_text(format_value(value))} {here}"


def fault_of(rule: RouteRule) -> str:
    """Why a rule cannot be used; "" if it can, as far as that shows without HAProxy."""
    for name, value in rule.headers:
        if not is_token(name):
            return f"{name!r} is no name of a header"
        if not is_plain(value) or not all(map(is_token, list_references(value))):
            return f"the value of the header {name} has characters that no header can have"
    texts = (rule.prefix, rule.regex, rule.host_prefix, rule.host_regex, rule.replace_prefix)
    for text in (pattern for pattern in (rule.regex, rule.host_regex, rule.host_prefix) if pattern is not None):
        if not is_plain(text):
            return f"{text!r} has characters other than printable ASCII"
    # The other half of the line is for the words around them.
    if sum(len(quote_text(path_text(text))) for text in texts if text) > LONGEST_LINE // 2:
        return "its expressions and prefixes are too long"
    return next(
        (
            f"the value of the header {name} is too long"
            for name, value in rule.headers
            if len(quote_text(format_value(value))) > LONGEST_LINE // 2
        ),
        "",
    )


def _render_client_address(trusted: int) -> Iterator[str]:
    """The address of the client: that of the connection, or what the trusted proxies report."""
    yield "  http-request set-var(txn.client) src if outside"
    if trusted:
        reported = f"req.hdr_ip(x-forwarded-for,-{trusted})"
        yield f"  http-request set-var(txn.client) {reported} if outside {{ {reported} -m found }}"


def _render_forwarded_headers(trusted: int) -> Iterator[str]:
    """Report the client to the replica. What others report counts only as far as proxies are trusted."""
    reported = [f"%[req.hdr(x-forwarded-for,-{number})]" for number in range(trusted, 0, -1)]
    # The longest list comes first: fewer proxies may have reported than are trusted.
    for count in range(trusted, 0, -1):
        hops = "".join(f"{text}, " for text in reported[-count:])
        yield (
            f"  http-request set-var-fmt(txn.forwarded) {quote_text(f'{hops}%[src]')} if outside"
            f" !{{ var(txn.forwarded) -m found }} {{ req.hdr(x-forwarded-for,-{count}) -m found }}"
        )
    yield "  http-request set-var(txn.forwarded) src,concat() if outside !{ var(txn.forwarded) -m found }"
    yield "  http-request set-header x-forwarded-for %[var(txn.forwarded)] if outside"
    unless = " !{ req.hdr(x-forwarded-proto) -m str http https }" if trusted else ""
    yield f"  http-request set-header x-forwarded-proto %[ssl_fc,iif(https,http)] if outside{unless}"
    yield "  http-request set-header x-forwarded-host %[var(txn.authority)] if outside"
    # A replica may read this one instead, and nothing has checked it.
    yield "  http-request del-header forwarded if outside"


def _render_cors(name: str, site: Site, cors: Cors) -> Iterator[str]:
    """Answer preflight requests to a domain, and let scripts of the allowed origins read responses."""
    here, origin = f"{{ var(txn.site) -m str {quote_text(site.id)} }}", f"origin:{name}"
    yield from origin_lines(cors, origin)
    condition = f"{{ var(txn.cors) -m str {name} }}"
    yield f"  http-request set-var(txn.cors) str({name}) if outside {here} {origin}"
    yield f"  http-request set-var(txn.origin) req.hdr(origin) if {condition}"
    credentials = " hdr access-control-allow-credentials true" if cors.allow_credentials else ""
    # With credentials, "*" is no wildcard for browsers, so what they ask for is repeated.
    words = "".join(
        f" hdr {header} {quote_text(format_text(', '.join(names)))}"
        if "*" not in names or not cors.allow_credentials
        else f" hdr {header} %[req.fhdr({asked})]"
        for header, asked, names in (
            ("access-control-allow-methods", "access-control-request-method", select_tokens(cors.allow_methods)),
            ("access-control-allow-headers", "access-control-request-headers", select_tokens(cors.allow_headers)),
        )
        if names
    )
    yield (
        f"  http-request return status 204 hdr access-control-allow-origin %[var(txn.origin)] hdr vary origin"
        f" hdr access-control-max-age {parse_duration(cors.max_age)}{credentials}{words}"
        f" if {condition} METH_OPTIONS {{ req.hdr(access-control-request-method) -m found }}"
    )
    yield f"  http-response set-header access-control-allow-origin %[var(txn.origin)] if {condition}"
    # A cache must not answer one origin with the response for another.
    yield f"  http-response add-header vary origin if {condition}"
    if cors.allow_credentials:
        yield f"  http-response set-header access-control-allow-credentials true if {condition}"
    if exposed := select_tokens(cors.expose_headers):
        value = quote_text(format_text(", ".join(exposed)))
        yield f"  http-response set-header access-control-expose-headers {value} if {condition}"


def origin_lines(cors: Cors, name: str = "origin") -> Iterator[str]:
    """The condition ``name``: the request comes from an allowed origin."""
    yield from (f"  acl {name} {_format_origin(allow_origin)}" for allow_origin in cors.allow_origins)


def select_tokens(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that can be a method or the name of a header."""
    return [name for name in names if is_token(name)]


def usable_origin(origin: Origin) -> bool:
    """Whether an origin can be compared: as text or as an expression in printable ASCII."""
    text = origin.exact if origin.exact is not None else origin.regex or ""
    return is_plain(text) and bool(text) and len(quote_text(text)) < LONGEST_LINE // 2


def _format_origin(origin: Origin) -> str:
    if origin.exact == "*":
        return "req.hdr(origin) -m found"
    if origin.exact is not None:
        return f"req.fhdr(origin) -m str -- {quote_text(origin.exact)}"
    # Without both ends, an origin that only contains an allowed one would match.
    return f"req.fhdr(origin) -m reg -- {quote_text(f'^(?:{origin.regex})$')}"


def parse_duration(age: str) -> int:
    """A duration of the manifest, such as `24h` or `1h30m`, in whole seconds."""
    parts = _PARTS.findall(age)
    return int(sum(float(number) * _UNITS[unit] for number, unit in parts))
