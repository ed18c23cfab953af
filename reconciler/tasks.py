"""Ends asyncio tasks and processes in bounded time: no shutdown waits for one that does not end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterable
from typing import Any

from reconciler.bugs import internal_error
from reconciler.logs import log

CLOSE_SECONDS = 2.0
"""Seconds that a ``close`` waits for its tasks."""

ENGINES_CLOSE_SECONDS = 5.0
"""Seconds in which all engines together must stop. With ``EXIT_SECONDS``, SIGTERM works within 10 s."""

CANCEL_AGAIN_SECONDS = 0.5
"""Seconds until a running task is cancelled again: it may have swallowed the first cancellation."""

EXIT_SECONDS = 4.0
"""Seconds in which a process must end after its work is done."""


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]], owner: str, seconds: float = CLOSE_SECONDS) -> None:
    """Cancel ``tasks`` and return when they have ended, after ``seconds`` at the latest.

    A task that still runs is logged by its name, with ``owner``, and abandoned.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    pending = {task for task in tasks if not task.done()}
    while pending and (left := deadline - loop.time()) > 0:
        for task in pending:
            task.cancel()
        pending = await _wait_for_tasks(pending, min(left, CANCEL_AGAIN_SECONDS))
    _log_abandoned(pending, owner)


async def wait_at_most(tasks: Iterable[asyncio.Task[Any]], owner: str, seconds: float = CLOSE_SECONDS) -> None:
    """Return when ``tasks`` have ended, at the latest after ``seconds``. A task that remains is logged and goes on."""
    pending = {task for task in tasks if not task.done()}
    _log_abandoned(await _wait_for_tasks(pending, seconds) if pending else pending, owner)


async def wait_or_kill(child: asyncio.subprocess.Process, seconds: float) -> None:
    """Return when ``child``, which has been asked to end, has ended; it is killed after ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def exit_at_most(seconds: float = EXIT_SECONDS) -> threading.Timer:
    """End this process in ``seconds`` with code 0, unless the returned timer is cancelled before.

    For the end of the daemon, after its last write: neither a task that ignores its cancellation nor a thread in a
    system call that never returns can keep the process alive.
    """
    names = _list_task_names(task for task in asyncio.all_tasks() if task is not asyncio.current_task())

    def leave() -> None:
        threads = sorted(thread.name for thread in threading.enumerate() if not thread.daemon)
        log().error("exit_forced", tasks=names, threads=threads, seconds=seconds)
        os._exit(0)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()
    return timer


async def _wait_for_tasks(tasks: set[asyncio.Task[Any]], seconds: float) -> set[asyncio.Task[Any]]:
    done, pending = await asyncio.wait(tasks, timeout=seconds)
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            internal_error(error, f"task {task.get_name()}")
    return pending


def _log_abandoned(pending: set[asyncio.Task[Any]], owner: str) -> None:
    if pending:
        log().error("tasks_abandoned", owner=owner, tasks=_list_task_names(pending))


def _list_task_names(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    return sorted(task.get_name() for task in tasks)
