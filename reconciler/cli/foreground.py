"""A daemon in the foreground of a terminal: it announces the addresses that answer, and ends what it ran."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli.output.printing import print_error
from reconciler.cli.output.progress import LINE_SECONDS
from reconciler.cli.output.wait_display import sum_up_lines, unhealthy_lines
from reconciler.cli.page_links import announce_page
from reconciler.errors import EngineError, LockedError, RecordsError

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
    others: list[asyncio.Task[None]] = []
    try:
        await asyncio.sleep(0)  # the daemon has installed its signal handlers
        # Closing the terminal ends everything; for the daemon, SIGHUP only means reload.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, signal.raise_signal, signal.SIGTERM)
        others += _start_announcing(settings, show, file)
        await asyncio.wait([serving])
    finally:
        # Ctrl-C before the daemon heeded signals cancels this, and what an earlier daemon left behind ends, too.
        serving.cancel()
        await asyncio.wait([serving])
        for other in others:
            other.cancel()
        if serving.cancelled() or not isinstance(serving.exception(), LockedError):
            await end_replicas(settings)
    await serving


def _start_announcing(
    settings: Settings, show: Callable[[str], None], file: Path | None
) -> Iterator[asyncio.Task[None]]:
    yield asyncio.create_task(announce_addresses(settings, show))
    yield asyncio.create_task(announce_page(settings, show))
    yield asyncio.create_task(announce_progress(settings, show))
    if file is not None:
        from reconciler.cli.local.location_binding import bind_new_locations

        yield asyncio.create_task(bind_new_locations(settings, file))


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


async def announce_progress(settings: Settings, show: Callable[[str], None]) -> None:
    """Print each 10 seconds what is on its way, such as the pull of an image, unless it stands still."""
    previous = ""
    while True:
        await asyncio.sleep(LINE_SECONDS)
        lines = await asyncio.to_thread(_read_loading, settings)
        text = sum_up_lines(lines) if lines else ""
        if text not in ("", previous):
            show(f"  {text}")
        previous = text


def _read_loading(settings: Settings) -> list[str]:
    """A line for each resource that is on its way; none where the records cannot be read."""
    from reconciler.records.store import FILE, Records

    with suppress(RecordsError), closing(Records.open(settings.state / FILE, read_only=True)) as records:
        return unhealthy_lines(records, loading_only=True)
    return []


def read_addresses(settings: Settings) -> dict[str, str]:
    """Where each workload with ready replicas answers, by ``GVC/WORKLOAD at LOCATION``."""
    return {
        f"{name} at {reader.location}": address
        for reader in list_trials(settings)
        for name, address in reader.addresses().items()
    }


async def end_replicas(settings: Settings) -> None:
    """Stop everything that runs on this machine for ``settings``; errors are printed."""
    trials = list_trials(settings)
    for reader in trials:
        try:
            await reader.end()
        except EngineError as error:
            print_error(str(error))
    _record_end(settings, {reader.location for reader in trials})


def _record_end(settings: Settings, locations: Collection[str]) -> None:
    """Record that no workload at ``locations`` is healthy any more, so that nobody takes one for what it was."""
    from reconciler.clock import SystemClock
    from reconciler.model.key import Kind
    from reconciler.model.record import Health
    from reconciler.records.store import Records

    with suppress(RecordsError), closing(Records.open_existing(settings.state, SystemClock())) as records:
        ended = [record for record in records.applied.items(Kind.WORKLOAD) if record.location in locations]
        with records.transaction():
            for record in ended:
                records.applied.update_seen(record.key, record.location, Health.LOADING, record.state)


def list_trials(settings: Settings) -> list[SupportsTrials]:
    """The locations that can be tried on this machine."""
    from reconciler.engines.plugin import make_readers
    from reconciler.engines.reading import SupportsTrials

    return [reader for reader in make_readers(settings) if isinstance(reader, SupportsTrials)]
