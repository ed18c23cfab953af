"""The object stores of a workload, from the records and settings to the start of its container."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.host.engine import HostEngine
from reconciler.model.key import Key
from reconciler.planning.plan import Action
from reconciler.settings import CloudAccountSettings
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.kit import WEB, HostHarness
from tests.engines.host.provisioning.kit import vault
from tests.engines.host.test_resize import verbs
from tests.support.plans import plan, step

IDENTITY = {"aws": {"cloudAccountLink": "/org/acme/cloudaccount/main", "roleName": "reader"}}
ACCOUNT = {"provider": "aws", "data": {"roleArn": "arn:x"}}
KEYS = {"keys": {"type": "aws", "data": {"accessKey": "AK", "secretKey": "hunter2"}}}


class MountingRuntime(FakeRuntime):
    """A runtime that mounts object stores."""

    mounts_stores = True


class ObjectStoreHarness(HostHarness):
    """A host engine whose settings name the keys of cloudaccount/main, if ``bound``."""

    def __init__(self, path: Path, *, bound: bool) -> None:
        self._bound = bound
        super().__init__(path, MountingRuntime)

    def _made(self) -> HostEngine:
        accounts = {"main": CloudAccountSettings("keys")} if self._bound else {}
        settings = msgspec.structs.replace(self._settings, cloud_accounts=accounts)
        context = EngineContext(LocationRecords(self.records, "here"), settings, self.time, vault(KEYS))
        engine = HostEngine(context, self.root, self._runtime(self.programs))
        self.engines = {"here": engine, "": engine}
        return engine

    async def add(self, key: str, body: dict[str, Any], version: int = 1) -> None:
        """Record a resource of the org or the GVC."""
        action = Action.CREATE if version == 1 else Action.UPDATE
        written = {"kind": key.partition("/")[0], "name": Key.parse(key).name, **body}
        await self.run(plan(step(key, "", action=action, version=version, body=written, engine="host")))

    async def mount(self) -> None:
        """Run a workload that mounts a bucket."""
        container = {"name": "main", "image": "plain", "volumes": [{"uri": "s3://pictures", "path": "/pictures/"}]}
        options = {"autoscaling": {"metric": "disabled", "minScale": 1, "maxScale": 1}}
        spec = {"type": "standard", "identityLink": "/org/acme/gvc/shop/identity/reader", "containers": [container]}
        body = {"kind": "workload", "name": "web", "spec": {**spec, "defaultOptions": options}}
        await self.run(plan(step(WEB, body=body, engine="host")))
        await self.until(lambda found: [each.version for each in found if each.ready] == [1])


def played(path: Path, story: Any, *, bound: bool) -> None:
    async def whole() -> None:
        host = ObjectStoreHarness(path, bound=bound)
        await host.engine.open()
        try:
            await host.add("identity/shop/reader", IDENTITY)
            await host.add("cloudaccount/main", ACCOUNT)
            await host.add("secret/keys", {})
            await story(host)
        finally:
            await host.engine.close()
            host.records.close()

    asyncio.run(whole())


def test_a_container_starts_with_the_stores_of_its_identity(tmp_path: Path) -> None:
    async def story(host: ObjectStoreHarness) -> None:
        await host.mount()
        [container_id] = host.programs.places()
        [store] = host.programs.running[container_id].launch.stores
        assert (store.uri, store.path, store.place) == ("s3://pictures", "/pictures", "pictures")
        assert store.options["secret_access_key"] == "hunter2"
        assert b"hunter2" not in (await host.engine.observe())[0].state
        await host.add("secret/keys", {}, version=2)
        host.engine.refresh()
        await host.until(lambda found: len(found) == 1 and found[0].ready and found[0].name != container_id.replica)
        assert verbs(host).count("start") == 2, "other keys are a rollout"

    played(tmp_path, story, bound=True)


def test_a_store_without_keys_is_not_enforced(tmp_path: Path) -> None:
    async def story(host: ObjectStoreHarness) -> None:
        await host.mount()
        [place] = host.programs.places()
        assert host.programs.running[place].launch.stores == ()
        [condition] = msgspec.json.decode((await host.engine.observe())[0].state)["status"]["conditions"]
        assert "s3://pictures is not mounted at /pictures/: nothing names the keys" in condition["message"]

    played(tmp_path, story, bound=False)
