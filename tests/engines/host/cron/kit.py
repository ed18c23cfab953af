"""A host with cron workloads whose programs and clock belong to the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.protocol import EngineEvent
from reconciler.engines.workload.deployment import Execution, read_deployment
from reconciler.planning.plan import Action
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.kit import WEB, HostHarness, play_on
from tests.support.plans import ends, plan, step

MINUTE = 60.0


class CronHarness(HostHarness):
    """A host with the cron workload ``web``, and others; ``cron_starts`` executions start at once."""

    def __init__(self, path: Path, runtime: type[FakeRuntime] = FakeRuntime, cron_starts: int = 16) -> None:
        super().__init__(path, runtime)
        host = msgspec.structs.replace(self._settings.host, cron_starts=cron_starts)
        self._settings = msgspec.structs.replace(self._settings, host=host)
        self.engine = self._made()
        self.events: list[EngineEvent] = []

    async def schedule(self, version: int = 1, image: str = "plain", key: str = WEB, **job: Any) -> None:
        """Apply a workload with a schedule of every minute, unless ``job`` has another."""
        spec = {
            "type": "cron",
            "containers": [{"name": "main", "image": image}],
            "job": {"schedule": "* * * * *", **job},
            "defaultOptions": {},
        }
        action = Action.UPDATE if key in self.recorded() else Action.CREATE
        body = {"kind": "workload", "name": key.rpartition("/")[2], "spec": spec}
        asked = step(key, action=action, version=version, body=body)
        asked = msgspec.structs.replace(asked, engine="host", digest=f"{version} {image} {job}")
        assert set(ends(await self.run(plan(asked))).values()) == {"applied"}
        await self.rest()

    async def rest(self, seconds: float = 0.0) -> None:
        """Let time pass, and the files of ended executions be removed, which is done in threads."""
        await self.time.advance(seconds)
        for _ in range(20):
            await asyncio.sleep(0.001)
            await self.time.advance(0.0)
        self.events += self.engine.news()

    async def executions(self) -> list[Execution]:
        """The executions of ``web`` that the status shows."""
        [seen] = [each for each in await self.engine.observe() if str(each.key) == WEB]
        deployment = read_deployment(seen.state)
        assert deployment is not None
        return list(deployment.status.job_executions)

    async def states(self) -> list[str]:
        """Their statuses."""
        return [each.status for each in await self.executions()]

    def end(self, code: int = 0) -> None:
        """End all programs."""
        for place in self.programs.places():
            self.programs.end(place, code)

    def starts(self) -> list[str]:
        """The replicas that were started, in order."""
        return [call.replica for call in self.programs.calls if call.verb == "start"]

    def reasons(self) -> list[str]:
        """The reasons of all events."""
        return [str(each.reason) for each in self.events]


def play(
    path: Path,
    story: Callable[[CronHarness], Awaitable[None]],
    runtime: type[FakeRuntime] = FakeRuntime,
    cron_starts: int = 16,
) -> None:
    """Play ``story`` on a new host."""
    play_on(lambda: CronHarness(path, runtime, cron_starts), story)
