"""The replicas at a location: its pods, and what the cluster measures of them where it does."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import groupby
from typing import Any

import msgspec

from reconciler.clock import SystemClock
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import POD_METRICS
from reconciler.engines.kubernetes.reading.pods import ClusterLocation, list_pods
from reconciler.engines.kubernetes.status.fields import ObjectPart, read_text
from reconciler.engines.kubernetes.status.pods import PodContext
from reconciler.engines.kubernetes.status.replicas import ReplicaSource, list_rows
from reconciler.engines.reading import ReplicaRow
from reconciler.errors import EngineError

METRICS_SECONDS = 3.0
"""Seconds that the rows wait for what pods use, at most."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def list_replicas(api: KubeApi, location: ClusterLocation) -> list[ReplicaRow]:
    """The replicas now, ordered by workload and name. Raises EngineError."""
    pods, usage = await asyncio.gather(list_pods(api, location), read_usage(api, location.selector))
    context = PodContext(SystemClock().now())
    rows: list[ReplicaRow] = []
    for key, group in groupby(pods, key=lambda pod: pod.key):
        parts = list(group)
        metrics = usage.get(parts[0].namespace, ())
        rows += list_rows(ReplicaSource(key, location.name, tuple(pod.part for pod in parts), tuple(metrics)), context)
    return rows


async def read_usage(api: KubeApi, selector: str) -> dict[str, list[ObjectPart]]:
    """What the pods of ``selector`` use, by namespace; nothing where the cluster does not measure it."""
    usage: defaultdict[str, list[ObjectPart]] = defaultdict(list)
    try:
        async with asyncio.timeout(METRICS_SECONDS):
            page = await api.list(POD_METRICS, selector)
    except (TimeoutError, EngineError):
        return usage
    for item in map(_decode, page.items):
        usage[read_text(item, "metadata", "namespace")].append(item)
    return usage
