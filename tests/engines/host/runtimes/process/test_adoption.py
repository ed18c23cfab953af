"""A daemon that starts finds what its predecessor left, restarts none of it, and takes nothing else for its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.host.runtimes.process import cgroup_tree
from reconciler.engines.host.runtimes.procfs import command_line, list_processes
from tests.engines.host.runtimes.process.kit import (
    KEY,
    alive,
    as_root,
    both_ways,
    launch,
    marked,
    opened,
    place,
    shell,
    with_groups,
)
from tests.support.waiting import until


def record(root: Path) -> Path:
    """The file with the start of the only container."""
    return root / "run/shop/api/r/main/record.json"


def change(root: Path, **fields: Any) -> None:
    """Change the record of the start."""
    record(root).write_text(json.dumps({**json.loads(record(root).read_text()), **fields}))


async def kill_wrapper(root: Path) -> int:
    """Kill the wrapper of the only container, and nothing else, by SIGKILL; returns its number."""
    pid: int = json.loads(record(root).read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not alive(pid), "the end of the wrapper")
    return pid


@both_ways
async def test_running_programs_are_adopted_and_not_restarted(tmp_path: Path, limited: bool) -> None:
    asked = shell("echo $$; trap 'exit 3' TERM; while :; do sleep 0.01; done", version=4, config_hash="s", index=1)
    async with opened(tmp_path, limited=limited, keep=True) as first:
        await first.runtime.start(asked)
        pid = await first.number()
        before = await first.running()
    async with opened(tmp_path, limited=limited) as second:
        assert await second.running() == before
        await second.runtime.start(asked)
        assert second.output() == f"{pid}\n"
        assert await second.number() == pid
        assert (await second.runtime.exec(place(), ["sh", "-c", "exit 7"], 30)).code == 7
        assert place() in await second.runtime.stats()
        await second.runtime.signal(place(), signal.SIGTERM)
        assert (await second.over()).code == 3


async def test_the_exit_code_of_an_end_without_a_daemon_is_known(tmp_path: Path) -> None:
    async with opened(tmp_path, keep=True) as first:
        await first.runtime.start(shell(f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 9"))
        await first.wrote("up")
    (tmp_path / "go").touch()
    await until(lambda: not marked(tmp_path))
    async with opened(tmp_path) as second:
        ended = await second.running()
        assert (ended.alive, ended.code, ended.reason) == (False, 9, "Error")
        assert second.ended == []
        await second.runtime.start(shell("exit 0"))
        assert (await second.over()).code == 0


@both_ways
async def test_a_wrapper_that_died_without_a_daemon_takes_its_program_along(tmp_path: Path, limited: bool) -> None:
    async with opened(tmp_path, limited=limited, keep=True) as first:
        await first.runtime.start(shell("echo $$; exec sleep 1000"))
        pid = await first.number()
    await kill_wrapper(tmp_path)
    assert alive(pid)
    async with opened(tmp_path, limited=limited) as second:
        ended = await second.running()
        assert (ended.alive, ended.code) == (False, None)
        assert not alive(pid)


@both_ways
async def test_a_lost_state_directory_leads_to_adoption(tmp_path: Path, limited: bool) -> None:
    asked = shell("echo $$ > $PIDS; exec sleep 1000", version=4, config_hash="a/b", index=-1, ports={80: 20_001, 81: 2})
    asked.env["PIDS"] = str(tmp_path / "pids")
    async with opened(tmp_path / "root", limited=limited, keep=True) as first:
        await first.runtime.start(asked)
        await until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text())
        before = await first.running()
    shutil.rmtree(tmp_path / "root")
    pid = int((tmp_path / "pids").read_text())
    async with opened(tmp_path / "root", limited=limited) as second:
        container = await second.running()
        assert (container.version, container.config_hash, container.index, container.alive) == (4, "a/b", -1, True)
        assert (container.ports, before.ports) == ({80: 20_001, 81: 2},) * 2
        assert container.started == pytest.approx(before.started, abs=5)
        await second.runtime.start(asked)
        assert int((tmp_path / "pids").read_text()) == pid
        await second.runtime.signal(place(), signal.SIGTERM)
        ended = await second.over()
        assert (ended.alive, ended.code) == (False, None)
        assert not alive(pid)


FORGED = """
import os, sys
os.setsid()
gvc, workload, replica, container = (sys.argv[1].split("/") + [""] * 4)[1:5]
title = f"reconciler: {gvc}/{workload}/{replica}/{container}"
read, write = os.pipe()
os.dup2(read, 0)
os.set_inheritable(write, True)
os.setuid(int(sys.argv[2]) if sys.argv[2:] else os.getuid())
os.execve("/bin/sh", [title], {**os.environ, "RECONCILER_CONTAINER": sys.argv[1]})
"""


@pytest.mark.parametrize("name", ["here/../../x/y", "here/shop/../r/main", "here/shop/api/r/", "here/shop/api/r"])
async def test_a_wrapper_that_a_program_has_forged_is_ended(tmp_path: Path, name: str) -> None:
    environ = {**os.environ, "RECONCILER_ROOT": str(tmp_path), "RECONCILER_REPLICA": "1/-1/s"}
    forged = subprocess.Popen([sys.executable, "-c", FORGED, name], env=environ, stdin=subprocess.PIPE)
    await until(lambda: Path(f"/proc/{forged.pid}/cmdline").read_bytes().startswith(b"reconciler: "))
    async with opened(tmp_path) as host:
        assert await host.runtime.list() == []
        assert not alive(forged.pid)
    forged.communicate()


@as_root
async def test_a_wrapper_that_another_user_has_forged_is_ended(tmp_path: Path) -> None:
    """Every word of it is right, and nothing is lost, so that it would get requests of the workload."""
    marks = {"RECONCILER_ROOT": str(tmp_path), "RECONCILER_REPLICA": "1/-1/s", "RECONCILER_PORTS": "80:8080"}
    command = [sys.executable, "-c", FORGED, "here/shop/api/r/main", "12345"]
    forged = subprocess.Popen(command, env={**os.environ, **marks})
    await until(lambda: Path(f"/proc/{forged.pid}/cmdline").read_bytes().startswith(b"reconciler: "))
    async with opened(tmp_path) as host:
        assert await host.runtime.list() == []
        assert not alive(forged.pid)
    forged.wait()


@with_groups
async def test_a_container_is_adopted_only_for_its_group(tmp_path: Path) -> None:
    """A program that takes the environment and the title of a replica of another workload is none."""

    def _is_forged(pid: int) -> bool:
        return command_line(pid) == [b"reconciler: shop/other/r/main"]

    async with opened(tmp_path, keep=True) as first:
        await first.runtime.start(launch(sys.executable, "-c", FORGED, "here/shop/other/r/main"))
        await until(lambda: any(map(_is_forged, list_processes())), "the forged title")
    shutil.rmtree(tmp_path / "run")
    async with opened(tmp_path) as second:
        assert [each.place for each in await second.runtime.list()] == [place()]
        assert not any(map(_is_forged, list_processes()))


async def test_strays_without_a_wrapper_or_a_record_are_ended(tmp_path: Path) -> None:
    async with opened(tmp_path, limited=False, keep=True) as first:
        await first.runtime.start(shell("echo $$; exec sleep 1000"))
        pid = await first.number()
    await kill_wrapper(tmp_path)
    shutil.rmtree(tmp_path / "run")
    assert alive(pid)
    async with opened(tmp_path, limited=False) as second:
        assert await second.runtime.list() == []
        assert not alive(pid)


@with_groups
async def test_a_process_that_is_known_only_by_its_cgroup_is_ended(tmp_path: Path) -> None:
    async with opened(tmp_path, keep=True) as first:
        await first.runtime.start(shell("exec env -i setsid sh -c 'echo $$; sleep 1000'"))
        pid = await first.number()
        groups = cgroup_tree.groups_of(pid)
    await kill_wrapper(tmp_path)
    shutil.rmtree(tmp_path / "run")
    assert alive(pid)
    async with opened(tmp_path) as second:
        assert await second.runtime.list() == []
        assert not alive(pid)
        assert groups
        assert not any(Path(group).exists() for group in groups)


@pytest.mark.parametrize("what", ["start", "boot", "environment"])
async def test_another_process_of_the_same_number_is_not_taken_for_it(tmp_path: Path, what: str) -> None:
    async with opened(tmp_path, keep=True) as first:
        await first.runtime.start(shell("exit 0"))
        await first.over()
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    # Between the execution and the first instruction, the kernel shows no environment.
    await until(lambda: Path(f"/proc/{other.pid}/environ").read_bytes() != b"", "its environment can be read")
    start = int(Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19])
    wrong: dict[str, dict[str, Any]] = {"start": {"start": start - 1}, "boot": {"boot": "x"}, "environment": {}}
    change(tmp_path, pid=other.pid, **{"start": start, **wrong[what]})
    async with opened(tmp_path) as second:
        found = await second.running()
        assert (found.alive, found.code) == (False, 0)
        await second.runtime.signal(place(), signal.SIGKILL)
        await second.runtime.remove(KEY, "r")
        assert other.poll() is None
    other.kill()
    other.wait()


async def test_a_zombie_is_dead(tmp_path: Path) -> None:
    async with opened(tmp_path, keep=True) as first:
        await first.runtime.start(shell("echo up; exec sleep 1000"))
        await first.wrote("up")
    wrapper = await kill_wrapper(tmp_path)
    assert Path(f"/proc/{wrapper}").exists()
    async with opened(tmp_path) as second:
        assert not (await second.running()).alive
    os.waitpid(wrapper, 0)


async def test_a_record_that_is_cut_off_is_none(tmp_path: Path) -> None:
    async with opened(tmp_path, keep=True) as first:
        await first.runtime.start(shell("exit 0"))
        await first.over()
    record(tmp_path).write_text('{"place": ')
    async with opened(tmp_path) as second:
        assert await second.runtime.list() == []
        await second.runtime.start(shell("exit 6"))
        assert (await second.over()).code == 6


async def test_two_daemons_with_locations_of_one_name_leave_each_other_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as one, opened(tmp_path / "b") as other:
        await one.runtime.start(shell("echo $$; exec sleep 1000"))
        pid = await one.number()
        await other.runtime.start(shell("exit 0"))
        await other.over()
        await other.runtime.remove(KEY, "r")
        assert alive(pid)
    async with opened(tmp_path / "b") as third:
        assert await third.runtime.list() == []


DAEMON = """
import asyncio, os, sys
from pathlib import Path
from reconciler.engines.host.runtimes.process import spawn as spawning
from tests.engines.host.runtimes.process.kit import opened, shell

async def story():
    async with opened(Path(sys.argv[1])) as host:
        if sys.argv[2] == "before":
            spawning._send_script = lambda *_: os.kill(os.getpid(), 9)
        await host.runtime.start(shell(f"touch {sys.argv[1]}/ran; echo $$; exec sleep 1000", env={**os.environ}))
        await host.number()
        os.kill(os.getpid(), 9)

asyncio.run(story())
"""


def die(root: Path, when: str) -> None:
    """Let a daemon die by SIGKILL ``before`` or ``after`` it has sent the wrapper the start signal."""
    environ = {**os.environ, "PASSWORD": "hunter2"}
    ended = subprocess.run([sys.executable, "-c", DAEMON, root, when], env=environ, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL


async def test_a_daemon_that_dies_before_the_start_signal_leaves_nothing(tmp_path: Path) -> None:
    die(tmp_path, "before")
    await until(lambda: not marked(tmp_path), "the end of the wrapper")
    assert not (tmp_path / "ran").exists()
    async with opened(tmp_path) as host:
        assert await host.runtime.list() == []


async def test_the_next_daemon_adopts_programs_and_reads_their_secrets_from_them(
    tmp_path: Path,
) -> None:
    die(tmp_path, "after")
    async with opened(tmp_path) as host:
        assert (await host.running()).alive
        found = await host.runtime.exec(place(), ["printenv", "PASSWORD"], 30)
        assert found.output == "hunter2\n"
        assert [path for path in tmp_path.rglob("*") if path.is_file() and "hunter2" in path.read_text()] == []
        os.kill(await host.number(), signal.SIGTERM)
        assert (await host.over()).code == 143


async def test_no_end_is_reported_after_the_close(tmp_path: Path) -> None:
    async with opened(tmp_path, keep=True) as first:
        await first.runtime.start(launch("sleep", "1000"))
    async with opened(tmp_path) as second:
        await second.runtime.signal(place(), signal.SIGKILL)
        await second.over()
    assert first.ended == []
