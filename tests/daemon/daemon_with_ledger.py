"""A daemon whose location ``there`` is a ledger, which others can change while it runs.

``python -m tests.daemon.daemon_with_ledger DIRECTORY [watched]``: ``watched`` lets the engine notice changes itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from reconciler import logs
from reconciler.daemon.service import run_daemon
from reconciler.engines.context import EngineContext
from reconciler.engines.protocol import Engine, Observation
from reconciler.engines.recorded.plugin import RecordedPlugin
from reconciler.model.key import Key
from reconciler.settings import load_settings, settings_path
from tests.support.engines import LedgerEngine


class WatchedLedger(LedgerEngine):
    """Notices when the ledger changes."""

    async def changes(self) -> AsyncIterator[frozenset[Key]]:
        """Yields at every change of the ledger what differs, or nothing where only its time does."""
        touched, resources = self.touched(), self.resources()
        while True:
            await asyncio.sleep(0.02)
            if (now := self.touched()) != touched:
                touched, before, resources = now, resources, self.resources()
                yield frozenset(
                    Key.parse(key) for key in before.keys() | resources.keys() if before.get(key) != resources.get(key)
                )

    async def observe_some(self, keys: Collection[Key]) -> list[Observation]:
        """What the map contains of ``keys``."""
        return [seen for seen in await self.observe() if seen.key in keys]


def main(directory: Path, watched: bool) -> None:
    """Run the daemon."""
    settings = load_settings(settings_path(None))
    logs.configure_logging(settings.log.format, settings.log.level)
    kind = WatchedLedger if watched else LedgerEngine

    def make(context: EngineContext) -> Engine:
        if context.location == "there":
            return kind(directory, context.location)
        return RecordedPlugin().make(context)

    asyncio.run(run_daemon(settings, {"recorded": make}, settings_path(None)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "watched" in sys.argv)
