"""Makes the engines of all locations, and of those that have another engine now."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reconciler.clock import Clock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.plugin import RECORDED, SupportsLeftovers, list_plugins
from reconciler.engines.protocol import Engine, SecretReader
from reconciler.errors import UsageError
from reconciler.records.store import Records
from reconciler.settings import Settings

MakeEngine = Callable[[EngineContext], Engine]


def list_engine_makers() -> dict[str, MakeEngine]:
    """What makes an engine, by the names in the settings."""
    return {plugin.name: plugin.make for plugin in list_plugins()}


def make_decommissioned_engines(
    settings: Settings, records: Records, clock: Clock, reveal: SecretReader
) -> list[Engine]:
    """Engines that end what they ran at locations that now have another engine.

    At a location that the settings no longer name, everything keeps running: its end was not requested.
    """
    return [
        plugin.make(EngineContext(LocationRecords(records, location), settings, clock, reveal, decommissioning=True))
        for plugin in list_plugins()
        if isinstance(plugin, SupportsLeftovers)
        for location in plugin.list_locations(settings)
        if location in settings.locations and settings.locations[location].engine != plugin.name
    ]


def make_engines(
    settings: Settings,
    records: Records,
    clock: Clock,
    reveal: SecretReader,
    known: Mapping[str, MakeEngine] | None = None,
) -> dict[str, Engine]:
    """One engine for each location in the settings, and the recorded engine for resources without a location.

    ``known`` are the engines that there are, None for all plugins. Raises UsageError for one that does not exist.
    """
    known = list_engine_makers() if known is None else known

    def make(name: str, location: str) -> Engine:
        tables = records if name == RECORDED else None
        return known[name](EngineContext(LocationRecords(records, location), settings, clock, reveal, tables=tables))

    made = {"": make(RECORDED, "")}
    for location, bound in settings.locations.items():
        if bound.engine not in known:
            raise UsageError(f"location {location}: there is no engine {bound.engine!r}; known are {', '.join(known)}")
        made[location] = make(bound.engine, location)
    return made
