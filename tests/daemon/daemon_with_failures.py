"""A daemon whose location ``there`` fails or hangs for as long as a file ``fail`` or ``hang`` lies in a directory.

``python -m tests.daemon.daemon_with_failures DIRECTORY``
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from reconciler import logs
from reconciler.daemon.service import run_daemon
from reconciler.engines.context import EngineContext
from reconciler.engines.protocol import Engine, Outcome
from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.errors import EngineError
from reconciler.planning.plan import Step
from reconciler.reasons import Reason
from reconciler.settings import load_settings, settings_path


class TroubledEngine(RecordedEngine):
    """A recorded engine that needs time, and luck."""

    immediate = False
    parallel = 1
    trouble = Path()

    async def perform(self, step: Step) -> Outcome:
        """Carry ``step`` out once nothing hinders it."""
        while (self.trouble / "hang").exists():
            await asyncio.sleep(0.01)
        if (self.trouble / "fail").exists():
            raise EngineError("there is trouble", reason=Reason.NO_FREE_PORT)
        return await super().perform(step)


def main(directory: Path) -> None:
    """Run the daemon."""
    settings = load_settings(settings_path(None))
    logs.configure_logging(settings.log.format, settings.log.level)
    TroubledEngine.trouble = directory

    def make(context: EngineContext) -> Engine:
        kind = TroubledEngine if context.location == "there" else RecordedEngine
        return kind(
            context.tables, context.location, context.settings.org, context.settings.endpoint_domain, context.clock
        )

    asyncio.run(run_daemon(settings, {"recorded": make}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
