"""Users of images: they own their files, containers of other users share them, and hostile images do no harm."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.decisions.transitions import new_replica
from reconciler.engines.host.provisioning.files import Files
from reconciler.engines.host.provisioning.provisioner import Provisioner
from reconciler.engines.host.provisioning.template_store import TemplateStore
from reconciler.engines.host.runtimes.podman.programs import drop_packets
from reconciler.engines.host.runtimes.podman.spec import sandbox_body
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart
from reconciler.engines.workload.spec_builder import AppliedWorkload, workload_spec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.errors import EngineError
from reconciler.model.platform import RESTRICTED_USER
from reconciler.reasons import Reason
from reconciler.settings import HostSettings
from tests.engines.host.provisioning.kit import around, attach_volumes, spec_of, vault, volumes_at
from tests.engines.host.runtimes.podman.kit import IMAGE, KEY, PodmanHarness, drop_rules, launch, opened, place
from tests.engines.host.runtimes.podman.libpod import Libpod
from tests.support.programs import only_root, tool

MIB = 1 << 20
SHARED = [{"uri": "scratch://shared", "path": "/shared"}]
DATA = {"uri": "platform://volumeset/data", "path": "/data"}


def host(root: Path, service: Libpod) -> Any:
    return opened(root, root / "socket", service.transport())


class PodmanProvisioning:
    """A provisioner before the Podman runtime, and a replica whose images are pinned."""

    def __init__(self, root: Path, one: PodmanHarness, **fields: Any) -> None:
        containers = (
            {"name": "app", "image": "localhost/app:1", "volumes": [*SHARED, DATA]},
            {"name": "side", "image": "localhost/side:1", "volumes": SHARED},
            {"name": "other", "image": "localhost/other:1", "volumes": SHARED},
        )
        spec = spec_of(*containers, **fields)
        workload = workload_spec(AppliedWorkload(KEY, "here", spec, 1, "digest"), "hash")
        templates = TemplateStore()
        templates.add(ReplicaTemplate(workload, spec, around()), ())
        self.host = one
        files = Files(root, vault({}), memory=None)
        volumes = volumes_at(root)
        self.provisioner = Provisioner(files, vault({}), one.runtime, HostSettings(), templates, volumes)
        self.attach = partial(attach_volumes, root, spec.containers[0], 0)
        self.wanted = workload
        pinned = tuple(
            msgspec.structs.replace(container, image=f"{container.image}@sha256:{index:064x}")
            for index, container in enumerate(workload.containers)
        )
        self.replica: Replica = new_replica(msgspec.structs.replace(workload, containers=pinned), 0, "r", 0.0, "")
        self.images = {container.name: container.image for container in pinned}

    def launch(self, container: str) -> ContainerStart:
        """Attach its volumes, and provide everything else for its start."""
        if container == "app":
            self.attach(self.host.runtime.owner(self.wanted))
        return self.provisioner.launch(self.replica, container)

    async def start(self, container: str) -> dict[str, Path]:
        """Start it, and return its volumes by their paths."""
        start = self.launch(container)
        await self.host.runtime.start(start)
        return {mount.path: mount.source for mount in start.mounts}


def writes(user: int, folder: Path, name: str) -> bool:
    """Whether a program of ``user`` can write a file in ``folder``, which is its root as in a container."""
    script = ["/bin/sh", "-c", f"echo x >>{name}"]
    return not subprocess.run(
        script, cwd=folder, user=user, group=user, extra_groups=[], capture_output=True
    ).returncode


@only_root("only root gives files away")
async def test_containers_of_different_users_share_scratch_also_after_a_restart(tmp_path: Path) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        provisioning = PodmanProvisioning(tmp_path, one)
        service.images |= {
            provisioning.images["app"]: "1000",
            provisioning.images["side"]: "",
            provisioning.images["other"]: "2000",
        }
        volumes = await provisioning.start("app")
        shared, data = volumes["/shared"], volumes["/data"]
        assert writes(1000, shared, "app")
        assert writes(1000, data, "app")
        (data / "of-root").write_text("x")
        for container in ("side", "other", "side"):
            if (at := ContainerId(KEY, "r", container)) in {each.place for each in await one.runtime.list()}:
                service.end(service.named(f"r-{container}"), 1)
                await one.over(at)
            before = (data.stat().st_ctime_ns, shared.stat().st_ctime_ns)
            await provisioning.start(container)
            assert (data.stat().st_ctime_ns, shared.stat().st_ctime_ns) == before, "a start changes no owner"
            assert all(writes(user, shared, f"from-{user}") for user in (0, 1000, 2000))
        service.end(service.named("r-app"), 1)
        await one.over(ContainerId(KEY, "r", "app"))
        provisioning.launch("app")
        assert writes(1000, data, "app"), "between two starts its user keeps the volume"
        await provisioning.start("app")
        assert (data.stat().st_uid, (data / "of-root").stat().st_uid) == (1000, 0), "content is copied only once"
        assert not writes(2000, data, "stranger")
        assert shared.parent.stat().st_mode & 0o777 == 0o700, "only mounts lead to what all users can write"


async def test_the_user_of_an_image_is_found_once_for_a_digest_and_each_time_for_a_tag(tmp_path: Path) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        for replica in "abc":
            await one.runtime.start(launch(at=place(replica, "tag"), image="localhost/app:1"))
            await one.runtime.start(launch(at=place(replica, "digest"), image=f"localhost/app@sha256:{'0' * 64}"))
        asked = [each for each in service.requests if each.startswith("GET images/localhost%2Fapp")]
        assert len(asked) == 4


@only_root("only root gives files away")
async def test_the_group_of_volumes_is_that_of_the_manifest_with_users_of_images(tmp_path: Path) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        provisioning = PodmanProvisioning(tmp_path, one, securityOptions={"filesystemGroupId": 3000})
        service.images |= dict.fromkeys(provisioning.images.values(), "1000")
        volumes = await provisioning.start("app")
        stats = {path: at.stat() for path, at in volumes.items()}
        found = {path: (each.st_uid, each.st_gid, each.st_mode & 0o7777) for path, each in stats.items()}
        assert found == {"/shared": (1000, 3000, 0o2777), "/data": (1000, 3000, 0o2770)}


@only_root("only root gives files away")
async def test_a_group_that_a_later_version_adds_owns_what_a_volume_contains(tmp_path: Path) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        provisioning = PodmanProvisioning(tmp_path, one)
        service.images |= dict.fromkeys(provisioning.images.values(), "1000")
        data = (await provisioning.start("app"))["/data"]
        assert writes(1000, data, "file")
        later = PodmanProvisioning(tmp_path, one, securityOptions={"filesystemGroupId": 3000})
        later.launch("app")
        found = [(each.stat().st_uid, each.stat().st_gid) for each in (data, data / "file")]
        assert found == [(1000, 3000), (1000, 3000)]
        assert data.stat().st_mode & 0o7777 == 0o2770


@pytest.mark.parametrize("user", ["99999999999", "4294967295", "9" * 5000, "app"])
async def test_a_user_that_no_host_can_have_is_refused_and_leaves_nothing(tmp_path: Path, user: str) -> None:
    async def passwd() -> AsyncIterator[bytes]:
        yield archive(b"app:x:" + b"9" * 5000 + b":0::/:/bin/sh\n")

    service = Libpod()
    service.archive = passwd
    async with host(tmp_path, service) as one:
        service.images[IMAGE] = user
        with pytest.raises(EngineError) as caught:
            await one.runtime.start(launch())
        assert caught.value.reason is Reason.USER_NOT_FOUND
        assert len(str(caught.value)) < 200
        assert [box.body["labels"] for box in service.boxes.values() if "r-main" in box.body["name"]] == []


async def test_a_bug_between_create_and_start_leaves_no_container(tmp_path: Path) -> None:
    async def broken(container: str) -> None:
        raise ZeroDivisionError(container)

    service = Libpod()
    async with host(tmp_path, service) as one:
        await one.runtime.start(launch(at=place("other")))
        before = set(service.boxes)
        opened_ = one.runtime._open
        assert opened_ is not None
        image = next(iter(service.images))
        with pytest.raises(ZeroDivisionError):
            await opened_.service.starter.run(
                lambda around, nonce: sandbox_body(launch(), around, image, nonce), broken
            )
        assert set(service.boxes) == before


def archive(content: bytes, **fields: Any) -> bytes:
    """A tar archive of the file passwd; ``fields`` are others of its entry."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo("passwd")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
        for name, value in fields.items():
            setattr(entry, name, value)
    return entry.tobuf() + out.getvalue()[512:]


@pytest.mark.parametrize(
    "fields", [{"size": 100 << 30}, {"type": tarfile.DIRTYPE}, {"type": tarfile.SYMTYPE}, {"type": tarfile.FIFOTYPE}]
)
async def test_a_hostile_passwd_is_refused_before_it_fills_the_memory(tmp_path: Path, fields: dict[str, Any]) -> None:
    received = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal received
        yield archive(b"app:x:1000:0::/:/bin/sh\n", **fields)
        while True:
            received += MIB // 4
            assert received < 8 * MIB, "the answer is read on and on"
            yield bytes(MIB // 4)

    service = Libpod()
    service.archive = endless
    async with host(tmp_path, service) as one:
        service.images[IMAGE] = "app"
        with pytest.raises(EngineError, match="not a file of at most 1 MiB") as caught:
            await one.runtime.start(launch())
        assert caught.value.reason is Reason.USER_NOT_FOUND
        assert len(service.boxes) == 1


@contextmanager
def network_namespace() -> Iterator[int]:
    """The process of a network namespace of its own."""
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo ready; exec sleep 600"], stdout=subprocess.PIPE
    ) as popen:
        try:
            assert popen.stdout is not None
            if popen.stdout.readline() != b"ready\n":
                pytest.skip("this host makes no network namespaces")
            yield popen.pid
        finally:
            popen.kill()


@only_root("only root enters network namespaces")
def test_rules_for_a_user_are_set_once_however_often_its_containers_start() -> None:
    tool("nft", "nftables")
    with network_namespace() as pid:
        for _ in range(3):
            drop_packets(pid, RESTRICTED_USER)
        assert drop_rules(pid) == 1
