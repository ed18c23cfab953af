"""A host with the stateful workload ``db`` and its volume set ``data``: the volumes are real, the programs are not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.volumes.space import Reserve
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.protocol import EngineEvent, Observation
from reconciler.engines.volumes import VolumeId
from reconciler.model.key import Key
from reconciler.planning.plan import Action
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.kit import HostHarness, play_on
from tests.support.clock import FakeClock
from tests.support.plans import ends, plan, step

SET = Key.parse("volumeset/shop/data")
DB = Key.parse("workload/shop/db")
VOLUME = VolumeId(SET, 0)
T = TypeVar("T")


class VolumeHarness(HostHarness):
    """Applies volume sets and their users, and asks what became of them."""

    def __init__(self, path: Path, runtime: type[FakeRuntime] = FakeRuntime) -> None:
        super().__init__(path, runtime)
        self.events: list[EngineEvent] = []

    async def volumeset(
        self,
        version: int = 1,
        action: Action | None = None,
        tags: dict[str, str] | None = None,
        key: Key = SET,
        **spec: Any,
    ) -> dict[str, str]:
        """Apply the volume set, or one with another ``key``; how the step ended."""
        whole = {"initialCapacity": 10, "performanceClass": "general-purpose-ssd", **spec}
        body = {"kind": "volumeset", "name": key.name, "tags": tags or {}, "spec": whole}
        return await self._apply(str(key), body, version, action)

    async def database(
        self,
        version: int = 1,
        replicas: int = 1,
        name: str = "db",
        mounts: bool = True,
        tags: dict[str, str] | None = None,
        **options: Any,
    ) -> dict[str, str]:
        """Apply a user of the volume set; how the step ended."""
        autoscaling = {"metric": "disabled", "minScale": replicas, "maxScale": replicas}
        container: dict[str, Any] = {"name": "main", "image": "plain"}
        container["env"] = [{"name": "VERSION", "value": str(version)}]
        if mounts:
            container["volumes"] = [{"uri": "platform://volumeset/data", "path": "/data"}]
        spec = {
            "type": "stateful",
            "containers": [container],
            "defaultOptions": {"autoscaling": autoscaling, **options},
        }
        body = {"kind": "workload", "name": name, "spec": spec, "tags": tags or {}}
        return await self._apply(f"workload/shop/{name}", body, version)

    async def _apply(self, key: str, body: Any, version: int, action: Action | None = None) -> dict[str, str]:
        action = action or (Action.UPDATE if key in self.recorded() else Action.CREATE)
        asked = step(key, action=action, version=version, body=body, engine="host")
        asked = msgspec.structs.replace(asked, digest=json.dumps([version, body]))
        return ends(await self.meanwhile(self.run(plan(asked))))

    async def drop(self, key: Key) -> dict[str, str]:
        """Delete a resource; how the step ended."""
        return ends(await self.run(plan(step(str(key), action=Action.DELETE, engine="host"))))

    async def eventually(self, true: Callable[[], Awaitable[Any]], what: str, pace: float = 0.1) -> None:
        """Let time pass until it is true; volumes change in threads, in real time."""
        for _ in range(2000):
            if await true():
                return
            await self.time.advance(pace)
            await asyncio.sleep(0.001)
        raise AssertionError(f"not in time: {what}; {[each.message for each in self.news()]}")

    async def running(self, *names: str) -> None:
        """Wait until just these replicas run."""

        async def ready() -> bool:
            found = self.replicas()
            return sorted(each.name for each in found) == sorted(names) and all(each.ready for each in found)

        await self.eventually(ready, f"{names} run")
        await self.record()

    async def seen(self, key: Key = SET) -> Observation | None:
        """A resource as the engine observes it."""
        return next((each for each in await self.engine.observe() if each.key == key), None)

    async def volumes(self) -> list[dict[str, Any]]:
        """The volumes that the status shows."""
        found = await self.seen()
        assert found is not None
        volumes: list[dict[str, Any]] = json.loads(found.state)["volumes"]
        return volumes

    async def lifecycles(self) -> list[str]:
        """Their lifecycles, by index."""
        return [each["lifecycle"] for each in await self.volumes()]

    async def command(self, name: str, key: Key = SET, command_id: str = "c1", **spec: Any) -> dict[str, Any]:
        """Perform a command on volume 0 while time passes; its answer."""
        spec = {"location": "here", "volumeIndex": 0, **spec}
        return await self.meanwhile(self.engine.command(key, name, spec, command_id))

    async def meanwhile(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``, for which time passes."""
        task = asyncio.create_task(work)
        for _ in range(2000):
            if task.done():
                return task.result()
            await self.time.advance(0.1)
            await asyncio.sleep(0.001)
        task.cancel()
        raise AssertionError(f"not in time; {[each.message for each in self.news()]}")

    def replica(self, name: str) -> Replica:
        """A replica that is written down."""
        return next(each for each in self.replicas() if each.name == name)

    def starts(self, name: str = "db-0") -> int:
        """How often a replica was started."""
        return sum(call.verb == "start" and call.replica == name for call in self.programs.calls)

    def path(self, index: int = 0) -> Path:
        """The directory of a volume."""
        return self.root / "volumes/shop/data" / str(index)

    def content(self, index: int = 0) -> dict[str, str]:
        """The files in a volume."""
        return {each.name: each.read_text() for each in self.path(index).iterdir()}

    def news(self) -> list[EngineEvent]:
        """All events so far."""
        self.events += self.engine.news()
        return self.events


class ImageVolumeHarness(VolumeHarness):
    """A host whose volumes are images; ``host`` are its settings."""

    def __init__(self, path: Path, runtime: type[FakeRuntime] = FakeRuntime, **host: Any) -> None:
        super().__init__(path, runtime)
        changed = msgspec.structs.replace(self._settings.host, volumes="image-ext4", **host)
        self._settings = msgspec.structs.replace(self._settings, host=changed)
        self.engine = self._made()

    def detach(self) -> None:
        """Unmount the images, so that nothing is left of the test."""
        store = VolumeStore(self.root, "image-ext4", FakeClock(), Reserve(0, 0))
        for volume in store.list(SET):
            store.detach(VolumeId(SET, volume.index), volume.holder)


def play(path: Path, story: Callable[[Any], Awaitable[None]], host: type[VolumeHarness] = VolumeHarness) -> None:
    """Play ``story`` on a new host."""
    play_on(lambda: host(path), story)
