"""Faults of the machine under real containers: it starts again, and Podman's own state is in use by others."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.dataplane.ports import free_ports
from reconciler.engines.host.runtimes.podman.api import client
from reconciler.engines.host.runtimes.podman.network.port_rules import port_rules
from reconciler.engines.host.runtimes.podman.network.sandbox import _list_wider_subnets
from reconciler.engines.host.runtimes.protocol import Mount
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.kinds.workload import Options
from reconciler.reasons import Reason
from tests.engines.host.runtimes.podman.kit import KEY, launch, opened, place, shell
from tests.engines.host.runtimes.podman.libpod import INFO, Libpod
from tests.engines.host.runtimes.podman.test_real import SLEEP, _nothing_is_left, connected, fetch, hosted, service
from tests.support.podman import PodmanService
from tests.support.programs import small_disk, tool
from tests.support.waiting import until

__all__ = ["_nothing_is_left", "service"]


async def test_a_machine_that_starts_again_has_lost_its_containers_and_starts_each_once(
    tmp_path: Path, service: PodmanService
) -> None:
    side = place(container="side")
    async with hosted(tmp_path / "state", service, keep=True) as host:
        for at in (place(), side, place("s")):
            await host.runtime.start(shell(SLEEP, at=at))
    await asyncio.to_thread(service.reboot)
    async with hosted(tmp_path / "state", service) as second:
        found = {container.place: (container.alive, container.code) for container in await second.runtime.list()}
        assert found == dict.fromkeys((place(), side, place("s")), (False, None))
        for at in (place(), side):
            await second.runtime.start(shell(SLEEP, at=at))
        assert await second.wrote("ready") == "ready\nready\n"
        await second.runtime.remove(KEY, "s")
        assert [container["State"] for container in service.containers()] == ["running"] * 3


async def test_rules_of_a_port_that_a_killed_service_left_are_removed(tmp_path: Path, service: PodmanService) -> None:
    ports, lost = free_ports([8080], ()), "f" * 64
    serve = f"httpd -p 8080 -h /etc; {SLEEP}"
    async with hosted(tmp_path / "state", service, keep=True) as host:
        # As where the daemon may not lead ports of this host to containers.
        maker = connected(host).service.sandboxes
        maker._capabilities = msgspec.structs.replace(maker._capabilities, publishes_ports=False)
        await host.runtime.start(shell(serve, replica_ports=ports))
        await host.wrote("ready")
        assert await asyncio.to_thread(fetch, ports[8080], "passwd")
        container = host.tracked(place(container="")).id
    name = service.networks()[0]
    ours = [rule for rule in port_rules() if f"--dport {ports[8080]} " in rule]
    # As if the service had been killed during another start with this port: the first rule counts.
    stale = [re.sub(r"(--to-destination )\S+", r"\g<1>10.213.255.250:8080", rule) for rule in ours]
    stale = [rule.replace(container, lost) for rule in stale if "SETMARK" not in rule]
    lines = [re.sub(r"^-A (\S+)", r"-I \1", rule) for rule in stale]
    restore("*nat", *lines, "COMMIT")
    assert len([rule for rule in port_rules() if f"--dport {ports[8080]} " in rule]) == len(ours) + 2
    async with hosted(tmp_path / "state", service):
        assert [rule for rule in port_rules() if f"--dport {ports[8080]} " in rule] == ours
        assert await asyncio.to_thread(fetch, ports[8080], "passwd")
    assert not [rule for rule in port_rules() if name in rule]


def restore(*lines: str) -> None:
    """Change the rules of this host."""
    command = [tool("iptables-restore", "iptables"), "-w", "--noflush"]
    subprocess.run(command, input="\n".join([*lines, ""]), text=True, check=True)


async def test_a_location_has_addresses_for_more_than_two_hundred_replicas(
    tmp_path: Path, service: PodmanService
) -> None:
    async with hosted(tmp_path / "a", service) as one, hosted(tmp_path / "b", service) as other:
        for host in (one, other):
            await host.runtime.start(shell(SLEEP))
        found = [each["subnets"][0]["subnet"] for each in service.request("GET", "networks/json")]
        assert sorted(each for each in found if each.startswith("10.213.")) == ["10.213.0.0/22", "10.213.4.0/22"]


@pytest.mark.parametrize(
    ("subnets", "first", "count"),
    [
        (["10.89.0.0/24"], "10.89.0.0/22", 8),
        (["10.89.7.0/24"], "10.89.4.0/22", 8),
        (["10.255.252.0/24"], "10.255.252.0/22", 1),
        (["10.88.0.0/24"], "", 0),
        (["192.168.5.0/24"], "", 0),
        (["10.89.0.0/16"], "", 0),
        (["10.89.0.0/24", "fd00::/64"], "", 0),
        (["fd00::/64"], "", 0),
        ([], "", 0),
    ],
)
def test_a_wider_network_is_near_the_one_that_podman_chooses(subnets: list[str], first: str, count: int) -> None:
    found = [*_list_wider_subnets(subnets)]
    assert (found[:1], len(found)) == ([first] if first else [], count)


async def test_storage_that_another_process_has_locked_delays_only_what_needs_it(
    tmp_path: Path, service: PodmanService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_SECONDS", 2.0)
    async with hosted(tmp_path / "state", service) as host:
        await host.runtime.start(shell(SLEEP))
        with contextlib.ExitStack() as locks:
            for name in ("overlay-layers/layers.lock", "overlay-containers/containers.lock"):
                file = locks.enter_context((service.folder / "root" / name).open("r+b"))
                fcntl.lockf(file, fcntl.LOCK_EX)
            with pytest.raises(EngineError) as raised:
                await host.runtime.start(shell(SLEEP, at=place("s")))
            assert raised.value.reason is Reason.RUNTIME_UNAVAILABLE
            assert (await host.runtime.exec(place(), ["echo", "here"], 10)).output == "here\n"
            assert (await host.running()).alive
        await host.runtime.start(shell(SLEEP, at=place("s")))
        # Podman has gone on with the start that took too long.
        await until(lambda: len(service.containers()) == 5, "the container without a caller")
        await connected(host).service.sweeper.retry()
        assert [each["State"] for each in service.containers()] == ["running"] * 4


DEFAULT = (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 31)
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, SYS_CHROOT and SETFCAP."""


async def test_containers_have_just_these_capabilities_and_gain_none(tmp_path: Path, service: PodmanService) -> None:
    (tmp_path / "data").mkdir()
    mounts = (Mount(tmp_path / "data", "/data", read_only=False),)
    show = "grep ^Cap /proc/self/status"
    spread = "busybox cp /bin/busybox /data/id; busybox chmod 4755 /data/id /data"
    async with hosted(tmp_path / "state", service) as host:
        side = place(container="side")
        await host.runtime.start(shell(f"{show}; {spread}; {SLEEP}", mounts=mounts))
        await host.wrote("ready")
        await host.runtime.start(shell(f"{show}; /data/id -u; {SLEEP}", at=side, mounts=mounts, user=1000))
        await host.wrote("ready", side)
        sandbox = Path(f"/proc/{host.tracked(place(container='')).program.pid}/status").read_text()
        assert {*capabilities(sandbox).values()} == {0}
        expected = sum(1 << number for number in DEFAULT)
        root, user = capabilities(host.output()), capabilities(host.output(side))
        assert root == {"Inh": 0, "Prm": expected, "Eff": expected, "Bnd": expected, "Amb": 0}
        assert user == {"Inh": 0, "Prm": 0, "Eff": 0, "Bnd": expected, "Amb": 0}
        # Neither the mount nor the container lets a program of root's act as root.
        assert "\n1000\nready\n" in host.output(side)


def capabilities(status: str) -> dict[str, int]:
    """The sets of capabilities in a status file of the kernel."""
    return {name: int(number, 16) for name, number in re.findall(r"^Cap(\w+):\s*([0-9a-f]+)$", status, re.MULTILINE)}


async def test_a_disk_without_inodes_fails_only_what_needs_a_file(tmp_path: Path) -> None:
    async def story(disk: Path) -> None:
        service = Libpod()
        async with opened(disk, disk / "socket", service.transport()) as host:
            await host.runtime.start(launch())
            files = [disk / f"filler-{number}" for number in range(200)]
            with contextlib.suppress(OSError):
                for file in files:
                    file.touch()
            with pytest.raises(EngineError) as raised:
                await host.runtime.start(launch(at=place("s")))
            assert raised.value.reason is Reason.DISK_FULL
            assert (await host.running()).alive
            assert [each.place.replica for each in await host.runtime.list()] == ["r"]
            for file in files:
                file.unlink(missing_ok=True)
            await host.runtime.start(launch(at=place("s")))
            await host.runtime.remove(KEY, "s")
            assert len(service.boxes) == 2

    with small_disk(tmp_path / "disk", "size=4m,nr_inodes=60") as disk:
        await story(disk)


@pytest.mark.parametrize(("version", "rootless"), [("", False), ("", True), ("v1", True)])
async def test_a_podman_without_control_groups_runs_containers_and_reports_missing_limits(
    tmp_path: Path, version: str, rootless: bool
) -> None:
    host_info: dict[str, Any] = {**INFO["host"], "cgroupVersion": version, "cgroupControllers": None}
    host_info["security"] = {"rootless": rootless, "seccompEnabled": True}
    service = Libpod({**INFO, "host": host_info})
    spec = WorkloadSpec(KEY, Type.STANDARD, 1, "d", "h", 1, (ContainerSpec("main", "app:1"),), Options())
    async with opened(tmp_path, tmp_path / "socket", service.transport()) as host:
        await host.runtime.start(launch())
        assert (service.named("-main").body["resource_limits"], service.named("-main").updates) == ({}, [])
        assert "cannot limit CPU and memory" in " ".join(host.runtime.limitations(spec))
        assert (await host.running()).alive
