"""A cron workload runs at every location of its GVC: from the manifest to the executions of each engine."""

from __future__ import annotations

import random
from pathlib import Path

from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.execution.executor import Executor
from reconciler.engines.execution.retry import RetryPolicy
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.workload.deployment import read_deployment
from reconciler.settings import LocationSettings
from tests.engines.host.fake import FakeRuntime, Programs, QuickClock
from tests.engines.host.provisioning.kit import vault
from tests.support.pipeline import BASE, PLACES, PipelineHarness

REPORT = """kind: workload
name: report
spec:
  type: cron
  containers: [{name: main, image: plain, command: report}]
  job: {schedule: "*/5 * * * *"}
"""


async def at_every_location(harness: PipelineHarness) -> dict[str, list[str]]:
    """Apply the manifests, let ten minutes pass, and end each program after one; the statuses by location."""
    clock, programs = QuickClock(), {}
    clock.start()
    engines = {}
    for location in PLACES:
        programs[location] = Programs(clock)
        context = EngineContext(LocationRecords(harness.records, location), harness.settings, clock, vault({}))
        engines[location] = HostEngine(context, harness.path / location, FakeRuntime(programs[location]))
        await engines[location].open()
        engines[location].begin_schedules()
    executor = Executor(
        harness.records, {**harness.engines, **engines}, harness.clock, RetryPolicy(), 8, random.Random(1)
    )
    report, _, _ = await harness.pipeline.execute(harness.prepare(), executor, "test", lambda: False)
    assert report.outcome == "applied"
    for _ in range(10):
        await clock.advance(60.0)
        for program in programs.values():
            for container in program.places():
                program.end(container, 0)
    await clock.advance(1.0)
    shown = {}
    for location, engine in engines.items():
        [seen] = await engine.observe()
        deployment = read_deployment(seen.state)
        assert deployment is not None
        shown[location] = [
            f"{job_execution.status} {job_execution.start_time}" for job_execution in deployment.status.job_executions
        ]
        await engine.close()
    return shown


async def test_a_cron_workload_runs_at_every_location_of_its_gvc(tmp_path: Path) -> None:
    locations = {place: LocationSettings("host", runtime="process") for place in PLACES}
    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": BASE, "shop/report.yaml": REPORT}, locations=locations)
    expected = ["Success 2026-01-01T00:05:00Z", "Success 2026-01-01T00:10:00Z"]
    assert await at_every_location(harness) == dict.fromkeys(PLACES, expected)
