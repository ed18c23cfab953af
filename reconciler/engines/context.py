"""The inputs of an engine."""

from __future__ import annotations

import msgspec

from reconciler.clock import Clock
from reconciler.engines.protocol import SecretReader
from reconciler.records.store import Records
from reconciler.settings import Settings


class EngineContext(msgspec.Struct, frozen=True):
    """The inputs of the engine for one location (``""`` for resources without a location).

    A ``decommissioning`` engine ends what it ran there, because the location now has another engine.
    """

    records: Records
    location: str
    settings: Settings
    clock: Clock
    secrets: SecretReader
    decommissioning: bool = False
