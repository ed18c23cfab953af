"""What objects are rendered from: a template, its namespace, what the cluster serves, and what the settings choose."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reconciler.engines.protocol import SecretReader
from reconciler.engines.workload.routing.table import HostEntry, RouteRule, RouteTable, Site, Stream
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.model.key import Key
from reconciler.model.kinds.volumeset import Specification as VolumeSetSpecification
from reconciler.model.platform import SPELLING


class ClusterFeatures(msgspec.Struct, frozen=True):
    """What the API server of a cluster serves beyond Kubernetes itself, and its ``version``, such as (1, 34).

    ``gateway_api``: HTTPRoute v1. ``knative``: Service of serving.knative.dev v1. ``keda_http``: HTTPScaledObject.
    ``snapshots``: VolumeSnapshot v1. ``metrics``: metrics.k8s.io.
    """

    gateway_api: bool = False
    knative: bool = False
    keda_http: bool = False
    snapshots: bool = False
    metrics: bool = False
    version: tuple[int, int] = (1, 34)


class ObjectOwner(msgspec.Struct, frozen=True):
    """Whose object it is: the id of this daemon, and the resource as it was applied at a location."""

    instance: str
    key: Key
    location: str
    source: str
    digest: str
    version: int


class ClusterOptions(msgspec.Struct, frozen=True):
    """What the settings of a location choose; "" stands for nothing.

    ``gateway`` is the Gateway, in ``gateway_namespace``, that takes requests by host name. Without the Gateway API that
    is the class ``ingress_class``, whose pods are in ``gateway_namespace`` too. ``issuer`` is the ClusterIssuer of
    certificates. ``registry`` is that of ``//image/NAME:TAG``. The pods of ``dns_namespaces`` answer name queries, and
    those of ``metrics_namespace`` scrape metrics. ``cluster_networks`` are the ranges of pods, Services and nodes: no
    firewall means them by addresses outside. The pods of ``keda_namespace`` and ``knative_namespace`` bring requests to
    workloads that they scale.
    """

    gateway: str = ""
    gateway_namespace: str = ""
    ingress_class: str = ""
    issuer: str = ""
    registry: str = ""
    dns_namespaces: tuple[str, ...] = ("kube-system",)
    metrics_namespace: str = ""
    cluster_networks: tuple[str, ...] = ()
    keda_namespace: str = ""
    knative_namespace: str = "knative-serving"


class WorkloadRoutes(msgspec.Struct, frozen=True):
    """The part of the table of routes of a location that leads to one workload.

    ``hosts`` maps ``HOST:NUMBER`` to entries, as in RouteTable; ``rules`` are in the order in which they are compared.
    ``streams`` are ports outside for connections of its tcp ports.
    """

    hosts: Mapping[str, HostEntry] = {}
    sites: Mapping[str, Site] = {}
    rules: tuple[RouteRule, ...] = ()
    streams: tuple[Stream, ...] = ()


NO_ROUTES = WorkloadRoutes()


def select_routes(table: RouteTable) -> dict[Key, WorkloadRoutes]:
    """The routes of each workload that ``table`` leads to."""
    rules: dict[Key, list[RouteRule]] = {}
    members: dict[str, set[Key]] = {}
    for rule in table.rules:
        rules.setdefault(rule.target.key, []).append(rule)
        members.setdefault(rule.site, set()).add(rule.target.key)
    hosts: dict[Key, dict[str, HostEntry]] = {}
    for address, entry in table.hosts.items():
        targets = {entry.target.key} if entry.target is not None else members.get(entry.site, set())
        for key in targets:
            hosts.setdefault(key, {})[address] = entry
    streams: dict[Key, list[Stream]] = {}
    for stream in table.streams:
        streams.setdefault(stream.target.key, []).append(stream)
    sites = {site.id: site for site in table.sites}
    routes = {}
    for key in hosts.keys() | streams.keys():
        entries = hosts.get(key, {})
        used = sorted({entry.site for entry in entries.values()} & sites.keys())
        routes[key] = WorkloadRoutes(
            entries, {name: sites[name] for name in used}, tuple(rules.get(key, ())), tuple(streams.get(key, ()))
        )
    return routes


class WorkloadInputs(msgspec.Struct, frozen=True):
    """All that the objects of a workload are rendered from.

    ``token`` is its PLATFORM_TOKEN. ``restarts`` is the value of the annotation whose change restarts its pods, "" for
    none; ``moved_tags`` is the one of another, the number of times that a tag has moved. ``volume_sets`` are those that
    it mounts, by name. ``pull_secrets`` are the names of the Secrets with which its images are pulled. ``body`` is its
    manifest in normal form.
    """

    template: ReplicaTemplate
    namespace: str
    owner: ObjectOwner
    features: ClusterFeatures
    options: ClusterOptions
    reveal: SecretReader
    token: str
    scheme: str = SPELLING
    restarts: str = ""
    moved_tags: int = 0
    body: bytes = b""
    volume_sets: Mapping[str, VolumeSetSpecification] = {}
    pull_secrets: tuple[str, ...] = ()
    routes: WorkloadRoutes = NO_ROUTES

    def __repr__(self) -> str:
        return f"WorkloadInputs({self.owner.key}, namespace={self.namespace!r})"


class NamespaceInputs(msgspec.Struct, frozen=True):
    """All that the objects of a GVC are rendered from.

    ``pull_secrets`` are links of the GVC as keys, in their order; ``salt`` is a secret of the daemon that names of
    Secrets depend on, so that they cannot be used to guess what is in them.
    """

    org: str
    gvc: str
    namespace: str
    owner: ObjectOwner
    features: ClusterFeatures
    options: ClusterOptions
    reveal: SecretReader
    salt: bytes
    pull_secrets: tuple[Key, ...] = ()

    def __repr__(self) -> str:
        return f"NamespaceInputs({self.gvc!r}, namespace={self.namespace!r})"
