"""The daemon of the soak: ``python -m tests.soak.daemon FILE`` writes its asyncio tasks to FILE at each SIGUSR2."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import select
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from reconciler import logs
from reconciler.daemon.service import run_daemon
from reconciler.settings import load_settings, settings_path


def write_tasks(file: Path) -> None:
    """The number of tasks by the coroutine that they run; written whole, so that a reader never sees a part."""
    names = Counter(
        f"{getattr(task.get_coro(), '__qualname__', task)}{' (cancelled)' * bool(task.cancelling())}"
        for task in asyncio.all_tasks()
    )
    with file.with_suffix(".stacks").open("w") as stacks:
        for task in asyncio.all_tasks():
            task.print_stack(file=stacks)
    new = file.with_suffix(".new")
    new.write_text("".join(f"{count} {name}\n" for name, count in sorted(names.items())))
    new.replace(file)


async def run(file: Path) -> None:
    """Serve until a signal ends it."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, write_tasks, file)
    await run_daemon(load_settings(settings_path(None)))


def main(file: str) -> None:
    """Run the daemon. select sleeps in place of time.sleep, which fails under libfaketime (clock_nanosleep).

    What it starts has the clock of this host: a HAProxy before 2.8.11 ends all that is open if the clock is set at a
    moment in which it works. The busier it is, the more often that happens, whatever the daemon does.
    """
    os.environ.pop("LD_PRELOAD", None)
    time.sleep = lambda seconds: select.select([], [], [], seconds) and None  # type: ignore[assignment,func-returns-value]
    settings = load_settings(settings_path(None))
    logs.configure_logging(settings.log.format, settings.log.level)
    asyncio.run(run(Path(file)))


if __name__ == "__main__":
    main(sys.argv[1])
