"""Health is observed again when a replica becomes available."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reconciler.engines.host.decisions.availability import MIN_UNPROBED_UPTIME
from tests.engines.host.kit import HostHarness, played


async def watch(host: HostHarness, changed: asyncio.Event) -> None:
    """Set ``changed`` at each change that the engine notices; the daemon observes again then."""
    async for _ in host.engine.changes():
        changed.set()


def test_a_replica_that_becomes_available_while_something_else_happens_is_a_change(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.ask(1)
        await host.time.advance(MIN_UNPROBED_UPTIME / 2)
        changed = asyncio.Event()
        watching = asyncio.create_task(watch(host, changed))
        await host.time.advance(0.0)
        changed.clear()
        host.time.block(MIN_UNPROBED_UPTIME)
        host.engine.refresh()
        await host.time.advance(0.0)
        assert changed.is_set()
        watching.cancel()

    played(tmp_path, story)
