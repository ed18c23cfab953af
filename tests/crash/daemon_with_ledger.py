"""A daemon whose engine writes every step down before the records know of it, and that can kill itself.

``python -m tests.crash.daemon_with_ledger LEDGER [POINT:N]``: dies at the N-th time that it comes to POINT.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reconciler import logs
from reconciler.daemon.service import run_daemon
from reconciler.engines.context import EngineContext
from reconciler.engines.execution.recorder import Recorder
from reconciler.engines.protocol import Engine, Observation, Outcome
from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.model.key import Key
from reconciler.planning.plan import Step
from reconciler.records.database import Database
from reconciler.settings import load_settings, settings_path
from reconciler.status.branch.branch import StatusBranch

POINTS = ("begin", "commit", "committed", "perform", "half", "performed", "write", "move", "moved")
"""begin: steps stand in a journal that is not committed. commit, committed: before and after any transaction's end.
perform, half, performed: before, amid and after a step. write: outcomes are recorded and not committed. move, moved:
before and after the status branch moves."""


class Death:
    """Kills this process at the chosen time."""

    def __init__(self, wish: str) -> None:
        self._point, _, number = wish.partition(":")
        self._left = int(number or 0)

    def at(self, point: str) -> None:
        """The program has come to ``point``."""
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class LedgerEngine:
    """Performs a step by a line in a file that only grows; a recorded engine reports what is observed.

    The line is in the kernel's hands once written, which is enough to outlive a SIGKILL. At the location ``there``
    steps take a moment, so that some are always in flight.
    """

    name = "recorded"
    parallel = 8
    can_drift = False

    def __init__(self, ledger: Path, inner: Engine, location: str, death: Death) -> None:
        self.immediate = location != "there"
        self._file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._inner = inner
        self._death = death

    async def observe(self) -> list[Observation]:
        """The state that the recorded engine observes."""
        return await self._inner.observe()

    async def perform(self, step: Step) -> Outcome:
        """Write it down, and be slow about it where that is wanted."""
        self._death.at("perform")
        if not self.immediate:
            await asyncio.sleep(0.002)
        line = {"key": str(step.key), "at": step.location, "action": step.action, "digest": step.digest}
        os.write(self._file, json.dumps(line | {"version": step.version}).encode() + b"\n")
        self._death.at("half")
        outcome = await self._inner.perform(step)
        self._death.at("performed")
        return outcome

    async def command(self, key: Key, name: str, spec: dict[str, Any], command_id: str = "") -> dict[str, Any]:
        """The command of the recorded engine."""
        return await self._inner.command(key, name, spec, command_id)


def _around(owner: type, name: str, before: Callable[..., None], after: Callable[..., None]) -> None:
    """Let ``before`` and ``after`` see every call of a method, which goes on as it was."""
    method = getattr(owner, name)

    def watched(self: object, *args: Any, **options: Any) -> Any:
        before(*args)
        answer = method(self, *args, **options)
        after(*args)
        return answer

    setattr(owner, name, watched)


def lay_mines(death: Death) -> None:
    """Call ``death`` whenever the program reaches one of the POINTS outside the engine."""

    def nothing(*_: object) -> None:
        pass

    def commit(point: str) -> Callable[..., None]:
        return lambda sql, *_: death.at(point) if sql == "COMMIT" else None

    _around(Database, "write", commit("commit"), commit("committed"))
    _around(Recorder, "begin", nothing, lambda jobs: death.at("begin") if jobs else None)
    _around(Recorder, "write", nothing, lambda ended: death.at("write") if ended else None)
    for move in ("_move_ref", "_create_ref"):
        _around(StatusBranch, move, lambda *_: death.at("move"), lambda *_: death.at("moved"))


def main(ledger: Path, wish: str) -> None:
    """Run the daemon."""
    settings = load_settings(settings_path(None))
    logs.configure_logging(settings.log.format, settings.log.level)
    death = Death(wish)
    lay_mines(death)

    def make(context: EngineContext) -> Engine:
        inner = RecordedEngine(
            context.tables, context.location, context.settings.org, context.settings.endpoint_domain, context.clock
        )
        return LedgerEngine(ledger, inner, context.location, death)

    asyncio.run(run_daemon(settings, {"recorded": make}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
