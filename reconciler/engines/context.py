"""What an engine is made with."""

from __future__ import annotations

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.provisioning.secrets import Reveal
from reconciler.records.store import Records
from reconciler.settings import Settings


class Site(msgspec.Struct, frozen=True):
    """What the engine of one location (``""``: of resources without a place) is made with.

    One that is ``leaving`` ends what it ran there: the location is another engine's now.
    """

    records: Records
    location: str
    settings: Settings
    clock: Clock
    reveal: Reveal
    leaving: bool = False
