"""The objects of a location for people and other tools: what the engine would apply. Nothing is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import ALWAYS_SERVED, SECRET, KubeObject
from reconciler.engines.kubernetes.desired import AppliedResource, DesiredObjects
from reconciler.engines.kubernetes.features import read_features
from reconciler.engines.kubernetes.mirror import ClusterMirror
from reconciler.engines.kubernetes.ownership import make_owner
from reconciler.engines.kubernetes.planned import MASK, PlannedRecords, SecretShapes
from reconciler.engines.kubernetes.rendering.names import token_secret_name
from reconciler.engines.plugin import RenderedObjects
from reconciler.engines.protocol import SecretReader
from reconciler.errors import EngineError, NotFoundError
from reconciler.model.key import Key, Kind
from reconciler.model.record import Record
from reconciler.planning.plan import Step
from reconciler.records.store import Records
from reconciler.settings import Settings

PATIENCE = 10.0
"""Seconds for all questions to a cluster."""


def render_location(
    settings: Settings, records: LocationRecords, reveal: SecretReader, takes: Callable[[Key], bool]
) -> Iterator[RenderedObjects]:
    """The objects of each workload of ``records`` that ``takes`` accepts, those of its GVC before them.

    The cluster knows tokens, restarts and what it serves: it is asked for them. One that does not answer counts as
    empty, and the Secrets of tokens are left out, since new tokens differ from those that it has. Raises EngineError
    and NotFoundError.
    """
    location = records.location
    renderer = make_renderer(settings, records, reveal)
    workloads = [
        record
        for record in records.all_here(settings.locations[location].engine)
        if record.key.kind is Kind.WORKLOAD and takes(record.key)
    ]
    if not workloads:
        raise NotFoundError(f"nothing is recorded at {location} that has objects on a cluster")
    return iter(asyncio.run(_render_workloads(renderer, workloads)))


async def _render_workloads(renderer: LocationRenderer, workloads: Sequence[Record]) -> list[RenderedObjects]:
    desired, mirror, api = renderer
    try:
        seen = await _read_cluster(desired, mirror, api)
        return list(_list_rendered(desired, workloads, tokens=seen))
    finally:
        await mirror.close("a command")
        await api.close()


async def _read_cluster(desired: DesiredObjects, mirror: ClusterMirror, api: KubeApi) -> bool:
    """Read what is at the location; whether the cluster answers and shows all of it."""
    try:
        async with asyncio.timeout(PATIENCE):
            features, served = await read_features(api)
            await mirror.follow([*ALWAYS_SERVED, *served])
    except (EngineError, TimeoutError):
        return False
    desired.set_features(features)
    return mirror.explain_unknown(ALWAYS_SERVED) is None


def _list_rendered(desired: DesiredObjects, workloads: Sequence[Record], *, tokens: bool) -> Iterator[RenderedObjects]:
    gvcs: set[str] = set()
    for record in workloads:
        key = record.key
        if key.gvc not in gvcs:
            gvcs.add(key.gvc)
            yield RenderedObjects(Key(Kind.GVC, "", key.gvc), desired.render_namespace(key.gvc))
        applied = AppliedResource(key, record.body, record.digest, record.version)
        objects = desired.render_workload(applied).objects
        token = token_secret_name(key.name)
        yield RenderedObjects(key, [item for item in objects if tokens or item["metadata"]["name"] != token])


def make_desired(settings: Settings, records: Records, location: str, reveal: SecretReader) -> DesiredObjects:
    """What renders for ``location``, as if its cluster had nothing yet. Nothing is asked of it."""
    return make_renderer(settings, LocationRecords(records, location), reveal).desired


class LocationRenderer(NamedTuple):
    """What renders for a location, and what it looks at of the cluster."""

    desired: DesiredObjects
    mirror: ClusterMirror
    api: KubeApi


def make_renderer(settings: Settings, records: LocationRecords, reveal: SecretReader) -> LocationRenderer:
    """What renders for the location of ``records``; nothing is asked of its cluster. Raises RecordsError."""
    context = EngineContext(records, settings, SystemClock(), reveal)
    cluster = settings.locations[records.location].cluster
    owner = make_owner(settings.org, records.location, cluster)
    api = KubeApi(cluster, context.clock)
    mirror = ClusterMirror(api, owner, context.clock, lambda _key: None)
    desired = DesiredObjects(context, cluster, owner, mirror)
    desired.read_domains()
    return LocationRenderer(desired, mirror, api)


def render_planned(
    settings: Settings, records: Records, location: str, steps: Sequence[Step], takes: Callable[[Key], bool]
) -> Iterator[RenderedObjects]:
    """As ``render_location``, once ``steps`` are performed; secrets have no values, and their names differ later."""
    planned = PlannedRecords(records, location, steps)
    return render_location(settings, planned, SecretShapes(planned).read, takes)


def mask_secrets(objects: Sequence[KubeObject]) -> list[KubeObject]:
    """``objects`` without the data of Secrets."""
    return [
        {**item, "data": dict.fromkeys(item.get("data") or {}, MASK)} if item["kind"] == SECRET.kind else item
        for item in objects
    ]
