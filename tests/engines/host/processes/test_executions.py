"""Executions of cron workloads as real processes, adopted by the next daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext
from reconciler.engines.deployment import Execution, read_deployment
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.host.runtimes.process.runtime import ProcessRuntime
from reconciler.model.key import Key
from reconciler.settings import HostSettings, LocationSettings, Settings
from tests.engines.host.provisioning.kit import vault
from tests.support.host_sandbox import open_place
from tests.support.plans import Bench, ends, plan, step
from tests.support.waiting import until

WEB = "workload/shop/web"


@asynccontextmanager
async def daemon(bench: Bench, root: Path) -> AsyncIterator[HostEngine]:
    """One life of a daemon; what runs goes on after it."""
    host = HostSettings(termination_scale=0.0, default_user="root")
    settings = Settings("acme", (), root, locations={"here": LocationSettings("host", dataplane="builtin")}, host=host)
    context = EngineContext(bench.records, "here", settings, SystemClock(), vault({}))
    engine = HostEngine(context, root / "here", ProcessRuntime(root / "here", "here", SystemClock(), limited=False))
    bench.engines["here"] = engine
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


async def newest(engine: HostEngine) -> Execution:
    """The newest execution that the status shows."""
    [seen] = await engine.observe()
    deployment = read_deployment(seen.state)
    assert deployment is not None
    return deployment.status.job_executions[-1]


async def reached(engine: HostEngine, status: str) -> Execution:
    """The newest execution, once it has that status."""
    for _ in range(1000):
        if (found := await newest(engine)).status == status:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"never {status}: {found}")


def test_an_execution_outlives_the_daemon_and_the_next_one_records_its_end() -> None:
    with open_place() as place:
        asyncio.run(outlive(place))


async def outlive(root: Path) -> None:
    """Run one execution to its end, and another across a restart of the daemon."""
    spec = {
        "type": "cron",
        "containers": [{"name": "main", "image": "job", "command": "sh", "args": ["-c", "exit 4"]}],
        "job": {"schedule": "0 0 29 2 *"},
        "defaultOptions": {},
    }
    shared = root / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    go, began = shared / "go", shared / "began"
    waits = f"echo >> {began}; until [ -e {go} ]; do sleep 0.05; done; exit $CODE"

    async def ask(engine: HostEngine, override: dict[str, Any]) -> None:
        asked = {"location": "here", "containerOverrides": [{"name": "main", **override}]}
        await engine.command(Key.parse(WEB), "runCronWorkload", asked)

    async def story() -> None:
        bench = Bench(root, SystemClock())
        try:
            async with daemon(bench, root) as engine:
                made = step(WEB, body={"kind": "workload", "name": "web", "spec": spec}, engine="host")
                assert set(ends(await bench.run(plan(made))).values()) == {"applied"}
                await ask(engine, {})
                failed = await reached(engine, "Failure")
                assert failed.conditions[0]["message"] == "main ended with 4 (Error)"
                await ask(engine, {"args": ["-c", waits], "env": [{"name": "CODE", "value": "0"}]})
                await until(began.exists, "the start of the second execution")
            async with daemon(bench, root) as engine:
                assert (await reached(engine, "Active")).name != failed.name
                go.touch()
                assert (await reached(engine, "Success")).replica
                assert began.read_text() == "\n"
        finally:
            go.touch()
            bench.records.close()

    await story()
