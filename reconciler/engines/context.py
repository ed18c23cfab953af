"""What an engine is made with."""

from __future__ import annotations

import msgspec

from reconciler.clock import Clock
from reconciler.engines.protocol import SecretReader
from reconciler.records.store import Records
from reconciler.settings import Settings


class EngineContext(msgspec.Struct, frozen=True):
    """What the engine of one location (``""``: of resources without a place) is made with.

    One that is ``decommissioning`` ends what it ran there: the location is another engine's now.
    """

    records: Records
    location: str
    settings: Settings
    clock: Clock
    secrets: SecretReader
    decommissioning: bool = False
