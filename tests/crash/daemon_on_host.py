"""A daemon whose workloads really run, and that kills itself: ``python -m tests.crash.daemon_on_host [POINT:N]``.

It dies at the N-th time that it comes to POINT.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from reconciler import logs
from reconciler.daemon.service import run_daemon
from reconciler.engines.host.controllers.executions import Executions
from reconciler.engines.host.controllers.lifecycle_hooks import Hooks
from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.runtimes.process.runtime import ProcessRuntime
from reconciler.settings import load_settings, settings_path
from tests.crash import daemon_with_ledger
from tests.crash.daemon_with_ledger import Death

POINTS = (
    *("save", "saved", "start", "started", "hook", "signal", "signalled", "remove", "removed", "forget"),
    *("record", "recorded"),
    *("begin", "commit", "committed", "write"),
)
"""record, recorded: before and after the log of executions is written. save, saved: the same for a replica. start,
started, signal, signalled, remove, removed: around what is done to a container or a replica. hook: as one has begun.
forget: before a replica is taken off the disk. The others are those of the daemon with a ledger."""


def lay_mines(death: Death) -> None:
    """Call ``death`` whenever the program reaches one of the POINTS."""
    daemon_with_ledger.lay_mines(death)
    _around(ReplicaStore, "save", death, "save", "saved")
    _around(ReplicaStore, "remove", death, "forget", "")
    _around(Executions, "_write", death, "record", "recorded")
    _around(Hooks, "run", death, "", "hook")
    for name, past in (("start", "started"), ("signal", "signalled"), ("remove", "removed")):
        _around_waiting(ProcessRuntime, name, death, past)


def _around(owner: type, name: str, death: Death, before: str, after: str) -> None:
    method: Callable[..., Any] = getattr(owner, name)

    def watched(self: object, *args: Any) -> Any:
        death.at(before)
        answer = method(self, *args)
        death.at(after)
        return answer

    setattr(owner, name, watched)


def _around_waiting(owner: type, name: str, death: Death, past: str) -> None:
    method: Callable[..., Any] = getattr(owner, name)

    async def watched(self: object, *args: Any) -> Any:
        death.at(name)
        answer = await method(self, *args)
        death.at(past)
        return answer

    setattr(owner, name, watched)


def main(wish: str) -> None:
    """Run the daemon."""
    settings = load_settings(settings_path(None))
    logs.configure_logging(settings.log.format, settings.log.level)
    lay_mines(Death(wish))
    asyncio.run(run_daemon(settings))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
