"""Executions of cron workloads as real processes, adopted by the next daemon."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reconciler.clock import SystemClock
from reconciler.engines.host.runtimes.process.runtime import ProcessRuntime
from tests.engines.host.cron.real import apply, ask, daemon, reached, stored_output
from tests.engines.host.runtimes.process.kit import marked
from tests.support.host_sandbox import open_place
from tests.support.plans import ExecutorHarness
from tests.support.waiting import until


def test_an_execution_outlives_the_daemon_and_the_next_one_records_its_end() -> None:
    with open_place() as place:
        asyncio.run(outlive(place))


def runtime(root: Path) -> ProcessRuntime:
    """The runtime of one life."""
    return ProcessRuntime(root / "here", "here", SystemClock(), limited=False)


async def outlive(root: Path) -> None:
    """Run one execution to its end, another across a restart of the daemon, and one to its end between two daemons."""
    shared = root / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    go, began = shared / "go", shared / "began"
    waits = f"echo first; echo >> {began}; until [ -e {go} ]; do sleep 0.05; done; echo last words; exit $CODE"
    harness = ExecutorHarness(root, SystemClock())
    try:
        async with daemon(harness, root, runtime(root)) as engine:
            await apply(harness, image="job", command="sh", args=["-c", "exit 4"])
            await ask(engine)
            failed = await reached(engine, "Failure")
            assert failed.conditions[0]["message"] == "main ended with 4 (Error)"
            await ask(engine, args=["-c", waits], env=[{"name": "CODE", "value": "0"}])
            await until(began.exists, "the start of the second execution")
        async with daemon(harness, root, runtime(root)) as engine:
            assert (await reached(engine, "Active")).name != failed.name
            go.touch()
            assert (await reached(engine, "Success")).replica
            assert began.read_text() == "\n"
            go.unlink()
            last = await ask(engine, args=["-c", waits], env=[{"name": "CODE", "value": "3"}])
            await until(lambda: began.read_text() == "\n\n", "the start of the third execution")
        go.touch()
        await until(lambda: not marked(root / "here"), "its end while no daemon runs")
        async with daemon(harness, root, runtime(root)) as engine:
            assert (await reached(engine, "Failure")).name == last
            # What it wrote is collected beside that.
            await until(lambda: stored_output(root, last) == ["first", "last words"], "all of its output")
    finally:
        go.touch()
        harness.records.close()
