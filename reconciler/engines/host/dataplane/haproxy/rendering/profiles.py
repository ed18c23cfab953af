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
    CONNECT,
    HOLDS,
    HTTP,
    SELF,
    TCP,
    TUNNEL,
    ProxyOptions,
    encode,
    mode_of,
)
from reconciler.engines.host.dataplane.haproxy.outside import outside_lines
from reconciler.engines.host.dataplane.haproxy.rendering.pages import MESSAGES, error_page
from reconciler.engines.host.dataplane.haproxy.rendering.retries import retry_words
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.model.key import Key, Kind
from reconciler.model.no_wake import NoWake
from reconciler.settings import HoldSettings

_STILL = "if { nbsrv eq 0 } !{ stopping }"
"""No replica is ready, and this worker would know one."""

_ANY = Key(Kind.WORKLOAD, "", "")


class Profile(NamedTuple):
    """A section `defaults` by name."""

    name: str
    text: str


@lru_cache(maxsize=8192)
def profile_of(options: ProxyOptions, service: Service) -> Profile:
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
    return _profile(options, bare)


def usual_profile(options: ProxyOptions) -> Profile:
    """The profile of workloads that declare no options."""
    return profile_of(options, Service(_ANY, 0))


@lru_cache(maxsize=8192)
def _profile(options: ProxyOptions, service: Service) -> Profile:
    mode = mode_of(service)
    lines = _tcp_lines(options) if mode == TCP else _http_lines(options, service)
    text = "".join(f"  {line}\n" for line in lines)
    name = f"{mode}-{blake2b(text.encode(), digest_size=6).hexdigest()}"
    return Profile(name, f"defaults {name}\n{text}")


def _common_lines(options: ProxyOptions, mode: str) -> list[str]:
    return [
        f"mode {mode}",
        "balance leastconn",
        "option abortonclose",
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
        *(error_page(status).strip() for status in MESSAGES),
        *(["http-response set-var(txn.measured) bool(true)"] if service.measures_latency else []),
        *(each.strip() for each in (outside_lines(outside) if outside is not None else ())),
        *_hold_lines(options),
        *_of_requests(options, service),
        "http-response del-header x-reconciler-json",
    ]


def _tcp_lines(options: ProxyOptions) -> list[str]:
    return [
        *_common_lines(options, TCP),
        f"timeout server {TUNNEL}",
        "retries 2",
        f"tcp-request inspect-delay {round(1000 * options.hold.seconds) + 1000}ms",
    ]


def connection_lines(options: ProxyOptions) -> list[str]:
    """What lets connections of a tcp port wait for a replica, within limits.

    These lines are in the backend itself: when a rule of a profile waits for the second time, HAProxy 3.4 goes on with
    the rules of the backend. It evaluates those again from the first one, so a connection that waits already is marked.
    """
    hold = options.hold
    first = "!{ var(txn.waits) -m bool }"
    lines = [
        f"content reject {_STILL} {{ be_conn gt {hold.requests} }} {first}",
        f"content reject if {{ queue ge {max(hold.requests, 1)} }} {first}",
        "content set-var(txn.waits) bool(true)",
        *([f"content {_wait(hold)}", f"content reject {_STILL}"] if options.lua else []),
    ]
    return [*(f"tcp-request {each}" for each in lines), *_relieve("tcp-request content", options)]


def _wait(hold: HoldSettings) -> str:
    return f"lua.hold {hold.seconds:g} {_STILL} or !{{ stopping }} {{ be_name,map_str(./{HOLDS}) -m found }}"


def _relieve(words: str, options: ProxyOptions) -> list[str]:
    """Lead requests of a worker that was replaced to the new one. Backends that come at run time have no rules of their
    own, so a script does there what `use-server` does in older versions.
    """
    return [f"{words} lua.relieve if {{ stopping }}"] if options.runtime else []


def _hold_lines(options: ProxyOptions) -> list[str]:
    """Let requests wait for a replica, within limits."""
    hold = options.hold
    lines = [
        "# The current request counts too. While a replica is ready, only those that wait for a free place count.",
        f"http-request deny deny_status 503 {_STILL} {{ be_conn gt {hold.requests} }}",
        f"http-request deny deny_status 503 if {{ queue ge {max(hold.requests, 1)} }}",
    ]
    wait = [f"http-request {_wait(hold)}", f"http-request deny deny_status 503 {_STILL}"]
    return [*lines, *(wait if options.lua else []), *_relieve("http-request", options)]


def _of_requests(options: ProxyOptions, service: Service) -> list[str]:
    words = retry_words(service, options.version)
    lines = [f"retries {service.retries if words else 0}"]
    if words:
        lines.append(f"retry-on {' '.join(words)}")
    if service.debug:
        shown = f"if {{ var(txn.debug) -m bool }} !{{ srv_name {SELF} }}"
        lines += [
            "http-request set-var(txn.debug) bool(true) if { req.hdr(x-platform-debug) -m str true }",
            f"http-response set-header x-platform-location {encode(options.location)} {shown}",
            f"http-response set-header x-platform-replica %s {shown}",
        ]
    return lines
