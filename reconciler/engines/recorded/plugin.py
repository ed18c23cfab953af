"""The plugin of the recorded engine: there is nothing to read where nothing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from reconciler.engines.context import EngineContext
    from reconciler.engines.protocol import Engine
    from reconciler.settings import Settings

ENGINE = "recorded"


class RecordedReader(msgspec.Struct, frozen=True):
    """Shows nothing: the records have everything."""

    location: str
    engine: str = ENGINE


class RecordedPlugin:
    """The engine that records, and runs nothing."""

    name = ENGINE
    runs_workloads = False

    def make(self, context: EngineContext) -> Engine:
        """The engine of one location."""
        from reconciler.engines.recorded.engine import RecordedEngine

        settings, tables = context.settings, context.tables
        assert tables is not None, "the registry lets this engine write the records"
        return RecordedEngine(tables, context.location, settings.org, settings.endpoint_domain, context.clock)

    def make_reader(self, settings: Settings, location: str) -> RecordedReader:  # noqa: ARG002
        """A reader of nothing."""
        return RecordedReader(location)


PLUGIN = RecordedPlugin()
