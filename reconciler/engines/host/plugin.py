"""The plugin of the host engine. It imports the rest of this package only where that is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from reconciler.engines.host.paths import ENGINE, find_directories, find_directory
from reconciler.engines.host.reading.location import HostReader

if TYPE_CHECKING:
    from reconciler.checks import Check, UserIdentity
    from reconciler.clock import Clock
    from reconciler.engines.context import EngineContext
    from reconciler.engines.plugin import ForeseenLimitation, ForeseenRollout, ForeseenStop, PlanTrial
    from reconciler.engines.protocol import Engine, SecretReader
    from reconciler.planning.plan import Step
    from reconciler.records.store import Records
    from reconciler.settings import Settings


class HostPlugin:
    """The engine that runs workloads on this machine."""

    name = ENGINE
    runs_workloads = True
    holds_requests = True

    def make(self, context: EngineContext) -> Engine:
        """The engine of one location, with the runtimes that it has there."""
        from reconciler.engines.host.engine import HostEngine
        from reconciler.engines.host.runtimes.handover import make_location_runtime

        root = find_directory(context.settings.state, context.location)
        return HostEngine(context, root, make_location_runtime(context.settings, context.location, root, context.clock))

    def make_reader(self, settings: Settings, location: str) -> HostReader:
        """A reader of the files of a location."""
        return HostReader(settings, location)

    def list_locations(self, settings: Settings) -> list[str]:
        """The locations that have a directory."""
        from reconciler.engines.host.logs.segments import list_names

        return sorted(list_names(find_directories(settings.state)))

    def foresee_limitations(
        self, settings: Settings, records: Records, steps: Iterable[Step]
    ) -> Sequence[ForeseenLimitation]:
        """The limitations that ``steps`` add to those of the recorded workloads."""
        from reconciler.engines.host.reading.foreseen import foresee_limitations

        return foresee_limitations(settings, records, steps)

    def foresee_stops(self, settings: Settings, records: Records, steps: Iterable[Step]) -> Sequence[ForeseenStop]:
        """The replicas that stop since ``steps`` make their volumes larger."""
        from reconciler.engines.host.reading.foreseen import foresee_stops

        return foresee_stops(settings, records, steps)

    def foresee_rollouts(self, settings: Settings) -> Sequence[ForeseenRollout]:
        """The workloads with replicas in another runtime than that of the settings."""
        from reconciler.engines.host.reading.foreseen import foresee_rollouts

        return foresee_rollouts(settings)

    def try_steps(self, settings: Settings, records: Records, steps: Iterable[Step]) -> PlanTrial | None:  # noqa: ARG002
        """What this host refuses of ``steps``, as it is now."""
        from reconciler.engines.host.reading.foreseen import try_steps

        return try_steps(settings, steps)

    def check_host(
        self, settings: Settings, who: UserIdentity, pid: int | None, steps: Sequence[Step] | None
    ) -> Iterator[Check]:
        """Check what the engine needs of this host, and what ``steps`` do."""
        from reconciler.engines.host.reading.host_checks import check_workloads

        return check_workloads(settings, who, pid, steps)

    def check_certificates(
        self, settings: Settings, records: Records | None, reveal: SecretReader, clock: Clock
    ) -> Iterator[Check]:
        """Check the certificates of the ingresses of this host."""
        from reconciler.engines.host.reading.certificate_checks import check_certificates

        return check_certificates(settings, records, reveal, clock)

    def suggest_location(self) -> dict[str, str]:
        """A location of this engine, where this machine decides about the runtime."""
        return {"engine": self.name}

    def runs_host_programs(self, settings: Settings, location: str) -> bool:
        """Whether the runtime of the location uses no images. With `auto`, the machine of the daemon decides.

        It is this one if the state directory is here.
        """
        from reconciler.engines.host.runtimes.plugins import AUTO, runtime_of, runtime_plugin

        if settings.locations[location].runtime == AUTO and not settings.state.is_dir():
            return False
        return not runtime_plugin(runtime_of(settings, location)).uses_images


PLUGIN = HostPlugin()
