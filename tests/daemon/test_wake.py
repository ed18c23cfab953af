"""Many wake-ups become one, from this process or from another."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
from pathlib import Path

from reconciler.daemon.wake import WakeQueue, WakeSocket, wake_daemon

WAKE = """
import sys
from pathlib import Path
from reconciler.daemon.wake import wake_daemon
sys.exit(not wake_daemon(Path(sys.argv[1]), "main", "approve"))
"""

LEAVE = """
import os, socket, sys
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind(sys.argv[1])
os._exit(9)
"""


async def test_many_wake_ups_become_one() -> None:
    wakes = WakeQueue()
    for _ in range(100):
        wakes.add("main", "poll")
    wakes.add("main", "ref")
    wakes.add(None, "operator")
    assert wakes.waiting()
    assert await wakes.take() == {"main": {"poll", "ref"}, None: {"operator"}}
    assert not wakes.waiting()


async def test_taking_waits_for_the_next_wake_up() -> None:
    wakes = WakeQueue()
    wakes.add("main", "start")
    await wakes.take()
    waiting = asyncio.create_task(wakes.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    wakes.add("main", "ref")
    assert await asyncio.wait_for(waiting, 5) == {"main": {"ref"}}


async def test_another_process_wakes_the_daemon(tmp_path: Path) -> None:
    async def scenario() -> None:
        wakes, listening = WakeQueue(), WakeSocket(tmp_path)
        listening.open(wakes.add)
        assert stat.S_IMODE((tmp_path / "wake.sock").stat().st_mode) == 0o600
        other = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", WAKE, str(tmp_path)], check=False)
        assert other.returncode == 0
        assert wake_daemon(tmp_path)
        taken: dict[str | None, set[str]] = {}
        while len(taken) < 2:
            taken |= await wakes.take()
        assert taken == {"main": {"approve"}, None: {"operator"}}
        listening.close()
        listening.close()

    await asyncio.wait_for(scenario(), 10)


def test_a_wake_up_without_a_listener_fails(tmp_path: Path) -> None:
    assert not wake_daemon(tmp_path)
    assert not wake_daemon(tmp_path / "nowhere")


async def test_a_socket_left_behind_is_no_listener_and_hinders_none(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEAVE, str(tmp_path / "wake.sock")], check=False)
    assert (tmp_path / "wake.sock").exists()
    assert not wake_daemon(tmp_path)
    wakes, listening = WakeQueue(), WakeSocket(tmp_path)
    listening.open(wakes.add)
    assert wake_daemon(tmp_path, "main", "sync")
    assert await asyncio.wait_for(wakes.take(), 5) == {"main": {"sync"}}
    listening.close()


async def test_waking_never_blocks_however_busy_the_daemon_is(tmp_path: Path) -> None:
    wakes, listening = WakeQueue(), WakeSocket(tmp_path)
    listening.open(wakes.add)
    assert all(wake_daemon(tmp_path, "main", "poll") for _ in range(2_000))
    assert await asyncio.wait_for(wakes.take(), 5) == {"main": {"poll"}}
    listening.close()


async def test_a_long_path_to_the_state_directory_is_no_obstacle(tmp_path: Path) -> None:
    state = tmp_path / ("long" * 30)
    state.mkdir()
    wakes, listening = WakeQueue(), WakeSocket(state)
    listening.open(wakes.add)
    assert wake_daemon(state, "main", "poll")
    assert await asyncio.wait_for(wakes.take(), 5) == {"main": {"poll"}}
    listening.close()
    assert not wake_daemon(state)


async def test_a_wake_up_for_a_loop_that_has_ended_goes_to_the_next() -> None:
    async def taken() -> dict[str | None, set[str]]:
        ended, begins = WakeQueue(), WakeQueue()
        ended.add(None, "SIGHUP")
        ended.add("main", "ref")
        begins.add("main", "poll")
        ended.transfer_to(begins)
        assert not ended.waiting()
        return await begins.take()

    assert await taken() == {None: {"SIGHUP"}, "main": {"poll", "ref"}}
