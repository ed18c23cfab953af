"""What the engine remembers of a workload's versions: the newest, those that still run, and when each was made."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from reconciler.clock import iso
from reconciler.engines.context import EngineContext
from reconciler.engines.deployment import Version, read_deployment
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.host.provisioning.template import ReplicaTemplate
from reconciler.engines.host.replica import Replica
from reconciler.engines.host.replica_store import Store
from reconciler.planning.plan import Action
from reconciler.settings import HostSettings, Settings
from tests.engines.host.fake import FakeRuntime, Programs, QuickClock
from tests.engines.host.given.kit import vault
from tests.engines.plans import Bench, ends, plan, step

WEB = "workload/shop/web"


class Host(Bench):
    """A host engine over programs that there are not, and a clock of ours."""

    def __init__(self, path: Path) -> None:
        self.time = QuickClock()
        self.time.start()
        super().__init__(path, self.time)
        self.programs = Programs(self.time)
        self._settings = Settings("acme", (), path, host=HostSettings(termination_scale=0.0, default_user="root"))
        self._path = path
        self.engine = self._made()

    def _made(self) -> HostEngine:
        context = EngineContext(self.records, "here", self._settings, self.time, vault({}))
        engine = HostEngine(context, self._path / "here", FakeRuntime(self.programs))
        self.engines["here"] = engine
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

    async def ask(self, version: int, image: str = "plain", **options: Any) -> None:
        """Ask for a version."""
        autoscaling = {"metric": "disabled", "minScale": 1, "maxScale": 1}
        container = {"name": "main", "image": image, "env": [{"name": "VERSION", "value": str(version)}]}
        spec = {
            "type": "standard",
            "containers": [container],
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
            found = Store(self._path / "here" / "replicas").load()[0]
            if true(found) and len(found) < 2:
                return await self.record()
        raise AssertionError("it never came so far")

    async def record(self) -> None:
        """Write down what is seen, as a look for drift does."""
        for seen in await self.engine.observe():
            self.records.applied.update_seen(seen.key, seen.location, seen.health, seen.state)

    def versions(self) -> list[Version]:
        """The versions that the record shows."""
        [record] = self.records.applied.get(WEB)
        deployment = read_deployment(record.state)
        assert deployment is not None
        return list(deployment.status.versions)


def played(path: Path, story: Callable[[Host], Awaitable[None]]) -> None:
    """Play ``story`` with an engine that is closed at the end."""

    async def whole() -> None:
        host = Host(path)
        await host.engine.open()
        try:
            await story(host)
        finally:
            await host.engine.close()
            host.records.close()

    asyncio.run(whole())


def test_templates_of_versions_that_run_nowhere_are_dropped(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        gc.collect()
        before = sum(isinstance(each, ReplicaTemplate) for each in gc.get_objects())
        for version in range(1, 11):
            await host.apply(version)
        gc.collect()
        assert sum(isinstance(each, ReplicaTemplate) for each in gc.get_objects()) - before <= 3

    played(tmp_path, story)


def test_a_replica_of_an_old_version_starts_again_while_a_newer_one_fails(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await host.apply(1)
        await host.ask(2, "broken")
        await host.time.advance(30.0)
        [old] = [place for place in host.programs.places() if host.programs.running[place].launch.version == 1]
        host.programs.end(old, 1)
        await host.time.advance(30.0)
        assert [host.programs.running[place].launch.version for place in host.programs.places()] == [1]

    played(tmp_path, story)


def test_a_version_keeps_the_time_at_which_it_was_made(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        made = iso(host.time.now())
        await host.apply(1)
        await host.time.advance(100.0)
        await host.apply(1, suspend=True)
        assert [each.created for each in host.versions()] == [made]
        await host.restart()
        await host.record()
        assert [each.created for each in host.versions()] == [made]
        await host.time.advance(100.0)
        await host.apply(1)
        assert [each.created for each in host.versions()] == [made]
        later = iso(host.time.now())
        await host.apply(2)
        assert [(each.workload, each.created) for each in host.versions()] == [(2, later)]

    played(tmp_path, story)


def test_a_version_has_a_time_after_an_adoption_without_replica_files(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await host.apply(1)
        [record] = host.records.applied.get(WEB)
        host.records.applied.update_seen(record.key, "here", record.health, b"{}")
        shutil.rmtree(tmp_path / "here" / "replicas")
        await host.restart()
        await host.record()
        assert [bool(each.created) for each in host.versions()] == [True]

    played(tmp_path, story)
