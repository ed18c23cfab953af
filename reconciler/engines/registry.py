"""The engines by their names in the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.clock import Clock
from reconciler.engines.context import EngineContext
from reconciler.engines.host.runtimes.plugins import runtime_names, runtime_of, runtime_plugin, runtimes_in_use
from reconciler.engines.protocol import Engine, SecretReader
from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.errors import UsageError
from reconciler.listing import list_paths
from reconciler.records.store import Records
from reconciler.settings import Settings

if TYPE_CHECKING:
    from reconciler.engines.host.runtimes.protocol import Runtime

MakeEngine = Callable[[EngineContext], Engine]


def _recorded(site: EngineContext) -> Engine:
    return RecordedEngine(site.records, site.location, site.settings.org, site.settings.endpoint_domain, site.clock)


def _host(site: EngineContext) -> Engine:
    from reconciler.engines.host.engine import HostEngine

    root = site.settings.state / "host" / site.location
    return HostEngine(site, root, _runtime(site, root))


def _runtime(site: EngineContext, root: Path) -> Runtime:
    """The runtime of the location, together with former ones that still have containers or images there."""
    from reconciler.engines.host.images.pulled import has_pulled
    from reconciler.engines.host.runtimes.handover import HandoverRuntime

    current = runtime_of(site.settings, site.location)
    names = [current, *(name for name in runtimes_in_use(root) if name != current)]
    newest, *former = [runtime_plugin(name).make(root, site.location, site.clock, site.settings) for name in names]
    pullers = [name for name in runtime_names() if runtime_plugin(name).uses_images]
    unused = pullers if not {*pullers} & {*names} and has_pulled(root) else []
    idle = [runtime_plugin(name).make(root, site.location, site.clock, site.settings) for name in unused]
    return HandoverRuntime(newest, former, idle) if former or idle else newest


ENGINES: Mapping[str, MakeEngine] = {"recorded": _recorded, "host": _host}


def decommissioned_engines(settings: Settings, records: Records, clock: Clock, reveal: SecretReader) -> list[Engine]:
    """Engines that end what they ran at locations that now have another engine.

    At a location that the settings no longer name, everything keeps running: its end was not requested.
    """
    root = settings.state / "host"
    places = [path.name for path in list_paths(root, "*")]
    rebound = [place for place in places if place in settings.locations and settings.locations[place].engine != "host"]
    return [_host(EngineContext(records, place, settings, clock, reveal, decommissioning=True)) for place in rebound]


def engines_for(
    settings: Settings, records: Records, clock: Clock, reveal: SecretReader, known: Mapping[str, MakeEngine] = ENGINES
) -> dict[str, Engine]:
    """One engine for each location in the settings, and the recorded engine for resources without a location.

    Raises UsageError for an engine that does not exist.
    """
    made = {"": known["recorded"](EngineContext(records, "", settings, clock, reveal))}
    for location, bound in settings.locations.items():
        if bound.engine not in known:
            raise UsageError(f"location {location}: there is no engine {bound.engine!r}; known are {', '.join(known)}")
        made[location] = known[bound.engine](EngineContext(records, location, settings, clock, reveal))
    return made
