"""A daemon that dies anywhere while it provides and removes images: no image is left without its record."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reconciler.engines.host.images.image_service import ImageContext, ImageEvents, ImageService, WorkloadImages
from reconciler.engines.host.images.pulled import PulledImages, pulled_path
from reconciler.engines.host.runtimes.podman.images import PodmanImages
from reconciler.engines.images.connection import RegistryConnection
from reconciler.engines.images.manifests import Platform
from reconciler.engines.images.registry import Registry
from reconciler.settings import ImageSettings
from tests.engines.host.images.kit import API, HOST, WEB, pinned
from tests.engines.host.runtimes.podman.libpod import Libpod, Refusal
from tests.support.clock import FakeClock
from tests.support.registry import FakeRegistry, manifest
from tests.support.threads import InlineExecutor, StepBudget, live

MOST = 100
OTHERS = "docker.io/library/other:1"


class FakeStorage(Libpod):
    """Podman's storage: the names of each image, by its digest."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, set[str]] = {"sha256:other": {OTHERS}}

    def _pull(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        reference = query["reference"]
        self.stored.setdefault(reference.partition("@")[2], set()).add(reference)
        return httpx2.Response(200, content=json.dumps({"images": ["1"], "id": "1"}) + "\n")

    def _find(self, name: str) -> str:
        repository, _, wanted = name.partition("@")
        for digest, names in self.stored.items():
            if name in names or (wanted == digest and any(each.startswith(f"{repository}:") for each in names)):
                return digest
        raise Refusal(404, "no such image")

    def _inspect_image(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        digest = self._find(name)
        return {"Id": digest, "Digest": digest, "Os": "linux", "Architecture": "amd64", "RepoTags": [name]}

    def _list_images(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        return [{"Id": digest, "Names": sorted(names), "Size": 5} for digest, names in self.stored.items()]

    def _tag(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        self.stored[self._find(name)].add(f"{query['repo']}:{query['tag']}")
        return httpx2.Response(201)

    def _untag(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        digest = self._find(name)
        if name not in self.stored[digest]:
            raise Refusal(404, "tag not known")
        self.stored[digest].discard(name)
        if not self.stored[digest]:
            del self.stored[digest]
        return {"Deleted": [], "Untagged": [name]}


def made(root: Path, registry: FakeRegistry, transport: httpx2.AsyncBaseTransport) -> ImageService:
    """The service of a daemon, over its own clock."""
    clock = FakeClock()
    settings, host = ImageSettings(keep=0.0), Platform("linux", "amd64")
    context = ImageContext(root, "acme", settings, lambda _: None, clock, random.Random(1), host)  # type: ignore[arg-type, return-value]
    events = ImageEvents(lambda tag, new: None, lambda key, error: None, set)
    store = PodmanImages(root / "socket", "owner", (), transport)
    return ImageService(
        context, store, events, Registry(RegistryConnection((), clock, transport=registry.transport(HOST)))
    )


def app(tag: str, version: int) -> WorkloadImages:
    """A version of WEB."""
    return WorkloadImages(WEB, version, {"main": f"{HOST}/team/app:{tag}"})


async def work(service: ImageService) -> None:
    """Two versions, of which the first goes, and a workload that goes altogether."""
    await service.ensure(app("1", 1))
    await service.ensure(WorkloadImages(API, 1, {"main": f"{HOST}/team/app:2", "side": f"{HOST}/team/app:3"}))
    await service.ensure(app("2", 2))
    service.forget(WEB, remaining=[2])
    service.forget_others({WEB})
    await service._space.sweep(0.0, None)


async def die_at(root: Path, steps: int, *, last_arrives: bool) -> bool:
    """A daemon dies after so many steps; whether it did all its work before."""
    registry, storage = FakeRegistry(), FakeStorage()
    for tag in ("1", "2", "3"):
        registry.push("team/app", tag, manifest(tag))
    life = StepBudget(steps, last_arrives=last_arrives)
    doomed = made(root, registry, storage.dying(life))
    died = await live(life, lambda: asyncio.ensure_future(work(doomed)))
    heir = made(root, registry, storage.transport())
    assert await heir.ensure(app("2", 2)) == {"main": pinned("2")}
    heir.forget(WEB, remaining=[2])
    heir.forget_others({WEB})
    for _ in range(2):
        await heir._space.sweep(0.0, None)
    names = {name for each in storage.stored.values() for name in each if not name.startswith("localhost/reconciler-")}
    claims = [name for each in storage.stored.values() for name in each if name.startswith("localhost/reconciler-")]
    assert names == {OTHERS, pinned("2").replace("@sha256:", ":sha256-")}, steps
    assert len(claims) == 1, steps
    assert [*PulledImages(pulled_path(root)).images()] == [pinned("2")], steps
    await heir.close()
    return not died


@pytest.mark.parametrize("last_arrives", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_a_daemon_that_dies_anywhere_leaves_no_image_that_the_next_one_does_not_know(
    tmp_path: Path, last_arrives: bool
) -> None:
    async def story() -> None:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        for number in range(MOST):
            (tmp_path / str(number)).mkdir()
            if await die_at(tmp_path / str(number), number, last_arrives=last_arrives):
                assert number > 15
                return
        raise AssertionError("it never did all its work")

    await story()
