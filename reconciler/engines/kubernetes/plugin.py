"""The plugin of the engine for Kubernetes clusters. It imports the rest of this package only where that is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.engines.kubernetes.reading.location import KubernetesReader
from reconciler.settings import ClusterSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from reconciler.checks import Check, UserIdentity
    from reconciler.clock import Clock
    from reconciler.engines.context import EngineContext
    from reconciler.engines.plugin import ForeseenLimitation, ForeseenStop, PlanTrial, RenderedObjects
    from reconciler.engines.protocol import Engine, SecretReader
    from reconciler.model.key import Key
    from reconciler.planning.plan import Step
    from reconciler.records.store import Records
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

    def foresee_limitations(
        self, settings: Settings, records: Records, steps: Iterable[Step]
    ) -> Sequence[ForeseenLimitation]:
        """The limitations that ``steps`` add to those of the recorded workloads."""
        from reconciler.engines.kubernetes.reading.foreseen import foresee_limitations

        return foresee_limitations(settings, records, steps, ENGINE)

    def foresee_stops(
        self,
        settings: Settings,  # noqa: ARG002
        records: Records,  # noqa: ARG002
        steps: Iterable[Step],  # noqa: ARG002
    ) -> Sequence[ForeseenStop]:
        """None: what a cluster stops while a volume grows, its driver decides."""
        return ()

    def try_steps(self, settings: Settings, records: Records, steps: Iterable[Step]) -> PlanTrial:
        """What clusters refuse of ``steps``, and which objects they make anew."""
        from reconciler.engines.kubernetes.reading.trial import try_steps

        return try_steps(settings, records, steps, ENGINE)

    def render(
        self,
        settings: Settings,
        records: Records,
        location: str,
        reveal: SecretReader,
        takes: Callable[[Key], bool],
    ) -> Iterator[RenderedObjects]:
        """The objects of recorded workloads, as the engine applies them."""
        from reconciler.engines.context import LocationRecords
        from reconciler.engines.kubernetes.manifests import render_location

        return render_location(settings, LocationRecords(records, location), reveal, takes)

    def render_planned(
        self,
        settings: Settings,
        records: Records,
        location: str,
        steps: Sequence[Step],
        takes: Callable[[Key], bool],
    ) -> Iterator[RenderedObjects]:
        """The objects of workloads, as the engine applies them once ``steps`` are performed."""
        from reconciler.engines.kubernetes.manifests import render_planned

        return render_planned(settings, records, location, steps, takes)

    def mask(self, objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """``objects`` without the data of Secrets."""
        from reconciler.engines.kubernetes.manifests import mask_secrets

        return mask_secrets(objects)

    def render_access(self, namespace: str, account: str) -> list[dict[str, Any]]:
        """A ClusterRole with the least rights, and its binding."""
        from reconciler.engines.kubernetes.access import render_access

        return render_access(namespace, account)

    def check_host(
        self,
        settings: Settings,
        who: UserIdentity,  # noqa: ARG002
        pid: int | None,  # noqa: ARG002
        steps: Sequence[Step] | None,  # noqa: ARG002
    ) -> Iterator[Check]:
        """Check the cluster of each location: that it answers, and gives the rights."""
        if all(bound.engine != ENGINE for bound in settings.locations.values()):
            return iter(())
        from reconciler.engines.kubernetes.reading.checks import check_clusters

        return check_clusters(settings, ENGINE)

    def check_certificates(
        self,
        settings: Settings,  # noqa: ARG002
        records: Records | None,  # noqa: ARG002
        reveal: SecretReader,  # noqa: ARG002
        clock: Clock,  # noqa: ARG002
    ) -> Iterator[Check]:
        """Nothing: the gateway of a cluster has the certificates."""
        return iter(())


PLUGIN = KubernetesPlugin()
