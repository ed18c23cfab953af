"""A typed view of a domain (docs/platform/fields.md#domain), for rules."""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope, View


class Route(View, frozen=True):
    """Requests by path and host, and the workload that serves them; ``port`` is 0 for the first."""

    workload_link: str = ""
    prefix: str | None = None
    regex: str | None = None
    host_prefix: str | None = None
    host_regex: str | None = None
    port: int = 0


class Origin(View, frozen=True):
    """An origin that may send requests."""

    regex: str | None = None


class Cors(View, frozen=True):
    """The permissions of browsers on other sites."""

    allow_origins: tuple[Origin, ...] = ()


class Certificate(View, frozen=True):
    """A certificate in a secret."""

    secret_link: str = ""


class Tls(View, frozen=True):
    """Certificates of a port."""

    client_certificate: Certificate | None = None
    server_certificate: Certificate | None = None


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
    ports: tuple[Port, ...] = ()


class Domain(Envelope, frozen=True):
    """A domain."""

    spec: Specification = Specification()
