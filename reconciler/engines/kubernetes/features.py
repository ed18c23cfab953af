"""What the API server of a cluster serves beyond Kubernetes itself."""

from __future__ import annotations

import asyncio

from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import ADDITIONAL, POD_METRICS, ObjectKind
from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures


async def read_features(api: KubeApi) -> tuple[ClusterFeatures, list[ObjectKind]]:
    """What the cluster serves, with the additional kinds that may be written there. Raises ClusterError."""
    kinds = (*ADDITIONAL, POD_METRICS)
    groups = sorted({kind.api_version for kind in kinds})
    version = await api.read_version()
    answers = await asyncio.gather(*(api.read_served(group) for group in groups))
    plurals = dict(zip(groups, answers, strict=True))
    served = {kind.kind for kind in kinds if kind.plural in plurals[kind.api_version]}
    features = ClusterFeatures(
        gateway_api="HTTPRoute" in served,
        knative="Service" in served,
        keda_http="HTTPScaledObject" in served,
        snapshots="VolumeSnapshot" in served,
        metrics="PodMetrics" in served,
        version=version,
    )
    return features, [kind for kind in ADDITIONAL if kind.kind in served]
