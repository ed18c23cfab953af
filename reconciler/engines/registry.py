"""Engines by the name that settings give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reconciler.clock import Clock
from reconciler.engines.protocol import Engine
from reconciler.engines.recorded import RecordedEngine
from reconciler.errors import UsageError
from reconciler.records.store import Records
from reconciler.settings import Settings

MakeEngine = Callable[[Records, str, Settings, Clock], Engine]
"""Makes the engine of one location (``""``: of resources without a place)."""


def _recorded(records: Records, location: str, settings: Settings, clock: Clock) -> Engine:
    return RecordedEngine(records, location, settings.org, settings.endpoint_domain, clock)


ENGINES: Mapping[str, MakeEngine] = {"recorded": _recorded}


def engines_for(
    settings: Settings, records: Records, clock: Clock, known: Mapping[str, MakeEngine] = ENGINES
) -> dict[str, Engine]:
    """One engine for each location that the settings bind, and the recorded one for what has no place.

    Raises UsageError for an engine that does not exist.
    """
    made = {"": known["recorded"](records, "", settings, clock)}
    for location, bound in settings.locations.items():
        if bound.engine not in known:
            raise UsageError(f"location {location}: there is no engine {bound.engine!r}; known are {', '.join(known)}")
        made[location] = known[bound.engine](records, location, settings, clock)
    return made
