"""Many executions are due in one minute: only so many start at once, and late ones are reported."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reconciler.engines.host.runtimes.protocol import ContainerStart
from reconciler.planning.plan import Action
from tests.engines.host.cron.kit import MINUTE, CronHarness, play
from tests.engines.host.fake import FakeRuntime
from tests.support.plans import plan, step

KEYS = [f"workload/shop/job{number}" for number in range(5)]
START_SECONDS = 4.0


class SlowRuntime(FakeRuntime):
    """A runtime that takes four seconds to start a container."""

    starting = most = 0

    async def start(self, launch: ContainerStart) -> None:
        """Start it after a while."""
        type(self).starting += 1
        type(self).most = max(self.most, self.starting)
        await self._programs.clock.sleep(START_SECONDS)
        type(self).starting -= 1
        await super().start(launch)


@pytest.mark.parametrize(("limit", "late"), [(1, 2), (2, 0)])
def test_at_most_so_many_executions_start_at_once(tmp_path: Path, limit: int, late: int) -> None:
    SlowRuntime.starting = SlowRuntime.most = 0

    async def story(host: CronHarness) -> None:
        for key in KEYS:
            await host.schedule(key=key, concurrencyPolicy="Replace")
        await host.rest(MINUTE)
        assert len(host.starts()) == 0
        await host.rest(limit * START_SECONDS * len(KEYS))
        assert (len(host.starts()), SlowRuntime.most) == (len(KEYS), limit)
        messages = [each.message for each in host.events if each.reason == "ExecutionLate"]
        assert len(messages) == late
        assert not late or " starts 12 s late: it was due at 2026-01-01T00:01:00Z" in messages[0]

    play(tmp_path, story, SlowRuntime, limit)


def test_a_deleted_workload_leaves_the_queue(tmp_path: Path) -> None:
    SlowRuntime.starting = SlowRuntime.most = 0

    async def story(host: CronHarness) -> None:
        for key in KEYS:
            await host.schedule(key=key)
        await host.rest(MINUTE)
        gone = [step(key, action=Action.DELETE, engine="host") for key in KEYS[:3]]
        deletion = asyncio.ensure_future(host.run(plan(*gone)))
        await host.rest(4 * START_SECONDS)
        await deletion
        assert {name.partition("-")[0] for name in host.starts()} >= {"job3", "job4"}

    play(tmp_path, story, SlowRuntime, 1)


def test_starts_that_fail_leave_room_for_others(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        for key in KEYS:
            await host.schedule(key=key, image="broken", restartPolicy="OnFailure")
        await host.rest(MINUTE)
        assert {name.partition("-")[0] for name in host.starts()} == {"job0", "job1", "job2", "job3", "job4"}

    play(tmp_path, story, cron_starts=1)
