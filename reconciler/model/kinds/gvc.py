"""A typed view of a GVC (docs/platform/fields.md#gvc), for rules and engines.

It is made from a manifest, as written or in normal form.
"""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope, View
from reconciler.model.kinds.workload import Variable
from reconciler.model.query import Query


class Placement(View, frozen=True):
    """The locations of a GVC: links, a query, or both."""

    location_links: tuple[str, ...] = ()
    location_query: Query | None = None


class LoadBalancer(View, frozen=True):
    """The load balancer for requests from outside; custom tcp ports need ``dedicated``."""

    dedicated: bool = False
    trusted_proxies: int = 0


class Lightstep(View, frozen=True):
    """A receiver of traces; ``credentials`` links to a secret."""

    endpoint: str = ""
    credentials: str = ""


class Provider(View, frozen=True):
    """The receiver of traces, as far as it has links."""

    lightstep: Lightstep | None = None


class Tracing(View, frozen=True):
    """The percentage of requests that are traced."""

    sampling: float = 0
    provider: Provider = Provider()


class Specification(View, frozen=True):
    """The body of a GVC; ``static_placement`` is None if it is left out."""

    static_placement: Placement | None = None
    pull_secret_links: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    domain: str = ""
    load_balancer: LoadBalancer = LoadBalancer()
    tracing: Tracing = Tracing()


class Gvc(Envelope, frozen=True):
    """A GVC."""

    spec: Specification = Specification()
