"""The runtime over Debian's Podman: what runs, how it ends, and that nothing is left of it after any kill."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.host.controllers.ephemeral_storage import storage_used
from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.dataplane.endpoints import Endpoints
from reconciler.engines.host.dataplane.ports import can_bind_port, free_ports
from reconciler.engines.host.decisions.replica import Phase, Replica, ReplicaContainer
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.host.paths import find_directory
from reconciler.engines.host.reading.location import HostReader
from reconciler.engines.host.runtimes.podman.labels import labels_of
from reconciler.engines.host.runtimes.podman.runtime import PodmanRuntime
from reconciler.engines.host.runtimes.protocol import ContainerId, Mount, StoreMount
from reconciler.engines.workload.spec import ContainerSpec, Restriction
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import External, Firewall, Internal
from reconciler.planning.plan import Action
from reconciler.reasons import Reason
from reconciler.settings import HostSettings, Settings
from reconciler.terminal.session import Channel, ExecSession, TerminalSize
from tests.engines import contract
from tests.engines.host.cron.real import WEB, apply, ask, daemon, reached, stored_output
from tests.engines.host.runtimes.podman.kit import KEY, PodmanHarness, drop_rules, launch, opened, place, shell
from tests.engines.host.runtimes.podman.test_plugin import wanted
from tests.support.command_sandbox import SETTINGS
from tests.support.plans import ExecutorHarness, ends, plan, step
from tests.support.podman import (
    APP_IMAGE,
    IMAGE,
    PodmanService,
    busybox_image,
    firewall_table,
    groups_of,
    podman_service,
    port_table,
)
from tests.support.programs import tool
from tests.support.s3 import ACCESS_KEY, SECRET_KEY, s3
from tests.support.waiting import PATIENCE, until

OWNERS: list[str] = []
"""The owners of this test's containers."""
BLOCKED_IMAGE = "localhost/reconciler-test-blocked:1"
SLEEPLESS_IMAGE = "localhost/reconciler-test-sleepless:1"
SLEEP = "trap 'exit 5' TERM; echo ready; while :; do sleep 1000 & wait; done"
PAGE_SERVER = f"mkdir /w; cd /w; echo page >index.html; httpd -p 8080; {SLEEP}"
"""A server with a page, on port 8080."""

MAIN = (ContainerSpec("main", "app:1", ports=(8080,)),)
EVERYWHERE = External(outbound_allow_cidr=("0.0.0.0/0",))

SIZED = "until stty size | grep '^40 120'; do sleep 0.05; done"
LONGEST = 150.0
"""Seconds after which a test fails: others wait for the one Podman."""


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run ``story``, for a bounded time."""

    async def bounded() -> None:
        async with asyncio.timeout(LONGEST):
            await story

    asyncio.run(bounded())


@pytest.fixture(scope="module")
def service() -> Iterator[PodmanService]:
    with podman_service() as service:
        yield service


@pytest.fixture(autouse=True)
def _nothing_is_left(service: PodmanService) -> Iterator[None]:
    """No test leaves a container, a process, a control group, a network or state of the OCI runtime."""
    OWNERS.clear()
    before = service.bridges()
    yield
    groups = [group for owner in OWNERS for group in groups_of(owner)]
    tables = [table for owner in OWNERS if (table := port_table(owner) + firewall_table(owner))]
    left = (service.containers(), service.networks(), service.bridges() - before, groups, service.oci_states(), tables)
    monitors = alive(service.monitors())
    service.clear()
    assert (left, monitors) == (([], [], set(), [], [], []), [])


def alive(pids: list[int]) -> list[int]:
    """Those that are not dead; without a reaper, dead ones stay."""
    living = []
    for pid in pids:
        path = Path(f"/proc/{pid}/stat")
        if path.exists() and path.read_text().rpartition(")")[2].split()[0] not in ("Z", "X"):
            living.append(pid)
    return living


@asynccontextmanager
async def hosted(root: Path, service: PodmanService, **how: Any) -> AsyncIterator[PodmanHarness]:
    root.mkdir(exist_ok=True)
    OWNERS.append(labels_of(root, "here").owner)
    async with opened(root, service.socket, **how) as host:
        yield host


def test_a_container_has_what_its_manifest_gives_it_and_nothing_else(tmp_path: Path, service: PodmanService) -> None:
    secret, scratch = tmp_path / "payload", tmp_path / "scratch"
    secret.write_text("hunter2")
    secret.chmod(0o400)
    scratch.mkdir()
    (tmp_path / "endpoints").mkdir()
    mounts = (Mount(secret, "/etc/sec/payload"), Mount(scratch, "/run/scratch", read_only=False))
    script = """
        cat /etc/sec/payload; echo; echo x 2>/dev/null >/etc/sec/payload || echo read-only
        echo kept >/run/scratch/file; stat -c %a:%u /etc/sec/payload
        echo "$A"; echo "port $PORT"; cat /proc/sys/kernel/hostname; pwd
        grep -c side /etc/hosts; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status
        ulimit -n; ulimit -Hn; ls -d /run/reconciler/endpoints; ls /dev/kvm /dev/kmsg
        nc -l -p 9090; nc -l -p 41000; echo end
    """

    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            start = shell(script, env={"A": "two words\nand a line"}, mounts=mounts, cpu=200, memory=64 << 20)
            await host.runtime.start(msgspec.structs.replace(start, directory="/srv/app", siblings=("main", "side")))
            output = await host.wrote("end\n")
            assert (scratch / "file").read_text() == "kept\n"
            box = Path(f"/proc/{host.tracked(place(container='')).program.pid}/status").read_text()
            assert re.findall(r"(?:CapBnd|NoNewPrivs|Seccomp):\t(\w+)", box) == ["0" * 16, "1", "2"]
        lines = output.splitlines()
        assert lines[:3] == ["hunter2", "read-only", "400:0"]
        assert lines[3:8] == ["two words", "and a line", "port ", "r", "/srv/app"]
        assert lines[8] == "1"
        facts = dict(line.split(":\t") for line in lines[9:12])
        assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
        assert not int(facts["CapEff"], 16) & (1 << 13 | 1 << 21)  # NET_RAW, SYS_ADMIN
        assert lines[12] == lines[13]  # soft and hard
        assert lines[14] == "/run/reconciler/endpoints"
        assert output.count("Address already in use") == 2
        assert output.count("No such file") == 2

    run(story())


def test_limits_are_in_the_control_groups(tmp_path: Path, service: PodmanService) -> None:
    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            await host.runtime.start(shell(SLEEP, cpu=200, memory=64 << 20, processes=77))
            assert set(limits(host).values()) == {str(64 << 20), "20000", "77"}
            pid = host.tracked(place()).program.pid
            await host.runtime.resize(place(), 300, 96 << 20)
            assert set(limits(host).values()) == {str(96 << 20), "30000", "77"}
            await host.runtime.resize(place(), 100, 32 << 20)
            assert set(limits(host).values()) == {str(32 << 20), "10000", "77"}
            with pytest.raises(EngineError, match="is not below the new limit"):
                await host.runtime.resize(place(), 100, 4096)
            assert set(limits(host).values()) == {str(32 << 20), "10000", "77"}
            assert (host.ended, host.tracked(place()).program.pid) == ([], pid)
            with pytest.raises(EngineError, match="does not run"):
                await host.runtime.resize(place("other"), 100, 32 << 20)

    run(story())


def test_a_restricted_container_lacks_capabilities_and_writes_to_its_volumes_and_memory_alone(
    tmp_path: Path, service: PodmanService
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    script = """
        for to in /tmp /var/tmp /run /data / /home; do echo > $to/file 2>/dev/null && echo wrote $to; done
        grep CapBnd /proc/self/status; grep -c . /etc/hosts; ls /run/reconciler; echo done
    """

    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            restriction = Restriction(read_only=True, dropped=("ALL",))
            mounts = (Mount(volume, "/data", read_only=False),)
            await host.runtime.start(shell(script, restriction=restriction, mounts=mounts, directory="/work"))
            lines = (await host.wrote("done")).splitlines()
            assert [line for line in lines if line.startswith("wrote")] == [
                f"wrote {path}" for path in ("/tmp", "/var/tmp", "/run", "/data")
            ]
            assert f"CapBnd:\t{'0' * 16}" in lines
            assert "endpoints" in lines
        assert (volume / "file").exists()

    run(story())


def limits(host: PodmanHarness) -> dict[str, str]:
    """The limits in the control groups of the container, by the name of their file."""
    names = ("memory.limit_in_bytes", "memory.max", "cpu.cfs_quota_us", "cpu.max", "pids.max")
    paths = [Path(group, name) for group in host.tracked(place()).groups for name in names]
    return {path.name: path.read_text().split()[0] for path in paths if path.exists()}


def test_a_container_reads_an_object_store(tmp_path: Path, service: PodmanService) -> None:
    for name in ("rclone", "fusermount3"):
        tool(name, "rclone fuse3")

    async def story(store: StoreMount) -> None:
        async with hosted(tmp_path / "state", service) as host:
            if lacking := connected(host).service.capabilities.lacks_for_stores:
                pytest.skip(lacking)
            script = "cat /s3/a.txt; echo x 2>/dev/null >/s3/b.txt || echo read-only; echo end"
            await host.runtime.start(shell(script, image=APP_IMAGE, stores=(store,)))
            assert await host.wrote("end\n") == "picture\nread-only\nend\n"

    with s3(pictures={"a.txt": b"picture\n"}) as server:
        options = {"type": "s3", "provider": "Other", "endpoint": server.endpoint, "region": "eu-central-1"}
        options |= {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
        run(story(StoreMount("s3://pictures", "/s3", "pictures", options)))
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def test_how_containers_end_is_reported(tmp_path: Path, service: PodmanService) -> None:
    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:

            async def ended(*, name: str, **how: Any) -> tuple[int | None, str]:
                at = place(container=name)
                await host.runtime.start(shell(at=at, **how) if "script" in how else launch(at=at, **how))
                found = await host.over(at)
                return found.code, found.reason

            for _ in range(3):  # it may end before its quota of CPU is set
                assert await ended(name="a", script="exit 3") == (3, Reason.ERROR)
                host.ended.clear()
            assert await ended(name="b", script="kill -9 $$; exit 1") == (1, Reason.ERROR)  # pid 1 is not killed
            assert await ended(name="c") == (0, Reason.COMPLETED)
            assert host.output(place(container="c")) == "entrypoint default\n"
            eat = "x=x; while :; do x=$x$x; done"
            assert await ended(name="d", script=eat, memory=8 << 20) == (137, Reason.OUT_OF_MEMORY)
            with pytest.raises(EngineError, match="nosuch") as raised:
                await host.runtime.start(launch(at=place(container="e"), command="nosuch"))
            assert raised.value.reason is Reason.PROGRAM_NOT_FOUND
            with pytest.raises(EngineError) as raised:
                await host.runtime.start(launch(at=place(container="e"), image="localhost/nosuch:1"))
            assert raised.value.reason is Reason.IMAGE_NOT_FOUND
            assert len(service.containers()) == 5

    run(story())


def test_a_running_container_is_reached_measured_entered_signalled_and_adopted(
    tmp_path: Path, service: PodmanService
) -> None:
    ports = free_ports([8080], ())
    script = f"mkdir /w; cd /w; echo page >index.html; httpd -p 8080; {SLEEP}"

    async def story() -> None:
        async with hosted(tmp_path / "state", service, keep=True) as host:
            start = shell(script, ports=ports, replica_ports=ports, env={"A": "1"})
            await host.runtime.start(start)
            await host.wrote("ready")
            assert await asyncio.to_thread(fetch, ports[8080]) == b"page\n"
            assert host.runtime.holds_ports(KEY, "r")
            assert not can_bind_port(ports[8080])
            assert f"{ports[8080]} : " in port_table(OWNERS[-1])
            assert [each["Ports"] for each in service.containers()] == [None, None], "Podman calls no iptables for them"
            found = await host.runtime.exec(place(), ["sh", "-c", "echo $A; echo err >&2; exit 4"], 10)
            assert (found.code, sorted(found.output.split()), found.timed_out) == (4, ["1", "err"], False)
            assert (await host.runtime.exec(place(), ["nosuch"], 10)).code == 127
            assert (await host.runtime.exec(place(), ["/etc/passwd"], 10)).code == 126
            assert await host.runtime.can_sleep(place())
            late = await host.runtime.exec(place(), ["sleep", "1001"], 0.3)
            assert (late.code, late.timed_out) == (137, True)
            listed = (await host.runtime.exec(place(), ["sh", "-c", "cat /proc/[0-9]*/cmdline"], 10)).output
            assert "1001" not in listed
            used = (await host.runtime.stats())[place()]
            assert 0 < used.cpu_seconds < 60
            assert 0 < used.memory < 128 << 20
            written = await host.runtime.exec(place(), ["dd", "if=/dev/zero", "of=/w/file", "bs=1M", "count=2"], 10)
            assert written.code == 0
            assert storage_used(list(host.runtime.written_paths(place())), 1 << 30) >= 2 << 20
            before = await host.running()
        async with hosted(tmp_path / "state", service) as second:
            after = await second.running()
            assert msgspec.structs.replace(after, started=0.0) == msgspec.structs.replace(before, started=0.0)
            assert abs(after.started - before.started) < 5
            await second.runtime.start(start)
            await second.runtime.signal(place(), signal.SIGTERM)
            assert (await second.over()).code == 5
            second.ended.clear()
            await second.runtime.start(msgspec.structs.replace(start, version=2))
            assert await asyncio.to_thread(fetch, ports[8080]) == b"page\n"
            await second.runtime.signal(place(), signal.SIGKILL)
            assert ((await second.over()).code, (await second.running()).reason) == (137, Reason.ERROR)
            assert not can_bind_port(ports[8080])
            await second.runtime.remove(KEY, "r")
            assert can_bind_port(ports[8080])
            await until(lambda: f"{ports[8080]} : " not in port_table(OWNERS[-1]), "no port leads to it")

    run(story())


def test_containers_reach_replicas_by_name_and_at_the_addresses_in_their_endpoints_files(
    tmp_path: Path, service: PodmanService
) -> None:
    ports, other = free_ports([8080], ()), free_ports([8080], (), spread="another")
    ask = r"""
        for each in api old; do
          file=$(cat /run/reconciler/endpoints/$each.json); at=${file#*\"address\":\"}; at=${at%%\"*}
          echo $each $(printf "GET /index.html HTTP/1.0\r\n\r\n" | nc ${at%:*} ${at#*:} | tail -n 1)
        done
        for each in api api.shop.platform.local; do
          echo $each $(printf "GET /index.html HTTP/1.0\r\n\r\n" | nc $each 8080 | tail -n 1)
        done; echo end
    """
    old = Key(Kind.WORKLOAD, "shop", "old")
    expected = "api page\nold process\napi page\napi.shop.platform.local page\nend\n"

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nprocess\n")
        await writer.drain()
        writer.close()

    async def story() -> None:
        root = tmp_path / "state"
        async with hosted(root, service) as host:
            host.runtime.prepare(wanted(containers=MAIN, firewall=Firewall(EVERYWHERE, Internal("same-gvc"))))
            await host.runtime.start(shell(PAGE_SERVER, replica_ports=ports))
            await host.wrote("ready")
            endpoints = Endpoints(root / "endpoints", host.runtime.addresses, host.runtime.publish)
            endpoints.publish(KEY, [Replica("r", KEY, 1, "", 0.0, (), ports=ports, ready_since=1.0)])
            async with await asyncio.start_server(answer, "0.0.0.0", other[8080]):
                endpoints.publish(old, [Replica("p", old, 1, "", 0.0, (), ports=other, ready_since=1.0)])
                await host.runtime.start(shell(ask, at=place("asks"), user=1000))
                assert await host.wrote("end", place("asks")) == expected

    run(story())


def test_the_firewall_follows_the_manifest_while_containers_run(tmp_path: Path, service: PodmanService) -> None:
    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:

            async def reaches(address: str, port: int) -> bool:
                return await reaches_from(host, address, port)

            await host.runtime.start(shell(PAGE_SERVER))
            await host.wrote("ready")
            await host.runtime.start(launch("sleep", "1000", at=place("asks"), command="/bin/busybox"))
            network = host.tracked(place("r", "")).network
            async with await asyncio.start_server(lambda _, writer: writer.close(), network.gateway, 0) as server:
                listener = (network.gateway, server.sockets[0].getsockname()[1])
                assert not await reaches(network.address, 8080)
                assert not await reaches(*listener)
                host.runtime.prepare(wanted(containers=MAIN, firewall=Firewall(internal=Internal("same-gvc"))))
                while not await reaches(network.address, 8080):
                    pass
                assert not await reaches(*listener)
                host.runtime.prepare(wanted(containers=MAIN, firewall=Firewall(EVERYWHERE)))
                while not await reaches(*listener):
                    pass
                assert not await reaches(network.address, 8080)
                ports = [each for name in service.bridges() for each in Path("/sys/class/net", name).glob("brif/*")]
                assert [(each / "isolated").read_text().strip() for each in ports] == ["1", "1"]

    run(story())


async def reaches_from(host: PodmanHarness, address: str, port: int) -> bool:
    """Whether the container "asks" gets an answer from ``address``."""
    script = f"printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | nc -w 1 {address} {port} >/dev/null"
    return not (await host.runtime.exec(place("asks"), ("/bin/sh", "-c", script), PATIENCE)).code


def test_rules_that_a_deleted_location_left_apply_to_no_other_one(tmp_path: Path, service: PodmanService) -> None:
    async def story() -> None:
        async with hosted(tmp_path / "deleted", service, keep=True) as host:
            await host.runtime.start(shell(SLEEP))
        # As where people delete the state directory, the containers and the network: the table stays.
        for container in service.containers():
            service.request("DELETE", f"containers/{container['Id']}?force=true&timeout=0&ignore=true&depend=true")
        for network in service.networks():
            service.request("DELETE", f"networks/{network}")
        assert "drop" in firewall_table(OWNERS[0])
        try:
            async with hosted(tmp_path / "state", service) as host:
                host.runtime.prepare(wanted(containers=MAIN, firewall=Firewall(internal=Internal("same-gvc"))))
                await host.runtime.start(shell(PAGE_SERVER))
                await host.wrote("ready")
                await host.runtime.start(launch("sleep", "1000", at=place("asks"), command="/bin/busybox"))
                assert await reaches_from(host, host.tracked(place("r", "")).network.address, 8080)
        finally:
            async with hosted(tmp_path / "deleted", service):
                pass  # its end removes the table

    run(story())


def fetch(port: int, path: str = "") -> bytes:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
                return answer.read()  # type: ignore[no-any-return]
        except OSError:
            time.sleep(0.02)
    raise AssertionError(port)


def test_an_image_may_lack_the_program_of_the_default_hook(tmp_path: Path, service: PodmanService) -> None:
    service.load(busybox_image(SLEEPLESS_IMAGE, without="sleep"))

    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            await host.runtime.start(launch("-f", "-p", "8080", command="httpd", image=SLEEPLESS_IMAGE))
            assert not await host.runtime.can_sleep(place())
            with pytest.raises(EngineError, match="does not run"):
                await host.runtime.can_sleep(place("other"))

    run(story())


def test_a_session_has_streams_or_a_terminal_of_the_container(tmp_path: Path, service: PodmanService) -> None:
    async def output_of(session: ExecSession) -> bytes:
        raw = b""
        while (output := await session.read()) is not None:
            raw += output.content
        return raw

    async def ran(host: PodmanHarness, *argv: str) -> tuple[int, bytes]:
        session = await host.runtime.open_session(place(), argv, None)
        await session.write(b"hello\n")
        await session.close_stdin()
        found = await output_of(session)
        try:
            return await session.wait(), found
        finally:
            await session.close()

    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            await host.runtime.start(shell(SLEEP, env={"A": "1"}))
            assert await ran(host, "sh", "-c", "cat; echo $A; exit 4") == (4, b"hello\n1\n")
            assert await ran(host, "nosuch") == (127, b"error: the container has no program nosuch in its PATH\n")
            assert (await ran(host, "/etc/passwd"))[0] == 126
            # A shell that reads commands loses a line that is typed while it handles the new size; a script loses none.
            script = f"{SIZED.replace('40 120', '30 100')}; read line; {SIZED}; exit 3"
            session = await host.runtime.open_session(place(), ["sh", "-c", script], TerminalSize(30, 100))
            seen = b""
            while b"30 100" not in seen:
                output = await session.read()
                assert output is not None, seen
                seen += output.content
            await session.resize(TerminalSize(40, 120))
            await session.write(b"words\n")
            assert b"40 120" in await output_of(session)
            assert await session.wait() == 3
            await session.close()
            session = await host.runtime.open_session(place(), ["sleep", "1002"], None)
            await session.close()
            find = ["sh", "-c", "cat /proc/[0-9]*/cmdline"]
            deadline = asyncio.get_running_loop().time() + 10
            while "1002" in (await host.runtime.exec(place(), find, 10)).output:
                assert asyncio.get_running_loop().time() < deadline

    run(story())


def test_programs_run_over_the_api_where_the_runtime_is_out_of_reach(tmp_path: Path, service: PodmanService) -> None:
    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            await host.runtime.start(shell(SLEEP))
            execution = connected(host).service.execution
            execution._capabilities = msgspec.structs.replace(execution._capabilities, direct=False)
            found = await host.runtime.exec(place(), ["sh", "-c", "echo out; echo err >&2; exit 4"], 10)
            assert (found.code, sorted(found.output.splitlines())) == (4, ["err", "out"])
            assert (await host.runtime.exec(place(), ["nosuch"], 10)).code == 127
            late = await host.runtime.exec(place(), ["sleep", "1001"], 0.3)
            assert (late.code, late.timed_out) == (137, True)
        await until(lambda: not alive(service.monitors()), "the end of what the API leaves")

    run(story())


def connected(host: PodmanHarness) -> Any:
    assert host.runtime._open is not None
    return host.runtime._open


def test_a_killed_sandbox_ends_its_replica_and_a_killed_monitor_its_container(
    tmp_path: Path, service: PodmanService
) -> None:
    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            side = place(container="side")
            for at in (place(), side):
                await host.runtime.start(shell(SLEEP, at=at))
            os.kill(host.tracked(side).monitor.pid, signal.SIGKILL)
            assert (await host.over(side)).code == 137
            assert (await host.running()).alive
            await host.runtime.start(shell(SLEEP, at=side))
            host.ended.clear()
            os.kill(host.tracked(ContainerId(KEY, "r", "")).program.pid, signal.SIGKILL)
            for at in (place(), side):
                assert (await host.over(at)).code == 137
            await host.runtime.start(shell(SLEEP))
            assert (await host.running()).alive
            assert len([each for each in service.containers() if each["State"] == "running"]) == 2

    run(story())


@pytest.mark.slow
def test_a_service_that_is_killed_again_and_again_doubles_nothing_and_leaves_nothing(
    tmp_path: Path, service: PodmanService
) -> None:
    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            for pause in (0.01, 0.05, 0.09, 0.14):
                names = [f"r{pause}-{number}" for number in range(2)]
                work = [asyncio.create_task(host.runtime.start(shell(SLEEP, at=place(name)))) for name in names]
                await asyncio.sleep(pause)
                await asyncio.to_thread(service.restart)
                await asyncio.gather(*work)
                running = [container for container in service.containers() if container["State"] == "running"]
                assert len(running) == 4, running
                assert len(service.containers()) == 4
                assert all(container.alive for container in await host.runtime.list())
                gone = [asyncio.create_task(host.runtime.remove(KEY, name)) for name in names]
                await asyncio.sleep(pause / 2)
                await asyncio.to_thread(service.restart)
                await asyncio.gather(*gone)
                assert service.containers() == []

    run(story())


@pytest.mark.slow
def test_two_daemons_on_one_podman_leave_each_other_alone(tmp_path: Path, service: PodmanService) -> None:
    async def story() -> None:
        async with hosted(tmp_path / "a", service) as one:
            await one.runtime.start(shell(SLEEP))
            async with hosted(tmp_path / "b", service) as other:
                assert await other.runtime.list() == []
                await other.runtime.start(shell("exit 0"))
                await other.over()
                assert (await other.runtime.stats()) == {}
                await other.runtime.remove(KEY, "r")
                await other.runtime.prune(())
            assert (await one.running()).alive
            assert one.ended == []
            assert len(service.containers()) == 2

    run(story())


def hide_nft(patch: pytest.MonkeyPatch) -> None:
    """Make this host one without nftables."""
    which = shutil.which
    patch.setattr(shutil, "which", lambda name, path=None: None if name == "nft" else which(name, path=path))


def test_a_user_of_an_image_owns_its_files_and_user_1337_has_no_network(
    tmp_path: Path, service: PodmanService, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, scratch = tmp_path / "payload", tmp_path / "scratch"
    secret.write_text("hunter2\n")
    secret.chmod(0o400)
    scratch.mkdir(mode=0o700)
    mounts = (Mount(secret, "/etc/sec/payload"), Mount(scratch, "/data", read_only=False))
    first, second, third = (free_ports([8080], (), spread=spread) for spread in ("", "another", "third"))

    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            serve = f"httpd -p 8080 -h /etc; {SLEEP}"
            script = f"id -u; id -g; cat /etc/sec/payload; touch /data/file && echo written; {serve}"
            await host.runtime.start(shell(script, image=APP_IMAGE, mounts=mounts, replica_ports=first))
            lines = (await host.wrote("ready")).splitlines()
            assert lines == ["1000", "1000", "hunter2", "written", "ready"]
            assert await asyncio.to_thread(fetch, first[8080], "passwd")
            asked = place("asked")
            await host.runtime.start(shell(f"ls /sys/class/net; id -u; {SLEEP}", at=asked, user=1337))
            assert (await host.wrote("ready", asked)).splitlines() == ["lo", "1337", "ready"]
            service.load(busybox_image(BLOCKED_IMAGE, user="blocked"))
            inside = place("inside")
            await host.runtime.start(shell(serve, at=inside, image=BLOCKED_IMAGE, replica_ports=second))
            await host.wrote("ready", inside)
            with pytest.raises(OSError, match="timed out"):
                await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{second[8080]}/passwd", timeout=1)
            hide_nft(monkeypatch)
            served = place("unrestricted")
            await host.runtime.start(shell(serve, at=served, image=BLOCKED_IMAGE, replica_ports=third))
            await host.wrote("ready", served)
            assert await asyncio.to_thread(fetch, third[8080], "passwd")
            limited = "\n".join(host.runtime.limitations(wanted()))
            assert "user 1337 still has a network: the daemon lacks nftables" in limited
            for at in (place(), inside):
                pid = host.tracked(msgspec.structs.replace(at, container="")).program.pid
                assert drop_rules(pid) == 1, "one rule in each sandbox, for any names of images"

    run(story())


SERVE = "mkdir /w; cd /w; echo page >index.html; trap 'exit 0' TERM; httpd -f -p $PORT & wait"
QUICK = (contract.a_restart_takes_over_what_there_is,)


@pytest.mark.parametrize(
    "promise",
    [pytest.param(each, marks=[] if each in QUICK else pytest.mark.slow) for each in contract.PROMISES],
    ids=lambda promise: promise.__name__,
)
def test_the_engine_keeps_its_promises_with_containers_of_images(
    promise: Callable[[contract.EngineHarness], None],
    tmp_path: Path,
    service: PodmanService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(harness: ExecutorHarness, path: Path) -> contract.EnginePair:
        settings = Settings("acme", (), path, host=HostSettings(termination_scale=0.01))
        context = EngineContext(LocationRecords(harness.records, "here"), settings, harness.clock, lambda key: None)  # type: ignore[arg-type, return-value]
        root = find_directory(path, "here")
        OWNERS.append(labels_of(root, "here").owner)
        runtime = PodmanRuntime(root, "here", harness.clock, service.socket)
        return contract.EnginePair(HostEngine(context, root, runtime), HostReader(settings, "here"))

    spec = copy.deepcopy(contract.SPEC)
    spec["spec"]["containers"][0] |= {"image": IMAGE, "command": "/bin/sh", "args": ["-c", SERVE]}
    monkeypatch.setattr(contract, "SPEC", spec)
    with contract.subject_of(contract.Factory(make, SystemClock), tmp_path) as subject:
        promise(subject)


@pytest.mark.slow
def test_an_execution_of_a_cron_workload_outlives_the_daemon(tmp_path: Path, service: PodmanService) -> None:
    OWNERS.append(labels_of(tmp_path / "here", "here").owner)
    waits = "until [ -e /go ]; do sleep 0.05; done; exit $CODE"
    short = "echo fatal: bad configuration; exit 4"

    def runtime() -> PodmanRuntime:
        return PodmanRuntime(tmp_path / "here", "here", SystemClock(), service.socket)

    async def started(known: PodmanRuntime, at: ContainerId) -> None:
        while not any(each.place == at and each.alive for each in await known.list()):
            await asyncio.sleep(0.02)

    async def story() -> None:
        harness, first, second = ExecutorHarness(tmp_path, SystemClock()), runtime(), runtime()
        async with daemon(harness, tmp_path, first) as engine:
            await apply(harness, image=IMAGE, command="/bin/sh", args=["-c", short])
            for _ in range(3):
                await ask(engine)
                failed = await reached(engine, "Failure")
                assert failed.conditions[0]["message"] == "main ended with 4 (Error)"
                assert failed.replica
            name = await ask(engine, args=["-c", waits], env=[{"name": "CODE", "value": "0"}])
            at = ContainerId(Key.parse(WEB), name, "main")
            await started(first, at)
        async with daemon(harness, tmp_path, second) as engine:
            assert (await reached(engine, "Active")).name == name
            # The container may end, and with it this program, before the program does: 137 is as good.
            assert (await second.exec(at, ["touch", "/go"], 10)).code in (0, 137)
            assert (await reached(engine, "Success")).name == name
            await until(lambda: not service.containers(), "the removal of the execution")
            await second.prune(())
        assert stored_output(tmp_path) == ["fatal: bad configuration"] * 3
        harness.records.close()

    run(story())


@pytest.mark.slow
def test_the_last_words_of_short_containers_are_stored_once(tmp_path: Path, service: PodmanService) -> None:
    OWNERS.append(labels_of(tmp_path / "here", "here").owner)
    texts = {str(number): f"echo line {number}; echo err {number} >&2; exit $(({number} % 3))" for number in range(20)}

    async def story() -> None:
        harness = ExecutorHarness(tmp_path, SystemClock())
        runtime = PodmanRuntime(tmp_path / "here", "here", SystemClock(), service.socket)
        async with daemon(harness, tmp_path, runtime) as engine:
            await apply(harness, image=IMAGE, command="/bin/sh", args=["-c", "exit 0"])
            for text in texts.values():
                await ask(engine, args=["-c", text])
            await until(lambda: len(stored_output(tmp_path)) >= 40, "the output of all")
            await until(lambda: not (tmp_path / "here" / "podman").exists(), "the removal of the executions")
        wanted = [f"{kind} {number}" for number in texts for kind in ("line", "err")]
        assert sorted(stored_output(tmp_path)) == sorted(wanted)
        harness.records.close()

    run(story())


@pytest.mark.slow
def test_the_fatal_message_of_each_run_of_a_workload_is_stored_once(tmp_path: Path, service: PodmanService) -> None:
    OWNERS.append(labels_of(tmp_path / "here", "here").owner)
    keys = [f"workload/shop/fatal{number}" for number in range(5)]

    def body(key: str) -> dict[str, Any]:
        name, script = key.rpartition("/")[2], "cat /proc/sys/kernel/random/uuid; exit 1"
        container = {"name": "main", "image": IMAGE, "command": "/bin/sh", "args": ["-c", script]}
        scale = {"metric": "disabled", "minScale": 1, "maxScale": 1}
        spec = {"type": "standard", "containers": [container], "defaultOptions": {"autoscaling": scale}}
        return {"kind": "workload", "name": name, "spec": spec}

    async def story() -> None:
        harness = ExecutorHarness(tmp_path, SystemClock())
        runtime = PodmanRuntime(tmp_path / "here", "here", SystemClock(), service.socket)
        async with daemon(harness, tmp_path, runtime) as engine:
            await harness.run(plan(*(step(key, body=body(key), engine="host") for key in keys)))
            names = [f"{key.rpartition('/')[2]}-" for key in keys]
            await until(lambda: all(len(stored_output(tmp_path, name)) >= 2 for name in names), "two runs of each")
            for _ in range(200):
                gone = await harness.run(plan(*(step(key, action=Action.DELETE, engine="host") for key in keys)))
                if set(ends(gone).values()) == {"applied"}:
                    break
                await asyncio.sleep(0.1)
            assert await engine.observe() == []
        lines = stored_output(tmp_path)
        assert (len(set(lines)), {len(line) for line in lines}) == (len(lines), {36})
        harness.records.close()

    run(story())


async def _written(session: ExecSession) -> dict[Channel, bytes]:
    """All that a program writes from now on, by stream."""
    written = {Channel.STDOUT: b"", Channel.STDERR: b""}
    while (output := await session.read()) is not None:
        written[output.channel] += output.content
    return written


def test_sessions_go_over_the_api_where_the_runtime_is_out_of_reach(tmp_path: Path, service: PodmanService) -> None:
    content = os.urandom(1 << 20)

    async def ran(host: PodmanHarness, *argv: str, typed: bytes = b"") -> tuple[int, dict[Channel, bytes]]:
        session = await host.runtime.open_session(place(), argv, None)

        async def feed() -> None:
            await session.write(typed)
            await session.close_stdin()

        feeding = asyncio.create_task(feed())
        written = await _written(session)
        await feeding
        code = await session.wait()
        await session.close()
        return code, written

    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            await host.runtime.start(shell(SLEEP, env={"A": "1"}))
            before = set(alive(service.monitors()))
            [record] = (tmp_path / "state").rglob("container.json")
            record.write_text(json.dumps({**json.loads(record.read_text()), "oci": []}))
            code, written = await ran(host, "sh", "-c", "cat; echo $A >&2; exit 255", typed=content)
            assert (code, written[Channel.STDOUT] == content, written[Channel.STDERR]) == (255, True, b"1\n")
            code, written = await ran(host, "nosuch")
            assert (code, b"unixpacket" in written[Channel.STDERR]) == (127, False)
            # The trap is set before Ctrl-C is typed: a shell that starts a program just then would not pass it on.
            script = f"read line; {SIZED}; trap 'exit 3' INT; echo typed $line; while :; do sleep 0.05; done"
            session = await host.runtime.open_session(place(), ["sh", "-c", script], TerminalSize(30, 100))
            await session.resize(TerminalSize(40, 120))
            await session.write(b"words\n")
            seen = b""
            while b"\ntyped words" not in seen:
                output = await session.read()
                assert output is not None, seen
                seen += output.content
            assert b"\n40 120" in seen
            await session.write(b"\x03")
            await _written(session)
            assert await session.wait() == 3
            await session.close()
            session = await host.runtime.open_session(place(), ["sleep", "1000"], None)
            await host.runtime.signal(place(), signal.SIGKILL)
            assert await session.read() is None
            with pytest.raises(EngineError, match="has ended, and the program with it"):
                await session.wait()
            await session.close()
            await until(lambda: set(alive(service.monitors())) <= before, "the end of what the API leaves")

    run(story())


def test_the_command_enters_a_container_of_an_image_without_a_daemon(tmp_path: Path, service: PodmanService) -> None:
    settings = SETTINGS.replace("  here: {engine: recorded}", "  here: {engine: host, runtime: podman}")
    (tmp_path / "settings.yaml").write_text(f"{settings}\npodman: {{socket: {service.socket}}}\n")
    root = tmp_path / "state" / "host" / "here"
    root.parent.mkdir(parents=True)
    command = [sys.executable, "-m", "reconciler.cli", "exec", str(KEY), "--settings", str(tmp_path / "settings.yaml")]
    script = "cat; echo $A; exit 7"

    async def story() -> None:
        async with hosted(root, service) as host:
            await host.runtime.start(shell(SLEEP, env={"A": "1"}))
            member = ReplicaContainer("main", Phase.RUNNING)
            ReplicaStore(root / "replicas").save(Replica("r", KEY, 1, "", 0.0, (member,), ready_since=1.0))
            child = await asyncio.create_subprocess_exec(
                *command, "--", "sh", "-c", script, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert await child.communicate(b"typed\n") == (b"typed\n1\n", None)
            assert child.returncode == 7

    run(story())
