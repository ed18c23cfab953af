"""A host engine over programs that there are not: what it is asked for, what becomes of it, and what is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.protocol import EngineEvent
from reconciler.engines.workload.deployment import Version, read_deployment
from reconciler.planning.plan import Action
from reconciler.settings import DomainSettings, HostSettings, IngressSettings, LocationSettings, Settings
from tests.engines.host.fake import FakeRuntime, Programs, QuickClock
from tests.engines.host.provisioning.kit import vault
from tests.support.plans import ExecutorHarness, ends, plan, step

WEB = "workload/shop/web"


class HostHarness(ExecutorHarness):
    """A host engine over programs that there are not, and a clock of ours."""

    def __init__(
        self,
        path: Path,
        runtime: type[FakeRuntime] = FakeRuntime,
        dataplane: str = "builtin",
        ingress: IngressSettings | None = None,
        resolver: str = "127.0.0.1:1",
    ) -> None:
        self._runtime = runtime
        self.git_is_read = True
        self.time = QuickClock()
        self.time.start()
        super().__init__(path, self.time)
        self.programs = Programs(self.time)
        self._settings = Settings(
            "acme",
            (),
            path,
            locations={"here": LocationSettings("host", runtime="process", dataplane=dataplane, ingress=ingress)},
            domains=DomainSettings(resolver),
            host=HostSettings(termination_scale=0.0, volumes="directory", disk_reserve=0),
        )
        self.root = path / "here"
        self.engine = self._made()

    def _made(self) -> HostEngine:
        context = EngineContext(LocationRecords(self.records, "here"), self._settings, self.time, vault({}))
        engine = HostEngine(context, self.root, self._runtime(self.programs))
        self.engines["here"] = engine
        if self.git_is_read:
            engine.begin_schedules()
        return engine

    async def restart(self) -> None:
        """Another daemon takes over."""
        await self.engine.close()
        self.engine = self._made()
        await self.engine.open()

    async def apply(self, version: int, image: str = "plain", **options: Any) -> None:
        """Ask for a version, and wait until just its replicas run."""
        await self.ask(version, image, **options)
        count = 0 if options.get("suspend") else 1
        await self.until(lambda found: [each.version for each in found if each.ready] == [version] * count)

    async def ask(
        self,
        version: int,
        image: str = "plain",
        lifecycle: Any = None,
        dynamic: bool = False,
        limits: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Ask for a version; ``dynamic`` follows the tags of its images. With ``limits`` only these may differ."""
        autoscaling = {"metric": "disabled", "minScale": 1, "maxScale": 1}
        container: dict[str, Any] = {
            "name": "main",
            "image": image,
            "env": [{"name": "VERSION", "value": str(version)}],
        }
        container |= {"lifecycle": lifecycle} if lifecycle else {}
        container |= {"env": [], **limits} if limits else {}
        spec = {
            "type": "standard",
            "containers": [container],
            "supportDynamicTags": dynamic,
            "defaultOptions": {"autoscaling": autoscaling, **options},
        }
        action = Action.UPDATE if self.recorded() else Action.CREATE
        body = {"kind": "workload", "name": "web", "spec": spec}
        asked = msgspec.structs.replace(
            step(WEB, action=action, version=version, body=body, engine="host"), digest=f"{version} {options}"
        )
        assert set(ends(await self.run(plan(asked))).values()) == {"applied"}

    async def until(self, true: Callable[[list[Replica]], bool]) -> None:
        """Let time pass until it is so of the replicas, and record what is seen then."""
        for _ in range(500):
            await self.time.advance(1.0)
            await asyncio.sleep(0.001)
            found = self.replicas()
            if true(found) and len(found) < 2:
                return await self.record()
        raise AssertionError("it never came so far")

    def replicas(self) -> list[Replica]:
        """The replicas that are written down."""
        return ReplicaStore(self.root / "replicas").load()[0]

    async def event(self, reason: str) -> EngineEvent:
        """The first event with ``reason``, once it came; a replica's files are removed in threads, in real time."""
        for _ in range(500):
            found = [each for each in self.engine.news() if each.reason == reason]
            if found:
                return found[0]
            await self.time.advance(1.0)
            await asyncio.sleep(0.01)
        raise AssertionError(f"no {reason}")

    async def record(self) -> None:
        """Record what is observed, as a drift check does."""
        for seen in await self.engine.observe():
            self.records.applied.update_seen(seen.key, seen.location, seen.health, seen.state)

    async def delete(self) -> dict[str, str]:
        """Ask for an end of it; how that ended."""
        return ends(await self.run(plan(step(WEB, action=Action.DELETE, engine="host"))))

    def versions(self) -> list[Version]:
        """The versions that the record shows."""
        [record] = self.records.applied.get(WEB)
        deployment = read_deployment(record.state)
        assert deployment is not None
        return list(deployment.status.versions)


AnyHarness = TypeVar("AnyHarness", bound=HostHarness)


def played(
    path: Path, story: Callable[[HostHarness], Awaitable[None]], runtime: type[FakeRuntime] = FakeRuntime
) -> None:
    """Play ``story`` with an engine that is closed at the end."""
    play_on(lambda: HostHarness(path, runtime), story)


def play_on(make: Callable[[], AnyHarness], story: Callable[[AnyHarness], Awaitable[None]]) -> None:
    """Play ``story`` with a host of ``make``, which is closed at the end."""

    async def whole() -> None:
        host = make()
        await host.engine.open()
        try:
            await story(host)
        finally:
            await host.engine.close()
            host.records.close()

    asyncio.run(whole())
