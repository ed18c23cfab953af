"""Renders profiles: sections `defaults` with all that backends of the same options share.

A backend takes its profile by name and has nothing else of its own but servers, so HAProxy 3.4 can add one while it
runs. The name is a digest of the text: the same name never stands for other options.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.engines.host.dataplane.haproxy.config import (
    AGAIN,
    CONNECT,
    CROWD,
    EMPTY,
    FULL,
    HOLDS,
    HTTP,
    SELF,
    TCP,
    TUNNEL,
    WAIT,
    ProxyOptions,
    encode_name,
    mode_of,
)
from reconciler.engines.host.dataplane.haproxy.outside import outside_lines
from reconciler.engines.host.dataplane.haproxy.rendering.pages import busy_answer, error_pages
from reconciler.engines.host.dataplane.haproxy.rendering.retries import retry_words
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.model.key import Key, Kind
from reconciler.model.no_wake import NoWake

FEW_WAITING = 50
"""So many requests of a workload wait also among very many connections: those of others cannot take their place."""

_AGAIN = f"{{ src {AGAIN} }}"
"""It has waited already."""

_EMPTY = f"be_name,map_str(./{EMPTY})"
"""Is found where no replica is ready."""

_HAS_HOLD = f"{{ be_name,map_str(./{HOLDS}) -m found }}"
"""An operator holds the requests."""

_ON_HOLD = f"!{{ stopping }} {_HAS_HOLD}"
"""The same, and this worker would know that the hold ends."""

AGAIN_SECONDS = "2h"
"""The timeout for a request that arrives again. It waits and gets its own timeout there, so this one is longer than the
longest hold, the wait for a replica and the longest response.
"""

_ANY = Key(Kind.WORKLOAD, "", "")


class ProxyProfile(NamedTuple):
    """A section `defaults` by name."""

    name: str
    text: str


@lru_cache(maxsize=8192)
def profile_of(options: ProxyOptions, service: Service) -> ProxyProfile:
    """The profile of the backends of ``service``."""
    outside = replace(service.outside, host="", ports=()) if service.outside is not None else None
    # None of these changes what backends share.
    bare = replace(
        service,
        key=_ANY,
        port=0,
        max_concurrency=0,
        hold_until=0.0,
        scales_by_requests=False,
        no_wake=NoWake(),
        outside=outside,
    )
    return _make_profile(options, bare)


def usual_profile(options: ProxyOptions) -> ProxyProfile:
    """The profile of workloads that declare no options."""
    return profile_of(options, Service(_ANY, 0))


@lru_cache(maxsize=8192)
def _make_profile(options: ProxyOptions, service: Service) -> ProxyProfile:
    mode = mode_of(service)
    lines = _tcp_lines(options) if mode == TCP else _http_lines(options, service)
    text = "".join(f"  {line}\n" for line in lines)
    name = f"{mode}-{blake2b(text.encode(), digest_size=6).hexdigest()}"
    return ProxyProfile(name, f"defaults {name}\n{text}")


def _common_lines(options: ProxyOptions, mode: str) -> list[str]:
    return [
        f"mode {mode}",
        "balance leastconn",
        "option abortonclose",
        # Each retry chooses a replica anew.
        "option redispatch 1",
        f"timeout connect {CONNECT}",
        f"timeout queue {round(1000 * options.hold.seconds)}ms",
    ]


def _http_lines(options: ProxyOptions, service: Service) -> list[str]:
    outside = service.outside
    return [
        *_common_lines(options, HTTP),
        f"timeout server {service.timeout_seconds}s",
        f"timeout tunnel {TUNNEL}",
        *(line.strip() for line in error_pages()),
        *(["http-response set-var(txn.measured) bool(true)"] if service.measures_latency else []),
        *(text.strip() for text in (outside_lines(outside) if outside is not None else ())),
        *_hold_lines(options),
        *_of_requests(options, service),
        # A replica must not change the type of its response by it: it marks pages of HAProxy.
        "http-response del-header x-reconciler-json",
    ]


def _tcp_lines(options: ProxyOptions) -> list[str]:
    return [
        *_common_lines(options, TCP),
        f"timeout server {TUNNEL}",
        # HAProxy repeats only the connection here, before it sends a byte.
        "retries 2",
    ]


def hold_line() -> str:
    """What leads the requests that an operator holds to the address of their workload. A profile cannot have it."""
    return f"use-server {SELF} if {_ON_HOLD}"


def connection_lines(options: ProxyOptions) -> list[str]:
    """What lets connections of a tcp port wait for a replica, within limits.

    These lines are in the backend itself: when a rule of a profile waits for the second time, HAProxy 3.4 goes on with
    the rules of the backend. It evaluates those again from the first one, so a connection that waits already is marked.
    """
    first = "!{ var(txn.waits) -m bool }"
    lines = [
        *(
            f"content reject if {condition} {first}"
            for condition in (*_list_busy_conditions(options), *_list_limit_conditions(options))
        ),
        "content set-var(txn.waits) bool(true)",
        *(f"content {line}" for line in _render_report(options)),
    ]
    return [*(f"tcp-request {line}" for line in lines), *_render_relief("tcp-request content", options)]


def _list_busy_conditions(options: ProxyOptions) -> list[str]:
    """The conditions of requests that have no place: their workload has too many connections."""
    limits = options.limits
    return [
        f"{{ be_conn gt {limits.most} }} !{_AGAIN}",
        f"{{ be_conn gt {limits.share} }} {{ str({FULL}),map_str(./{EMPTY}) -m found }} !{_AGAIN}",
    ]


def _list_limit_conditions(options: ProxyOptions) -> list[str]:
    """The conditions of requests that may not wait. One that arrives again has a place already."""
    hold = options.hold
    return [
        *([f"{{ {_EMPTY} -m found }} !{{ stopping }}"] if not hold.requests else []),
        f"{{ queue ge {max(hold.requests, 1)} }} !{_AGAIN}",
        f"{{ queue ge {FEW_WAITING} }} {{ str({CROWD}),map_str(./{EMPTY}) -m found }} !{_AGAIN}",
        *([f"{_ON_HOLD} {{ be_conn gt {hold.requests} }} !{_AGAIN}"] if options.lua else []),
    ]


def _render_report(options: ProxyOptions) -> list[str]:
    """Report the first request that waits for a replica."""
    first = f"!{{ stopping }} {{ {_EMPTY} -m found }} {{ queue eq 0 }}"
    return [f"lua.report if {first}"] if options.lua else []


def _render_relief(words: str, options: ProxyOptions) -> list[str]:
    """Lead requests of a worker that was replaced to the new one. Backends that come at run time have no rules of their
    own, so a script does there what `use-server` does in older versions.
    """
    return [f"{words} lua.relieve if {{ stopping }}"] if options.runtime else []


def _hold_lines(options: ProxyOptions) -> list[str]:
    """Let requests wait for a replica, within limits."""
    waits = "{ var(txn.empty) -m found } or { stopping }" + (f" or {_HAS_HOLD}" if options.lua else "")
    lines = [
        *(f"{busy_answer()} if {condition}" for condition in _list_busy_conditions(options)),
        *(f"deny deny_status 503 if {condition}" for condition in _list_limit_conditions(options)),
        *_render_report(options),
        f"set-var(txn.empty) {_EMPTY} if !{{ stopping }}",
        f"set-timeout server {AGAIN_SECONDS} if {waits}",
        f"disable-l7-retry if {waits}",
    ]
    return [*(f"http-request {line}" for line in lines), *_render_relief("http-request", options)]


def _of_requests(options: ProxyOptions, service: Service) -> list[str]:
    words = retry_words(service, options.version)
    lines = [f"retries {service.retries if words else 0}"]
    if words:
        lines.append(f"retry-on {' '.join(words)}")
    if service.debug:
        # A request that waited passes here twice, and only its last passage knows the replica.
        shown = f"if {{ var(txn.debug) -m bool }} !{{ srv_name {SELF} {WAIT} }}"
        lines += [
            "http-request set-var(txn.debug) bool(true) if { req.hdr(x-platform-debug) -m str true }",
            f"http-response set-header x-platform-location {encode_name(options.location)} {shown}",
            f"http-response set-header x-platform-replica %s {shown}",
        ]
    return lines
