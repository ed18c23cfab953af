"""The plugin of the engine for Kubernetes clusters. It imports the rest of this package only where that is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.engines.kubernetes.reading.location import KubernetesReader
from reconciler.settings import ClusterSettings

if TYPE_CHECKING:
    from reconciler.engines.context import EngineContext
    from reconciler.engines.protocol import Engine
    from reconciler.settings import Settings

ENGINE = "kubernetes"


class KubernetesPlugin:
    """The engine that runs workloads on a cluster."""

    name = ENGINE
    runs_workloads = True

    def make(self, context: EngineContext) -> Engine:
        """The engine of one location."""
        from reconciler.engines.kubernetes.engine import KubernetesEngine

        return KubernetesEngine(context)

    def make_reader(self, settings: Settings, location: str) -> KubernetesReader:
        """A reader of a location."""
        return KubernetesReader(settings, location)

    def list_locations(self, settings: Settings) -> list[str]:
        """The locations whose settings name a cluster, also where they bind them to another engine now."""
        plain = ClusterSettings()
        return sorted(name for name, bound in settings.locations.items() if bound.cluster != plain)


PLUGIN = KubernetesPlugin()
