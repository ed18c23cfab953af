"""A daemon records executions of recorded cron workloads in the second in which they are due."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from reconciler.daemon.schedule_timer import SCHEDULES, ScheduleTimer
from reconciler.daemon.wake import WakeQueue
from tests.daemon.test_bugs import RunnerHarness
from tests.support.clock import START

CRON = {
    "kind": "workload",
    "name": "report",
    "gvc": "shop",
    "spec": {
        "type": "cron",
        "containers": [{"name": "main", "image": "app:1"}],
        "job": {"schedule": "*/5 * * * *"},
    },
}


def test_the_daemon_wakes_for_the_next_due_time_and_checks_the_clock_every_minute(tmp_path: Path) -> None:
    harness = RunnerHarness(tmp_path)
    harness.sandbox.repo.commit({"shop/report.yaml": json.dumps(CRON)})
    wakes, woken = WakeQueue(), []
    timer = ScheduleTimer(harness.runner, harness.clock, harness.clock, wakes)
    harness.clock.start()
    harness.run()
    timer.record_due()

    async def story() -> None:
        for _ in range(5):
            await harness.clock.advance(60 - harness.clock.now() % 60)
            if wakes.waiting():
                woken.append((harness.clock.now() - START, await wakes.take()))
                timer.record_due()

    asyncio.run(story())
    assert woken == [(60.0 * number, {SCHEDULES: {"schedule"}}) for number in range(1, 6)]
    for place in ("here", "there"):
        status = json.loads(harness.recorded()[f"workload/shop/report@{place}"].state)["status"]
        assert [value["startTime"] for value in status["jobExecutions"]] == ["2026-01-01T00:05:00Z"]
    harness.records.close()
