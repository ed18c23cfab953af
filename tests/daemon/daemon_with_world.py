"""A daemon whose location ``there`` has a world of its own, which others can change while it runs.

``python -m tests.daemon.daemon_with_world DIRECTORY [watched]``: ``watched`` lets the engine notice changes itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from reconciler import logs
from reconciler.daemon.service import serve
from reconciler.engines.context import EngineContext
from reconciler.engines.protocol import Engine
from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.settings import load_settings, settings_path
from tests.support.engines import LedgerEngine


class WatchedLedger(LedgerEngine):
    """Notices when its world is another."""

    async def changes(self) -> AsyncIterator[None]:
        """Yields at every change of the world."""
        known = self.touched()
        while True:
            await asyncio.sleep(0.02)
            if (now := self.touched()) != known:
                known = now
                yield


def main(directory: Path, watched: bool) -> None:
    """Run the daemon."""
    settings = load_settings(settings_path(None))
    logs.configure(settings.log.format, settings.log.level)
    kind = WatchedLedger if watched else LedgerEngine

    def make(site: EngineContext) -> Engine:
        if site.location == "there":
            return kind(directory, site.location)
        assert site.tables is not None
        return RecordedEngine(site.tables, site.location, site.settings.org, site.settings.endpoint_domain, site.clock)

    asyncio.run(serve(settings, {"recorded": make}, settings_path(None)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "watched" in sys.argv)
