"""What everything that observes or changes a location on a cluster works with."""

from __future__ import annotations

from typing import NamedTuple

from reconciler.engines.context import EngineContext
from reconciler.engines.kubernetes.applying import ObjectApplier
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.desired import DesiredObjects
from reconciler.engines.kubernetes.mirror import ClusterMirror


class ClusterParts(NamedTuple):
    """The inputs of the engine, its cluster, what that has, what it should have, and what makes it have that."""

    context: EngineContext
    api: KubeApi
    mirror: ClusterMirror
    desired: DesiredObjects
    applier: ObjectApplier
