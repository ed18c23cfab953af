"""Ends of tasks: bounded, and what remains is logged by name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from io import StringIO

from reconciler import logs
from reconciler.tasks import cancel_and_wait, wait_at_most

STUBBORN = """
import asyncio, threading, time
from reconciler import logs
from reconciler.tasks import exit_at_most

async def stubborn():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def main():
    logs.configure_logging("json")
    task = asyncio.create_task(stubborn(), name="stubborn")
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    await asyncio.sleep(0)
    exit_at_most(0.2)

asyncio.run(main())
"""


def lines(out: StringIO) -> list[dict[str, object]]:
    """The log in ``out``."""
    return [json.loads(line) for line in out.getvalue().splitlines()]


async def losing(cancellations: int) -> None:
    """Ends at the cancellation after so many lost ones."""
    for _ in range(cancellations):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
    await asyncio.sleep(60)


def test_a_lost_cancellation_is_repeated() -> None:
    async def story() -> None:
        task = asyncio.create_task(losing(1))
        await asyncio.sleep(0)
        await cancel_and_wait([task], "a test")
        assert task.cancelled()

    asyncio.run(story())


def test_a_task_that_does_not_end_is_logged_by_name_and_abandoned() -> None:
    async def story() -> None:
        out = StringIO()
        logs.configure_logging("json", stream=out)
        stubborn = asyncio.create_task(losing(2), name="stubborn")
        patient = asyncio.create_task(asyncio.sleep(60), name="patient")
        await asyncio.sleep(0)
        began = time.monotonic()
        await cancel_and_wait([stubborn], "probes", seconds=0.2)
        await wait_at_most([patient], "engines", seconds=0.2)
        assert time.monotonic() - began < 30
        assert [(each["event"], each["owner"], each["tasks"]) for each in lines(out)] == [
            ("tasks_abandoned", "probes", ["stubborn"]),
            ("tasks_abandoned", "engines", ["patient"]),
        ]
        stubborn.cancel()

    asyncio.run(story())


def test_nothing_keeps_a_process_whose_work_is_done() -> None:
    ended = subprocess.run([sys.executable, "-c", STUBBORN], capture_output=True, text=True, timeout=50, check=False)
    assert ended.returncode == 0
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert (line["event"], line["tasks"]) == ("exit_forced", ["stubborn"])
    assert any(name.startswith("asyncio") for name in line["threads"])
