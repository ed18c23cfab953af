"""Where containers of images reach replicas, by a service in memory; test_real.py has the same over Debian's Podman."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec

from reconciler.engines.host.dataplane.endpoints import Endpoints
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.runtimes.handover import HandoverRuntime
from reconciler.engines.workload.spec import ContainerSpec
from tests.engines.host.fake import FakeRuntime, Programs, QuickClock
from tests.engines.host.runtimes.podman.kit import KEY, launch, opened, place
from tests.engines.host.runtimes.podman.libpod import INFO, Libpod
from tests.engines.host.runtimes.podman.test_plugin import wanted

CONTAINERS = (ContainerSpec("main", "app:1", ports=(80,)),)


def replica(name: str, port: int) -> Replica:
    return Replica(name, KEY, 1, "", 0.0, (), ports={80: port}, ready_since=1.0)


def listed(root: Path, directory: str) -> list[str]:
    """The address of each replica in the endpoints file of the workload."""
    replicas = msgspec.json.decode((root / directory / "shop" / "api.json").read_bytes())["replicas"]
    return [f"{each['name']} {each['address']} {each['ports']['80']}" for each in replicas]


async def test_containers_and_programs_of_this_host_have_files_of_their_own(tmp_path: Path) -> None:
    service = Libpod()
    async with opened(tmp_path, tmp_path / "socket", service.transport(), keep=True) as one:
        endpoints = Endpoints(tmp_path / "endpoints", one.runtime.addresses)
        endpoints.publish(KEY, [])
        assert listed(tmp_path, "container-endpoints") == []
        await one.runtime.start(launch(replica_ports={80: 20001}))
        endpoints.publish(KEY, [replica("r", 20001)])
        assert listed(tmp_path, "endpoints") == ["r 127.0.0.1:20001 127.0.0.1:20001"]
        assert listed(tmp_path, "container-endpoints") == ["r 10.89.0.2:80 10.89.0.2:80"]
        mounts = service.named("r-main").body["mounts"]
        assert str(tmp_path / "container-endpoints" / "shop") in {each["source"] for each in mounts}
    async with opened(tmp_path, tmp_path / "socket", service.transport()) as heir:
        found = heir.runtime.addresses(KEY, "r", {80: 20001, 81: 20002})
        assert found == {80: "10.89.0.2:80", 81: "10.89.0.2:81"}
    (tmp_path / "container-endpoints" / "shop" / "api.json").unlink()
    assert endpoints.is_lost(KEY)
    endpoints.remove(KEY)
    assert list(tmp_path.glob("*endpoints/*/*")) == []


async def test_a_program_of_this_host_is_reached_where_it_listens_at_all_addresses(tmp_path: Path) -> None:
    async def story(rootless: bool) -> dict[int, str]:
        security = {"rootless": rootless, "seccompEnabled": True}
        service = Libpod({**INFO, "host": {**INFO["host"], "security": security}})
        async with opened(tmp_path, tmp_path / "socket", service.transport()) as one:
            assert one.runtime.addresses(KEY, "p", {80: port}) == {}, "there is no network yet"
            await one.runtime.start(launch(at=place("s"), user=1337))
            assert one.runtime.addresses(KEY, "s", {80: port}) == {}, "it has no network"
            await one.runtime.start(launch())
            return dict(one.runtime.addresses(KEY, "p", {80: port, 81: local}))

    with socket.create_server(("", 0)) as public, socket.create_server(("127.0.0.1", 0)) as private:
        port, local = public.getsockname()[1], private.getsockname()[1]
        assert await story(rootless=False) == {80: f"10.89.0.1:{port}"}
        assert await story(rootless=True) == {}


async def test_a_change_of_the_runtime_has_a_limitation_until_it_is_complete(tmp_path: Path) -> None:
    programs, service = Programs(QuickClock()), Libpod()
    processes = FakeRuntime(programs)
    await processes.start(launch(image="plain"))
    async with opened(tmp_path, tmp_path / "socket", service.transport()) as one:
        both = HandoverRuntime(one.runtime, [processes])
        await both.open(lambda _: None)
        limitations = both.limitations(wanted(containers=CONTAINERS))
        assert any("listens at all addresses" in each for each in limitations)
        await both.remove(KEY, "r")
        assert both.limitations(wanted(containers=CONTAINERS)) == limitations[:-1]
        assert both.addresses(KEY, "r", {}) == {}
