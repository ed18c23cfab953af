"""A container that is to end ends with everything that it has started, however that hides."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.engines.host.runtimes import procfs
from reconciler.engines.host.runtimes.process.state_dir import StateDirectory
from tests.engines.host.runtimes.process.kit import KEY, alive, both_ways, launch, marked, opened, place, shell
from tests.support.sandbox import eventually
from tests.support.waiting import until

HIDING = """
import os, sys, time

def away(*, session, environment):
    # Twice forked, its parents gone, with a session of its own and nothing in its environment where asked for.
    if os.fork():
        os.wait()
        return
    if session:
        os.setsid()
    if os.fork():
        os._exit(0)
    os.execve("/bin/sh", ["sh", "-c", "echo $$; exec sleep 1000"], environment)

away(session=True, environment=dict(os.environ))
away(session=False, environment={})
if sys.argv[1] == "all":
    away(session=True, environment={})
while True:
    time.sleep(1000)
"""
"""A program with children that outlive it. Who has shed all signs of its origin is found below the wrapper, while that
lives, or in its control groups."""


LEADERLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
"""A program whose first thread ends before the others."""


def test_a_process_is_alive_until_its_last_thread_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", LEADERLESS]) as process:

        def found() -> procfs.Proc:
            process_found = procfs.find_process(process.pid)
            assert process_found is not None
            return process_found

        try:
            eventually(lambda: not alive(process.pid), "the first thread ends")
            assert process.poll() is None
            assert found().alive
        finally:
            process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not found().alive


@both_ways
@pytest.mark.parametrize("way", ["killed", "ended", "removed", "wrapper"])
async def test_nothing_outlives_a_container(tmp_path: Path, limited: bool, way: str) -> None:
    count = 3 if limited or way != "wrapper" else 2
    async with opened(tmp_path, limited=limited) as host:
        await host.runtime.start(launch("python3", "-c", HIDING, "all" if count == 3 else "some"))
        await until(lambda: len(host.output().splitlines()) == count, "children")
        pids = [int(line) for line in host.output().splitlines()]
        everything = [*pids, *marked(tmp_path)]
        assert all(map(alive, pids))
        if way == "killed":
            await host.runtime.signal(place(), signal.SIGKILL)
            assert (await host.over()).code == 137
        elif way == "ended":
            await host.runtime.signal(place(), signal.SIGTERM)
            assert (await host.over()).code == 143
        elif way == "wrapper":
            os.kill(wrapper_of(tmp_path), signal.SIGKILL)
            ended = await host.over()
            assert (ended.code, ended.reason) == (None, "Error")
        else:
            await host.runtime.remove(KEY, "r")
            assert await host.runtime.list() == []
        assert [pid for pid in everything if alive(pid)] == []
        assert marked(tmp_path) == []


def wrapper_of(root: Path) -> int:
    """The wrapper of the only container: the one with a session of its own that began first."""
    return min(pid for pid in marked(root) if os.getsid(pid) == pid)


async def test_a_signal_goes_to_the_program_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        child = "sh -c 'trap \"echo child\" TERM; echo up; while :; do sleep 0.01; done' &"
        await host.runtime.start(shell(f"trap 'echo program; exit 6' TERM; {child} while :; do sleep 0.01; done"))
        await host.wrote("up")
        await host.runtime.signal(place(), signal.SIGTERM)
        assert (await host.over()).code == 6
        assert host.output() == "up\nprogram\n"


async def test_a_signal_does_not_go_to_what_the_program_has_orphaned(tmp_path: Path) -> None:
    orphan = "trap 'echo orphan' TERM; echo up; while :; do sleep 0.01; done"
    async with opened(tmp_path, limited=False) as host:
        program = f"trap 'echo program; exit 6' TERM; (sh -c {shlex.quote(orphan)} &); while :; do sleep 0.01; done"
        await host.runtime.start(shell(program))
        await host.wrote("up")
        await host.runtime.signal(place(), signal.SIGTERM)
        assert (await host.over()).code == 6
        assert host.output() == "up\nprogram\n"
        assert marked(tmp_path) == []


async def test_many_orphans_of_many_sessions_end_with_their_program(tmp_path: Path) -> None:
    script = "for n in $(seq 40); do setsid -f env -i sh -c 'echo $$; exec sleep 1000'; done; kill -KILL $$"
    async with opened(tmp_path, limited=False) as host:
        await host.runtime.start(shell(script))
        assert (await host.over()).code == 137
        assert [line for line in host.output().split() if alive(int(line))] == []


async def test_a_signal_right_after_the_start_is_not_lost(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        for container_id in [place(f"r{number}") for number in range(10)]:
            await host.runtime.start(launch("sleep", "1000", of=container_id))
            await host.runtime.signal(container_id, signal.SIGTERM)
            assert (await host.over(container_id)).code == 143


@both_ways
async def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path, limited: bool) -> None:
    async with opened(tmp_path, limited=limited) as host:
        await host.runtime.start(shell("trap '' TERM; echo $$; while :; do sleep 0.01; done"))
        pid = await host.number()
        await host.runtime.signal(place(), signal.SIGTERM)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(until(lambda: host.ended)), 0.2)
        await host.runtime.signal(place(), signal.SIGKILL)
        assert (await host.over()).code == 137
        assert not alive(pid)


@both_ways
async def test_a_program_that_forks_without_end_is_ended(tmp_path: Path, limited: bool) -> None:
    # Each link of the chain is gone when the next one is there; without groups to freeze, it lives for a moment.
    pause = 0 if limited else 0.01
    chain = f"while True:\n    time.sleep({pause})\n    if os.fork():\n        os._exit(0)\n    os.setsid()\n"
    keeps = "import os, time\nif os.fork():\n    time.sleep(1000)\n"
    async with opened(tmp_path, limited=limited) as host:
        await host.runtime.start(launch("python3", "-c", keeps + chain))
        await until(lambda: len(marked(tmp_path)) > 2, "forks")
        await host.runtime.remove(KEY, "r")
        assert marked(tmp_path) == []


async def test_a_signal_to_a_missing_container_does_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.signal(place(), signal.SIGTERM)
        await host.runtime.signal(place(), signal.SIGKILL)
        await host.runtime.remove(KEY, "r")
        await host.runtime.start(shell("exit 0"))
        await host.over()
        await host.runtime.signal(place(), signal.SIGKILL)
        assert (await host.running()).code == 0


async def test_a_replica_is_removed_whole_and_others_stay(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        mine = [place("r", "web"), place("r", "side")]
        other = place("r2", "web")
        for each in [*mine, other]:
            await host.runtime.start(shell("echo $$; exec sleep 1000", of=each))
        pids = [await host.number(container_id) for container_id in [*mine, other]]
        await host.runtime.remove(KEY, "r")
        assert [alive(pid) for pid in pids] == [False, False, True]
        assert [container.place for container in await host.runtime.list()] == [other]
        assert not host.runtime.output(mine[0]).exists()
        assert host.ended == []
    assert list((tmp_path / "run").iterdir()) == []


async def test_remains_of_a_replica_without_a_record_are_pruned(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        known, unrecorded = place("r", "web"), place("r2", "web")
        await host.runtime.start(shell("exec sleep 1000", of=known))
        folder = host.runtime.output(known).parent.parent.parent / unrecorded.replica / unrecorded.container
        folder.mkdir(parents=True)
        (folder / "output").write_bytes(b"the daemon was killed before it wrote a record")
        await host.runtime.prune({(KEY, "r")})
        assert not folder.parent.exists()
        assert [each.alive for each in await host.runtime.list()] == [True]


@both_ways
@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])
async def test_many_replicas_come_and_go_and_leave_nothing(tmp_path: Path, limited: bool, count: int) -> None:

    before = children_of_this()

    async with opened(tmp_path, limited=limited) as host:
        places = [place(f"r{number}") for number in range(count)]
        await asyncio.gather(*(host.runtime.start(launch("sleep", "1000", of=container_id)) for container_id in places))
        await until(lambda: len(marked(tmp_path)) == 2 * count, "the wrappers with their programs")
        assert all(container.alive for container in await host.runtime.list())
        await asyncio.gather(*(host.runtime.remove(KEY, container_id.replica) for container_id in places))
        assert marked(tmp_path) == []
        assert await host.runtime.list() == []
    assert children_of_this() == before


def children_of_this() -> list[int]:
    """The children of this very process, dead ones too."""
    found = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    seen = [each for pid in found if (each := procfs.find_process(pid)) is not None]
    return sorted(each.pid for each in seen if each.parent == os.getpid())


async def test_ends_are_noticed_without_pidfds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(pid: int, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)

    async with opened(tmp_path) as host:
        await host.runtime.start(launch("sleep", "1000"))
        beside = asyncio.create_task(host.runtime.exec(place(), ["sleep", "1000"], 900))
        await until(lambda: len(marked(tmp_path)) == 3)
        await host.runtime.signal(place(), signal.SIGTERM)
        assert (await host.over()).code == 143
        assert (await beside).code == 137


@pytest.mark.parametrize("written", ["9" * 5000, "9" * 1_000_000, "1234", "-" + "9" * 5000, "\N{SUPERSCRIPT TWO}", "x"])
def test_a_workload_that_writes_no_exit_code_has_none(tmp_path: Path, written: str) -> None:
    folders = StateDirectory(tmp_path)
    folders.of(place()).mkdir(parents=True)
    (folders.of(place()) / "code").write_text(written)
    assert folders.code(place()).number is None
