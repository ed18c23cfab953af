"""A typed view of a GVC (docs/platform/fields.md#gvc): what rules and engines look at.

It is made from a manifest as it is written or in normal form.
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
    """How requests from outside come in; custom tcp ports need ``dedicated``."""

    dedicated: bool = False
    trusted_proxies: int = 0


class Lightstep(View, frozen=True):
    """A receiver of traces; ``credentials`` links to a secret."""

    endpoint: str = ""
    credentials: str = ""


class Provider(View, frozen=True):
    """Where traces go, as far as links lead on from there."""

    lightstep: Lightstep | None = None


class Tracing(View, frozen=True):
    """Which share of the requests is traced, in percent."""

    sampling: float = 0
    provider: Provider = Provider()


class Specification(View, frozen=True):
    """The body of a GVC; ``static_placement`` is None where it is left out."""

    static_placement: Placement | None = None
    pull_secret_links: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    domain: str = ""
    load_balancer: LoadBalancer = LoadBalancer()
    tracing: Tracing = Tracing()


class Gvc(Envelope, frozen=True):
    """A GVC."""

    spec: Specification = Specification()
