"""A typed view of a domain (docs/platform/fields.md#domain), for rules and engines."""

from __future__ import annotations

import msgspec

from reconciler.model.kinds.base import Envelope, View


class HeaderChanges(View, frozen=True):
    """Headers with their new values; ``%REQ(NAME)%`` in a value is the header NAME of the request."""

    set: dict[str, str] = {}


class Headers(View, frozen=True):
    """Changes to headers."""

    request: HeaderChanges = HeaderChanges()


class Route(View, frozen=True):
    """Requests by path and host, and the workload that serves them; ``port`` is 0 for the first."""

    workload_link: str = ""
    prefix: str | None = None
    regex: str | None = None
    host_prefix: str | None = None
    host_regex: str | None = None
    port: int = 0
    replace_prefix: str | None = None
    headers: Headers = Headers()


class Origin(View, frozen=True):
    """An origin that may send requests; ``exact`` is ``*`` for any."""

    exact: str | None = None
    regex: str | None = None


class Cors(View, frozen=True):
    """The permissions of browsers on other sites."""

    allow_origins: tuple[Origin, ...] = ()
    allow_methods: tuple[str, ...] = ()
    allow_headers: tuple[str, ...] = ()
    expose_headers: tuple[str, ...] = ()
    max_age: str = "24h"
    allow_credentials: bool = False


class Certificate(View, frozen=True):
    """A certificate in a secret."""

    secret_link: str = ""


class Tls(View, frozen=True):
    """Versions, ciphers and certificates of a port."""

    min_protocol_version: str = "TLSV1_2"
    cipher_suites: tuple[str, ...] = ()

    client_certificate: Certificate | None = None
    server_certificate: Certificate | None = None

    @property
    def is_customized(self) -> bool:
        """Whether it differs from the default."""
        return self != Tls()


class Port(View, frozen=True):
    """A port that the domain listens on."""

    number: int = 443
    protocol: str = "http2"
    routes: tuple[Route, ...] = ()
    cors: Cors = Cors()
    tls: Tls = Tls()


class Specification(View, frozen=True):
    """The body of a domain: its target is a GVC, a workload, or those of its routes."""

    gvc_link: str = ""
    workload_link: str = ""
    dns_mode: str = "cname"
    cert_challenge_type: str = "http01"
    accept_all_hosts: bool = False
    accept_all_subdomains: bool = False
    ports: tuple[Port, ...] = ()


class Domain(Envelope, frozen=True):
    """A domain."""

    spec: Specification = Specification()


def read_domain(body: bytes) -> Domain:
    """The view of a domain in normal form."""
    return msgspec.json.decode(body, type=Domain)


def proof_name(domain: str) -> str:
    """The name of the TXT record that proves that ``domain`` is the org's: only its owner can publish it."""
    return f"_reconciler-challenge.{domain}"


def proof_value(org: str) -> str:
    """The content of the record."""
    return f"org={org}"
