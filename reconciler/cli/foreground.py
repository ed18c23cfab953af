"""A daemon in the foreground of a terminal: it announces the addresses that answer, and ends what it ran."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli.output.printing import print_error
from reconciler.errors import EngineError, LockedError

if TYPE_CHECKING:
    from reconciler.engines.reading import SupportsTrials
    from reconciler.settings import Settings

POLL_SECONDS = 0.5
"""Seconds between checks of ready replicas."""


async def run_in_foreground(settings: Settings, show: Callable[[str], None], file: Path | None = None) -> None:
    """Run the daemon with the settings in ``file`` and print the ready addresses; stop the replicas at the end.

    Raises LockedError if another daemon uses the state directory; its replicas then stay.
    """
    from reconciler.daemon.service import run_daemon

    serving = asyncio.create_task(run_daemon(settings, file=file))
    await asyncio.sleep(0)  # the daemon has installed its signal handlers
    # Closing the terminal ends everything; for the daemon, SIGHUP only means reload.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, signal.raise_signal, signal.SIGTERM)
    announcing = asyncio.create_task(announce_addresses(settings, show))
    await asyncio.wait([serving])
    announcing.cancel()
    if not isinstance(serving.exception(), LockedError):
        await end_replicas(settings)
    await serving


async def announce_addresses(settings: Settings, show: Callable[[str], None]) -> None:
    """Print the address of each workload, whenever the number of its ready replicas changes, until cancelled."""
    previous: dict[str, str] = {}
    while True:
        now = read_addresses(settings)
        for name in sorted(previous.keys() | now.keys()):
            if now.get(name) != previous.get(name):
                show(f"  {name}: {now.get(name, 'no replica is ready')}")
        previous = now
        await asyncio.sleep(POLL_SECONDS)


def read_addresses(settings: Settings) -> dict[str, str]:
    """Where each workload with ready replicas answers, by ``GVC/WORKLOAD at LOCATION``."""
    return {
        f"{name} at {reader.location}": address
        for reader in list_trials(settings)
        for name, address in reader.addresses().items()
    }


async def end_replicas(settings: Settings) -> None:
    """Stop everything that runs on this machine for ``settings``; errors are printed."""
    for reader in list_trials(settings):
        try:
            await reader.end()
        except EngineError as error:
            print_error(str(error))


def list_trials(settings: Settings) -> list[SupportsTrials]:
    """The locations that can be tried on this machine."""
    from reconciler.engines.plugin import make_readers
    from reconciler.engines.reading import SupportsTrials

    return [reader for reader in make_readers(settings) if isinstance(reader, SupportsTrials)]
