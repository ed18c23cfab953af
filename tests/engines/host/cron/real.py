"""Cron workloads on a real runtime: lives of a daemon, and executions on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.host.logs.search import Search
from reconciler.engines.host.runtimes.protocol import Runtime
from reconciler.engines.reading import LogSelection
from reconciler.engines.workload.deployment import Execution, read_deployment
from reconciler.model.key import Key
from reconciler.settings import HostSettings, LocationSettings, Settings
from tests.engines.host.provisioning.kit import vault
from tests.support.host_sandbox import let_others_through
from tests.support.plans import ExecutorHarness, ends, plan, step

WEB = "workload/shop/web"


@asynccontextmanager
async def daemon(harness: ExecutorHarness, root: Path, runtime: Runtime) -> AsyncIterator[HostEngine]:
    """One life of a daemon; what runs goes on after it."""
    let_others_through(root)
    host = HostSettings(termination_scale=0.0)
    settings = Settings(
        "acme",
        (),
        root,
        locations={"here": LocationSettings("host", runtime="process", dataplane="builtin")},
        host=host,
    )
    context = EngineContext(LocationRecords(harness.records, "here"), settings, SystemClock(), vault({}))
    engine = HostEngine(context, root / "here", runtime)
    harness.engines["here"] = engine
    engine.begin_schedules()
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
        if (execution := await newest(engine)).status == status:
            return execution
        await asyncio.sleep(0.02)
    raise AssertionError(f"never {status}: {execution}")


def stored_output(root: Path, replica: str = "") -> list[str]:
    """The lines that are stored of a replica, or of all."""
    selection = LogSelection(lambda of: of["replica"].startswith(replica), lambda block, _: block.lines())
    search = Search({"here": root / "here" / "logs"}, selection)
    return [line.text.decode() for line in search.backward()][::-1]


async def apply(harness: ExecutorHarness, **container: Any) -> None:
    """Apply a workload that is due on 29 February only, with one container."""
    job = {"schedule": "0 0 29 2 *"}
    spec = {"type": "cron", "containers": [{"name": "main", **container}], "job": job, "defaultOptions": {}}
    made = step(WEB, body={"kind": "workload", "name": "web", "spec": spec}, engine="host")
    assert set(ends(await harness.run(plan(made))).values()) == {"applied"}


async def ask(engine: HostEngine, **override: Any) -> str:
    """Run it now with an override of its container; the name of the execution."""
    asked = {"location": "here", "containerOverrides": [{"name": "main", **override}]}
    name: str = (await engine.command(Key.parse(WEB), "runCronWorkload", asked))["name"]
    return name
