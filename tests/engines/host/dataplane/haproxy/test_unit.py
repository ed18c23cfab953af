"""HAProxy that its systemd unit runs: the daemon starts none, and ends it by taking its configuration away."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

from reconciler.engines.host.dataplane.haproxy.config import CONFIG, MASTER_SOCKET, PID
from reconciler.engines.host.dataplane.haproxy.discovery import ProxyUnit, find_master, spawn_master
from reconciler.engines.host.dataplane.haproxy.routes import _bind_fault
from reconciler.engines.host.reading.host_checks import check_unit
from tests.engines.host.dataplane.haproxy.kit import KEY, SERVICE, Plane, WebReplica, end, get, play
from tests.engines.host.dataplane.kit import PATIENCE, until
from tests.support.programs import OWNER, only_root, tool


def enable(root: Path) -> ProxyUnit:
    """The unit of the location ``here``, enabled on the host below ``root``."""
    unit = ProxyUnit("here", root)
    (root / "run/systemd/system").mkdir(parents=True)
    links = root / "etc/systemd/system/multi-user.target.wants"
    links.mkdir(parents=True)
    (links / unit.trigger).symlink_to("/etc/systemd/system/reconciler-haproxy@.path")
    return unit


def test_a_unit_is_enabled_by_its_link_alone(tmp_path: Path) -> None:
    unit = enable(tmp_path)
    assert unit.is_enabled()
    assert not ProxyUnit("other", tmp_path).is_enabled()
    (tmp_path / "run/systemd/system").rmdir()
    assert not unit.is_enabled(), "systemd does not run here"


async def answers(plane: Plane, address: str) -> None:
    """Return once the replica a answers there; the worker of a new HAProxy may not be ready yet."""
    async with asyncio.timeout(PATIENCE):
        while (await get(address)).body != "a":
            await plane.dataplane.synchronize(KEY)


def test_the_daemon_leaves_the_start_to_the_unit_and_adopts_what_that_runs(tmp_path: Path) -> None:
    program, root = tool("haproxy", "haproxy"), tmp_path / "root"
    enable(root)

    async def story(plane: Plane) -> None:
        config = plane.directory / CONFIG
        plane.dataplane.update(KEY, ((await WebReplica("a").start()).endpoint,))
        plane.dataplane.publish(SERVICE)
        await until(config.exists)
        assert plane.master == 0
        started = await asyncio.to_thread(spawn_master, plane.directory, program)
        # The daemon cannot see the directory of a process with more capabilities: only the socket proves it.
        await until((plane.directory / PID).exists)
        (plane.directory / PID).unlink()
        await until(lambda: plane.dataplane.address(KEY))
        address = plane.dataplane.address(KEY)
        await answers(plane, address)
        # On a busy machine the queue of its socket is full for a moment.
        await until(lambda: plane.master == started)

        # Its unit replaces one that hangs or was killed.
        os.killpg(started, signal.SIGKILL)
        again = await asyncio.to_thread(spawn_master, plane.directory, program)
        await until(lambda: plane.master == again)
        await answers(plane, address)

        # Without a configuration, it does not start it again.
        plane.dataplane.withdraw(KEY)
        await until(lambda: plane.master == 0)
        assert not config.exists()

    try:
        play(lambda: Plane(tmp_path, root=root), story)
    finally:
        end(tmp_path)


def test_a_unit_that_is_enabled_later_relieves_what_the_daemon_started(tmp_path: Path) -> None:
    program, root = tool("haproxy", "haproxy"), tmp_path / "root"

    async def story(plane: Plane) -> None:
        address = await plane.address(SERVICE, await WebReplica("a").start())
        former = plane.master
        enable(root)
        try:
            newer = await asyncio.to_thread(spawn_master, plane.directory, program)
            await until(lambda: plane.master == newer)
        finally:
            # The first command of the unit.
            os.kill(former, signal.SIGUSR1)
        await plane.ready(await WebReplica("b").start())
        async with asyncio.timeout(PATIENCE):
            while (await get(address)).body != "b":
                await plane.dataplane.synchronize(KEY)
        assert plane.master == newer

    try:
        play(lambda: Plane(tmp_path, root=root), story)
    finally:
        end(tmp_path)


def test_one_that_still_drains_serves_again(tmp_path: Path) -> None:
    program, root = tool("haproxy", "haproxy"), tmp_path / "root"
    enable(root)

    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        plane.dataplane.update(KEY, (replica.endpoint,))
        plane.dataplane.publish(SERVICE)
        await until((plane.directory / CONFIG).exists)
        started = await asyncio.to_thread(spawn_master, plane.directory, program)
        await until(lambda: plane.dataplane.address(KEY))
        await plane.dataplane.synchronize(KEY)
        replica.gate.clear()
        waiting = asyncio.create_task(get(plane.dataplane.address(KEY)))
        await until(lambda: replica.open)
        plane.dataplane.withdraw(KEY)
        await until(lambda: not plane.dataplane.address(KEY))
        # systemd starts no second one before this one has ended.
        plane.dataplane.publish(SERVICE)
        await until(lambda: plane.dataplane.address(KEY))
        replica.gate.set()
        assert (await waiting).body == "a"
        assert (await get(plane.dataplane.address(KEY))).body == "a"
        assert plane.master == started

    try:
        play(lambda: Plane(tmp_path, root=root), story)
    finally:
        end(tmp_path)


def test_doctor_reports_a_unit_that_is_missing_or_does_nothing(tmp_path: Path) -> None:
    directory, root = tmp_path / "haproxy", tmp_path / "root"
    directory.mkdir()
    unit = ProxyUnit("here", root)
    assert not [*check_unit(unit, directory, privileged=True)], "without systemd there is nothing to enable"
    (root / "run/systemd/system").mkdir(parents=True)
    assert not [*check_unit(unit, directory, privileged=False)], "the daemon can start it as well"
    [missing] = check_unit(unit, directory, privileged=True)
    assert "ports below 1024" in missing.message
    assert missing.advice.endswith("systemctl enable --now reconciler-haproxy@here.path")
    (root / "run/systemd/system").rmdir()
    (root / "run/systemd").rmdir()
    (root / "run").rmdir()
    enable(root)
    assert not [*check_unit(unit, directory, privileged=True)], "nothing is to be served"
    (directory / CONFIG).touch()
    [idle] = check_unit(unit, directory, privileged=False)
    assert "reconciler-haproxy@here.service has not started HAProxy" in idle.message
    (directory / MASTER_SOCKET).touch()
    assert find_master(directory) is None, "a file is no socket"


@only_root("to become another user")
def test_only_the_unit_makes_ports_below_1024_usable() -> None:
    with TemporaryDirectory(dir="/tmp") as name:
        root = Path(name)
        root.chmod(0o755)
        free = next(port for port in range(600, 1024) if not _bind_fault("127.0.0.1", port, ProxyUnit("here", root)))

        def fault_of_a_daemon() -> str:
            os.seteuid(OWNER)
            try:
                return _bind_fault("127.0.0.1", free, ProxyUnit("here", root))
            finally:
                os.seteuid(0)

        assert fault_of_a_daemon().endswith("systemctl enable --now reconciler-haproxy@here.path")
        enable(root)
        assert not fault_of_a_daemon()
