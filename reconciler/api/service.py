"""What all requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from reconciler.access.store import AccessStore
from reconciler.api.authentication import Authenticator, write_bootstrap
from reconciler.api.reading import Reader
from reconciler.api.webhooks import Webhooks
from reconciler.clock import Clock
from reconciler.daemon.wake import wake
from reconciler.settings import Settings


class Api:
    """The settings, the records, and the credentials; ``is_alive`` is whether the daemon's event loop turns."""

    def __init__(self, settings: Settings, clock: Clock, is_alive: Callable[[], bool]) -> None:
        self.settings = settings
        self.clock = clock
        self.is_alive = is_alive
        self.reader = Reader(settings, clock.now)
        self.store = AccessStore.open(settings.state, clock.now)
        write_bootstrap(self.store, settings.state)
        hooks = settings.api.webhooks if settings.api is not None else ()
        self.webhooks = Webhooks(hooks, partial(wake, settings.state, reason="webhook"), clock.monotonic)
        self._write_locks: dict[str, asyncio.Lock] = {}
        self.authenticator = Authenticator(self.store, self.reader.records.applied.exists, clock.monotonic)

    def write_lock(self, source: str) -> asyncio.Lock:
        """Lets one change at a time be made in ``source``, so that those of this server never conflict."""
        return self._write_locks.setdefault(source, asyncio.Lock())

    def close(self) -> None:
        """Close what is open."""
        self.store.close()
        self.reader.close()
