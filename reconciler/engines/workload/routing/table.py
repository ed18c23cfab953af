"""The table of routes of a location as values: what a data plane needs in order to find the workload of a request."""

from __future__ import annotations

import re

import msgspec

from reconciler.model.key import Key
from reconciler.model.kinds.domain import Cors, Tls

HTTP, HTTPS = 80, 443
"""The ports of domains that the settings of an ingress can put at other ports of this machine."""


_NAME = re.compile(r"([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?")
_LONGEST = 253


class RouteTarget(msgspec.Struct, frozen=True, order=True):
    """A port of a workload; 0: the first one."""

    key: Key
    port: int = 0


class HostEntry(msgspec.Struct, frozen=True):
    """Where requests for a host name go: to ``target``, or by the rules of the site (``target`` is None).

    ``site`` is the id of the domain's port that decides, "" for the endpoints of a workload.
    """

    site: str = ""
    target: RouteTarget | None = None


class Site(msgspec.Struct, frozen=True):
    """A port of a domain. ``secure``: it is served with TLS only; ``http2``: clients may speak HTTP/2.

    ``dns``: an authority checks its host names by a record of DNS, where that is possible.
    """

    id: str
    domain: str
    number: int
    secure: bool
    http2: bool
    cors: Cors | None = None
    tls: Tls = Tls()
    dns: bool = False


class RouteRule(msgspec.Struct, frozen=True):
    """A route of a site: the requests that match it, and what is changed in them.

    A path begins with ``prefix``, or matches ``regex`` as a whole; a host name begins with ``host_prefix``, or matches
    ``host_regex`` as a whole. None stands for any. ``headers`` are pairs of a name and a value as in the manifest.
    """

    id: str
    site: str
    target: RouteTarget
    prefix: str | None = None
    regex: str | None = None
    host_prefix: str | None = None
    host_regex: str | None = None
    replace_prefix: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Stream(msgspec.Struct, frozen=True):
    """A port outside for the connections of a tcp port, without host names."""

    number: int
    target: RouteTarget
    domain: str


class Outside(msgspec.Struct, frozen=True):
    """How a workload takes requests from outside.

    ``host`` is its canonical endpoint. ``ports`` are those besides its first one that requests may go to, with their
    protocols. ``inbound`` are the addresses and ranges that may send requests. The last
    ``trusted_proxies`` addresses of X-Forwarded-For are believed; the first of these is the client's.
    """

    host: str
    inbound: tuple[str, ...] = ()
    trusted_proxies: int = 0
    sites: tuple[Site, ...] = ()
    rules: tuple[RouteRule, ...] = ()
    ports: tuple[tuple[int, str], ...] = ()


class RouteTable(msgspec.Struct, frozen=True):
    """All routes of a location.

    ``hosts`` maps ``HOST:NUMBER`` to entries: HOST is a name, ``.NAME`` for all names below it, or ``*`` for all.
    ``rules`` are in the order in which they are compared; the first that matches decides. ``mapped`` are the sites
    whose rules with a prefix depend on nothing else: there the longest prefix decides, after all other rules.
    ``problems`` are of domains, by name, and ``endpoints`` the addresses by domains of each workload.
    """

    hosts: dict[str, HostEntry] = {}
    sites: tuple[Site, ...] = ()
    rules: tuple[RouteRule, ...] = ()
    mapped: frozenset[str] = frozenset()
    streams: tuple[Stream, ...] = ()
    problems: dict[str, tuple[str, ...]] = {}
    endpoints: dict[Key, tuple[str, ...]] = {}
    workloads: dict[Key, Outside] = {}


def normalize_host(text: str) -> str | None:
    """``text`` as it is compared; a name in other letters becomes punycode. None if it is no host name."""
    host = text.lower().removesuffix(".")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    return host if len(host) <= _LONGEST and _NAME.fullmatch(host) else None
