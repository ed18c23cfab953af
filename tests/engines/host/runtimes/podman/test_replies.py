"""The runtime over a service in memory: replies that are lost, refusals, adoption, and others on the same Podman."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from reconciler.engines.host.disk.ownership import IdRange
from reconciler.engines.host.runtimes.plugins import runtime_plugin
from reconciler.engines.host.runtimes.podman.api import client
from reconciler.engines.host.runtimes.podman.ends import EndWatcher
from reconciler.engines.host.runtimes.podman.folders import ContainerFolders
from reconciler.engines.host.runtimes.podman.tracking import REFRESH_SECONDS
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.host.runtimes.podman.kit import KEY, PodmanHarness, launch, opened, place
from tests.engines.host.runtimes.podman.libpod import INFO, Libpod, Refusal
from tests.support.clock import FakeClock
from tests.support.waiting import until

STEPS = [
    "GET images/[^/]+/exists",
    "POST images/load",
    "GET networks/[^/]+/exists",
    "POST networks/create",
    "POST containers/create",
    "POST containers/[^/]+/start",
    "GET containers/[^/]+/json",
    "POST containers/[^/]+/update",
]


def host(root: Path, service: Libpod, **how: Any) -> Any:
    return opened(root, root / "socket", service.transport(), **how)


def running(service: Libpod) -> list[str]:
    """The containers that run, without the parts of their names that are new at every start."""
    return sorted(box.body["name"].partition(".")[0][17:] for box in service.boxes.values() if box.state == "running")


@pytest.mark.parametrize("when", ["before", "after", "instead"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_service_that_dies_during_a_start_leaves_one_container_and_no_half(
    tmp_path: Path, step: str, when: str
) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        service.lose(step, when=when)
        await one.runtime.start(launch())
        assert running(service) == ["r", "r-main"]
        assert len(service.boxes) == 2
        # The second container of the replica has the same trouble, without what is made once.
        service.lose(step, when=when)
        await one.runtime.start(launch(at=place(container="side")))
        assert running(service) == ["r", "r-main", "r-side"]
        assert len(service.boxes) == 3
    assert (service.boxes, service.networks) == ({}, {})


@pytest.mark.parametrize("when", ["before", "after", "instead"])
@pytest.mark.parametrize("step", ["POST containers/[^/]+/init", "GET containers/[^/]+/json"])
async def test_a_service_that_dies_before_the_start_in_a_namespace_leaves_one_container_and_no_half(
    tmp_path: Path, step: str, when: str
) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        await one.runtime.start(launch(ids=IdRange(200_000)))
        service.requests.clear()
        service.lose(step, when=when)
        await one.runtime.start(launch(at=place(container="side"), ids=IdRange(200_000)))
        assert running(service) == ["r", "r-main", "r-side"]
        asked = [each.rpartition("/")[2] for each in service.requests if each.startswith("POST containers/")]
        assert asked[-3:] == ["init", "start", "update"]
        assert len(service.boxes) == 3
    assert (service.boxes, service.networks) == ({}, {})


async def test_after_a_reboot_everything_has_ended_and_starts_again(tmp_path: Path) -> None:
    service = Libpod()
    async with host(tmp_path, service, keep=True) as one:
        await one.runtime.start(launch())
        await one.runtime.start(launch(at=place(container="side")))
    service.reboot()
    async with host(tmp_path, service) as second:
        assert [each.alive for each in await second.runtime.list()] == [False, False]
        assert {each.code for each in await second.runtime.list()} == {None}
        await second.runtime.start(launch())
        assert running(service) == ["r", "r-main"]
        assert len(service.boxes) == 2


@pytest.mark.parametrize("when", ["before", "after", "instead"])
@pytest.mark.parametrize("step", ["GET containers/json", "DELETE containers/[^/]+"])
async def test_a_service_that_dies_during_a_removal_leaves_nothing(tmp_path: Path, step: str, when: str) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        await one.runtime.start(launch())
        service.lose(step, when=when)
        await one.runtime.remove(KEY, "r")
        assert service.boxes == {}
        assert await one.runtime.list() == []


async def test_a_service_that_stays_away_fails_the_start_and_nothing_is_left_when_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.05)
    service, clock = Libpod(), FakeClock()
    async with host(tmp_path, service, clock=clock) as one:
        await one.runtime.start(launch(at=place("other")))
        service.lose("POST containers/create", when="after")
        for _ in range(9):
            service.lose("GET containers/json", when="before")
        with pytest.raises(EngineError) as raised:
            await one.runtime.start(launch())
        assert raised.value.reason is Reason.RUNTIME_UNAVAILABLE
        assert len(service.boxes) == 3  # the half of a sandbox, whose fate is not known
        service.answer_again()
        await clock.advance(REFRESH_SECONDS)
        await until(lambda: len(service.boxes) == 2)
        assert running(service) == ["other", "other-main"]


@pytest.mark.parametrize(
    ("cause", "message", "reason"),
    [
        ("image not known", "", Reason.IMAGE_NOT_FOUND),
        ("OCI runtime attempted to invoke a command that was not found", "", Reason.PROGRAM_NOT_FOUND),
        ("OCI permission denied", "", Reason.NOT_PERMITTED),
        ("no matching entries in passwd file", "", Reason.USER_NOT_FOUND),
        ("x", "mkdir /x: no space left on device", Reason.DISK_FULL),
        ("internal libpod error", "what", Reason.RUNTIME_FAILED),
    ],
)
async def test_a_refusal_has_a_reason_and_the_words_of_podman_and_leaves_nothing(
    tmp_path: Path, cause: str, message: str, reason: Reason
) -> None:
    service = Libpod()

    def refuse(request: str, body: dict[str, Any]) -> None:
        if request.endswith("/start") and len(service.boxes) == 2:
            raise Refusal(500, cause, message)

    async with host(tmp_path, service) as one:
        service.refuse = refuse
        with pytest.raises(EngineError, match=message or cause) as raised:
            await one.runtime.start(launch(env={"PASSWORD": "hunter2"}))
        assert raised.value.reason is reason
        assert "hunter2" not in str(raised.value)
        assert running(service) == ["r"]


async def test_limits_that_the_service_may_not_set_are_lowered_once(tmp_path: Path) -> None:
    service = Libpod()

    def refuse(request: str, body: dict[str, Any]) -> None:
        if request == "POST containers/create" and body["r_limits"][0]["hard"] > 4096:
            raise Refusal(500, "OCI permission denied", "error setting rlimit type 7: operation not permitted")

    service.refuse = refuse
    async with host(tmp_path, service) as one:
        await one.runtime.start(launch())
        assert service.requests.count("POST containers/create") == 3
        assert running(service) == ["r", "r-main"]


async def test_a_port_that_another_program_has_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with host(tmp_path, Libpod()) as one:
            with pytest.raises(EngineError) as raised:
                await one.runtime.start(launch(replica_ports={80: port}))
            assert raised.value.reason is Reason.PORT_IN_USE
            assert not one.runtime.holds_ports(KEY, "r")


async def test_a_network_and_an_image_that_somebody_removed_are_made_again(tmp_path: Path) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        await one.runtime.start(launch())
        service.networks.clear()
        await one.runtime.start(launch(at=place("s")))
        assert len(service.networks) == 1
        assert running(service) == ["r", "r-main", "s", "s-main"]


async def test_ends_are_reported_with_their_codes_and_a_start_that_is_repeated_starts_nothing(tmp_path: Path) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        await asyncio.gather(*(one.runtime.start(launch()) for _ in range(5)))
        assert len(service.boxes) == 2
        with pytest.raises(EngineError, match="runs already in version 1"):
            await one.runtime.start(launch(version=2))
        await until(lambda: service._watchers)
        service.end(service.named("-main"), 3)
        ended = await one.over()
        assert (ended.code, ended.reason) == (3, Reason.ERROR)
        one.ended.clear()
        await one.runtime.start(launch(version=2))
        assert len(service.boxes) == 2
        await one.runtime.signal(place(), signal.SIGKILL)
        assert (await one.over()).code == 137


async def test_a_sandbox_that_ends_takes_its_replica_along_and_no_other(tmp_path: Path) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        for at in (place(), place(container="side"), place("s")):
            await one.runtime.start(launch(at=at))
        await until(lambda: service._watchers)
        service.end(next(box for box in service.boxes.values() if "rec-" in box.body["name"]), 137)
        await one.over()
        await one.over(place(container="side"))
        assert running(service) == ["s", "s-main"]
        await one.runtime.start(launch())
        assert running(service) == ["r", "r-main", "s", "s-main"]


async def test_another_daemon_adopts_by_labels_and_throws_halves_away(tmp_path: Path) -> None:
    service = Libpod()
    start = launch(version=3, config_hash="a/b", index=2, ports={80: 25999})
    async with host(tmp_path, service, keep=True) as one:
        await one.runtime.start(start)
        before = await one.running()
        await one.runtime.start(launch(at=place("s")))
        service.end(service.named("s-main"), 5)
    half = service.named("r-main").body | {"name": "half"}
    service._create({}, half)
    async with host(tmp_path, service) as second:
        found = await second.running()
        assert msgspec.structs.replace(found, started=0.0) == msgspec.structs.replace(before, started=0.0)
        assert (await second.running(place("s"))).code == 5
        assert "half" not in [box.body["name"] for box in service.boxes.values()]
        await second.runtime.start(start)
        assert (await second.runtime.stats())[place()].cpu_seconds == 2.0


async def test_a_name_that_no_image_can_have_is_refused_before_podman_is_asked(tmp_path: Path) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        with pytest.raises(EngineError, match="is not the name of an image") as raised:
            await one.runtime.start(launch(image="no image"))
        assert raised.value.reason is Reason.INVALID_IMAGE_NAME
        assert service.boxes == {}


async def test_adoption_records_containers_again_for_commands_beside_the_daemon(tmp_path: Path) -> None:
    service, plugin = Libpod(), runtime_plugin("podman")
    async with host(tmp_path, service, keep=True) as one:
        await one.runtime.start(launch())
        await one.runtime.start(launch(at=place("s")))
        before = ContainerFolders(tmp_path).record(place())
    assert before is not None
    shutil.rmtree(tmp_path / "podman")
    assert not plugin.is_in_use(tmp_path)
    async with host(tmp_path, service) as second:
        assert plugin.is_in_use(tmp_path)
        assert ContainerFolders(tmp_path).record(place()) == before
        assert ContainerFolders(tmp_path).replicas() == [(KEY, "r"), (KEY, "s")]
        await second.runtime.remove(KEY, "r")
        await second.runtime.remove(KEY, "s")
    assert not plugin.is_in_use(tmp_path)


async def test_events_of_replaced_and_removed_containers_change_nothing(tmp_path: Path) -> None:
    service = Libpod()
    async with host(tmp_path, service) as one:
        await one.runtime.start(launch())
        await until(lambda: service._watchers)
        old = service.named("r-main")
        service.end(old, 1)
        await one.over()
        await one.runtime.start(launch())
        new = service.named("r-main")
        containers = one.containers
        containers.suspect(new.id)
        await one.runtime.remove(KEY, "r")
        for box in (old, new):
            containers.suspect(box.id)
        await until(lambda: not containers._checking, "the end of the checks")
        assert not containers._by_id


async def test_everything_that_happens_to_a_replica_waits_for_the_same_lock(tmp_path: Path) -> None:
    async with host(tmp_path, Libpod()) as one:
        containers, order, go = one.containers, [], asyncio.Event()

        async def work(name: str) -> None:
            async with containers.lock(KEY, "r"):
                order.append(f"{name} begins")
                await go.wait()
                order.append(f"{name} ends")

        async with containers.lock(KEY, "r"):
            removal = asyncio.create_task(one.runtime.remove(KEY, "r"))
            await asyncio.sleep(0)
            first = asyncio.create_task(work("first"))
            await asyncio.sleep(0)
        await removal
        second = asyncio.create_task(work("second"))
        await until(lambda: order)
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(first, second)
        assert order == ["first begins", "first ends", "second begins", "second ends"]
        assert not containers._locks, "a lock that nothing uses is forgotten"


async def test_an_adoption_that_fails_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Libpod()
    async with host(tmp_path, service, keep=True) as one:
        await one.runtime.start(launch())

    def fail(*_: object) -> None:
        raise OSError("too many open files")

    before = asyncio.all_tasks()
    second = PodmanHarness(tmp_path, tmp_path / "socket", service.transport(), None)
    with monkeypatch.context() as patch:
        patch.setattr(EndWatcher, "watch", fail)
        with pytest.raises(OSError, match="too many"):
            await second.runtime.open(second.ended.append)
    assert asyncio.all_tasks() == before
    await second.runtime.open(second.ended.append)
    assert (await second.running()).alive
    await second.runtime.prune(())
    await second.runtime.close()


async def test_what_is_not_ours_is_never_touched(tmp_path: Path) -> None:
    service = Libpod()
    service._create({}, {"name": "stranger", "netns": {}})
    service.named("stranger").state = "running"
    (tmp_path / "a").mkdir()
    async with host(tmp_path / "a", service, keep=True) as one:
        await one.runtime.start(launch())
    before = {box.id: box.state for box in service.boxes.values()}
    async with host(tmp_path / "b", service) as other:
        assert await other.runtime.list() == []
        await other.runtime.start(launch())
        assert (await other.runtime.stats()).keys() == {place()}
        await other.runtime.remove(KEY, "r")
        await other.runtime.prune(())
    assert {box.id: box.state for box in service.boxes.values()} == before
    assert len(service.networks) == 1


async def test_a_stranger_in_the_network_of_a_replica_is_reported_and_stays(tmp_path: Path) -> None:
    service = Libpod()
    async with host(tmp_path, service, keep=True) as one:
        await one.runtime.start(launch())
        sandbox = one.tracked(place(container="")).id
        service._create({}, {"name": "stranger", "netns": {"nsmode": "container", "value": sandbox}})
        stranger = service.named("stranger")
        stranger.state = "running"
        with pytest.raises(EngineError, match=f"in use by the container {stranger.id[:12]}, which") as raised:
            await one.runtime.remove(KEY, "r")
        assert raised.value.reason is Reason.REMOVAL_FAILED
        assert running(service) == [""]
        assert stranger.state == "running"
    async with host(tmp_path, service) as second:
        assert stranger.id in service.boxes
        del service.boxes[stranger.id]
        await second.runtime.remove(KEY, "r")
        assert service.boxes == {}


@pytest.mark.parametrize("version", ["4.2.0", "3.0.1", ""])
async def test_a_podman_that_is_too_old_is_named(tmp_path: Path, version: str) -> None:
    info = {**INFO, "version": {"Version": version}}
    with pytest.raises(EngineError, match="too old") as raised:
        async with host(tmp_path, Libpod(info)):
            raise AssertionError
    assert raised.value.reason is Reason.RUNTIME_UNAVAILABLE


async def test_docker_at_the_socket_is_named(tmp_path: Path) -> None:
    docker = httpx2.MockTransport(lambda _: httpx2.Response(404, json={"message": "page not found"}))
    with pytest.raises(EngineError, match=r"socket is not Podman \(is it Docker\?\)") as raised:
        async with opened(tmp_path, tmp_path / "socket", docker):
            raise AssertionError
    assert raised.value.reason is Reason.RUNTIME_UNAVAILABLE


async def test_a_rootless_podman_on_cgroups_v1_reports_that_it_limits_nothing(tmp_path: Path) -> None:
    host_info: dict[str, Any] = {**INFO["host"], "cgroupVersion": "v1"}
    host_info["security"] = {"rootless": True, "seccompEnabled": False}
    service = Libpod({**INFO, "host": host_info})
    async with host(tmp_path, service) as one:
        await one.runtime.start(launch())
        body = service.named("-main").body
        assert body["resource_limits"] == {}
        assert "cgroup_parent" not in body
        assert service.named("-main").updates == []


def test_a_command_that_needs_no_podman_does_not_import_its_client() -> None:
    script = (
        "import sys; from pathlib import Path; from reconciler.engines.host.runtimes.plugins import runtime_plugin; "
        "plugin = runtime_plugin('podman'); plugin.snapshot(Path('/nonexistent'), 'here'); "
        "plugin.is_in_use(Path('/nonexistent')); sys.exit('httpx2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


async def test_a_container_that_ends_while_podman_inspects_it_has_run(tmp_path: Path) -> None:
    service, failures = Libpod(), iter(range(3))

    def refuse(request: str, body: dict[str, Any]) -> None:
        if request.endswith("/json") and request.startswith("GET containers/") and "r-main" in service_names():
            for _ in failures:
                raise Refusal(500, "no such process", "read /proc/7/cgroup: no such process")
            service.end(service.named("r-main"), 3)

    def service_names() -> str:
        return " ".join(box.body["name"] for box in service.boxes.values())

    async with host(tmp_path, service) as one:
        service.refuse = refuse
        await one.runtime.start(launch())
        found = await one.over()
        assert (found.code, found.alive) == (3, False)
        assert sum("create" in each for each in service.requests) == 3, "the network, the sandbox and one container"
