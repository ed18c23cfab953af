"""The objects of a location as files: what the engine would apply, without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import SECRET, KubeObject
from reconciler.engines.kubernetes.desired import AppliedResource, DesiredObjects
from reconciler.engines.kubernetes.mirror import ClusterMirror
from reconciler.engines.kubernetes.ownership import make_owner
from reconciler.engines.plugin import RenderedObjects
from reconciler.engines.protocol import SecretReader
from reconciler.errors import NotFoundError
from reconciler.model.key import Key, Kind
from reconciler.records.store import Records
from reconciler.settings import Settings

MASK = "***"


def render_location(
    settings: Settings, records: Records, location: str, reveal: SecretReader, takes: Callable[[Key], bool]
) -> Iterator[RenderedObjects]:
    """The objects of each recorded workload at ``location`` that ``takes`` accepts, those of its GVC before them.

    A token that only the cluster has is another one here. Raises EngineError and NotFoundError.
    """
    desired = make_desired(settings, records, location, reveal)
    gvcs: set[str] = set()
    for record in records.applied.items_at(location, settings.locations[location].engine):
        key = record.key
        if key.kind is not Kind.WORKLOAD or not takes(key):
            continue
        if key.gvc not in gvcs:
            gvcs.add(key.gvc)
            yield RenderedObjects(Key(Kind.GVC, "", key.gvc), desired.render_namespace(key.gvc))
        applied = AppliedResource(key, record.body, record.digest, record.version, record.source)
        yield RenderedObjects(key, desired.render_workload(applied).objects)
    if not gvcs:
        raise NotFoundError(f"nothing is recorded at {location} that has objects on a cluster")


def make_desired(settings: Settings, records: Records, location: str, reveal: SecretReader) -> DesiredObjects:
    """What renders for ``location``, as if its cluster had nothing yet. Nothing is asked of it."""
    context = EngineContext(LocationRecords(records, location), settings, SystemClock(), reveal)
    cluster = settings.locations[location].cluster
    owner = make_owner(settings.org, location, cluster)
    mirror = ClusterMirror(KubeApi(cluster, context.clock), owner, context.clock, lambda _key: None)
    desired = DesiredObjects(context, cluster, owner, mirror)
    desired.read_domains()
    return desired


def mask_secrets(objects: Sequence[KubeObject]) -> list[KubeObject]:
    """``objects`` without the data of Secrets."""
    return [
        {**item, "data": dict.fromkeys(item.get("data") or {}, MASK)} if item["kind"] == SECRET.kind else item
        for item in objects
    ]
