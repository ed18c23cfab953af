"""A typed view of a domain (docs/platform/fields.md#domain): what rules look at."""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope, View


class Route(View, frozen=True):
    """Requests by path and host, and the workload that serves them; ``port`` is 0 where it is the first."""

    workload_link: str = ""
    prefix: str | None = None
    regex: str | None = None
    host_prefix: str | None = None
    host_regex: str | None = None
    port: int = 0


class Origin(View, frozen=True):
    """Who may send requests from another site."""

    regex: str | None = None


class Cors(View, frozen=True):
    """What browsers may do from other sites."""

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
    """The body of a domain: it leads to a GVC, to a workload, or where its routes lead."""

    gvc_link: str = ""
    workload_link: str = ""
    ports: tuple[Port, ...] = ()


class Domain(Envelope, frozen=True):
    """A domain."""

    spec: Specification = Specification()
