"""One process at a time holds the state directory, and anybody can learn which."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from reconciler.daemon.lock import StateLock, abstract_name, find_lock_holder
from reconciler.errors import LockedError, StateLostError, UsageError
from reconciler.private_files import make_directory
from tests.support.programs import OWNER, only_root

HOLD = """
import sys, time
from pathlib import Path
from reconciler.daemon.lock import StateLock
StateLock(Path(sys.argv[1])).acquire("reconciler run")
print("held", flush=True)
time.sleep(60)
"""


HOLD_AND_SPAWN = """
import subprocess, sys
from pathlib import Path
from reconciler.daemon.lock import StateLock
StateLock(Path(sys.argv[1])).acquire()
subprocess.Popen([sys.executable, "-c", "print('the child runs', flush=True); input()"], close_fds=False).wait()
"""

HOLD_AND_FORK = """
import os, sys
from pathlib import Path
from reconciler.daemon.lock import StateLock
StateLock(Path(sys.argv[1])).acquire()
if not os.fork():
    print("the child has the lock too", flush=True)
    input()
    os._exit(0)
os.wait()
"""
"""Stands for a process that is killed between the fork and the exec of a child."""

ASK = """
import sys
from pathlib import Path
from reconciler.daemon.lock import find_lock_holder
print("asking", flush=True)
while True:
    find_lock_holder(Path(sys.argv[1]))
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly waits for a holder that may be about to end."""
    monkeypatch.setattr("reconciler.daemon.lock._PATIENCE", 0.1)


def hold_in_another_process(state: Path) -> subprocess.Popen[str]:
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(state)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    return other


def test_a_second_process_learns_who_holds_the_lock(tmp_path: Path) -> None:
    other = hold_in_another_process(tmp_path)
    try:
        with pytest.raises(LockedError, match=rf"pid {other.pid} on .*`reconciler run`, since 20"):
            StateLock(tmp_path).acquire()
        found = find_lock_holder(tmp_path)
        assert found is not None
        assert (found.pid, found.command) == (other.pid, "reconciler run")
    finally:
        other.kill()
        other.communicate()


def test_a_killed_holder_leaves_the_lock_free(tmp_path: Path) -> None:
    other = hold_in_another_process(tmp_path)
    os.kill(other.pid, signal.SIGKILL)
    other.communicate()
    assert find_lock_holder(tmp_path) is None
    with StateLock(tmp_path):
        found = find_lock_holder(tmp_path)
    assert found is not None
    assert found.pid == os.getpid()


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    lock = StateLock(tmp_path)
    lock.acquire()
    lock.release()
    lock.release()
    assert find_lock_holder(tmp_path) is None
    lock.acquire()
    lock.release()


def test_a_query_for_the_holder_does_not_block_the_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    other = subprocess.Popen([sys.executable, "-c", ASK, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "asking\n"
    try:
        for _ in range(300):
            with StateLock(tmp_path):
                pass
    finally:
        other.kill()
        other.communicate()


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD_AND_SPAWN, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "the child runs\n"
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    assert find_lock_holder(tmp_path) is None
    other.communicate("the child may go\n")


@contextmanager
def unfinished_child(state: Path) -> Iterator[subprocess.Popen[str]]:
    """The killed holder of the lock, whose child still has the lock until it reads a line."""
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD_AND_FORK, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "the child has the lock too\n"
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    try:
        yield other
    finally:
        other.communicate("go on\n")


def test_a_child_that_a_killed_holder_was_starting_is_waited_for(tmp_path: Path) -> None:
    with StateLock(tmp_path) as lock, ThreadPoolExecutor(1) as pool:
        lock.release()
        with unfinished_child(tmp_path) as other:
            begun = pool.submit(lock.acquire)
            with pytest.raises(TimeoutError):
                begun.result(0.2)
            assert other.stdin is not None
            other.stdin.write("go on\n")
            other.stdin.flush()
            begun.result()
        found = find_lock_holder(tmp_path)
        assert found is not None
        assert found.pid == os.getpid()


@pytest.mark.usefixtures("impatient")
def test_a_child_that_keeps_the_lock_of_a_killed_holder_is_not_waited_for_forever(tmp_path: Path) -> None:
    with (
        unfinished_child(tmp_path) as other,
        pytest.raises(LockedError, match=rf"is in use by pid {other.pid} on"),
    ):
        StateLock(tmp_path).acquire()


def test_the_state_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    state = tmp_path / "var" / "state"
    with StateLock(state):
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert stat.S_IMODE((state / "lock").stat().st_mode) == 0o600


def test_a_state_directory_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"state directory .* cannot be written"):
        StateLock(tmp_path / "file").acquire()


@pytest.mark.parametrize("what", ["link", "dangling", "hard link", "pipe", "directory"])
def test_a_lock_that_is_not_a_plain_file_is_left_alone(tmp_path: Path, what: str) -> None:
    state, other = tmp_path / "state", tmp_path / "other"
    state.mkdir()
    other.write_text("precious")
    lock = state / "lock"
    make = {
        "link": lambda: lock.symlink_to(other),
        "dangling": lambda: lock.symlink_to(tmp_path / "nothing"),
        "hard link": lambda: lock.hardlink_to(other),
        "pipe": lambda: os.mkfifo(lock),
        "directory": lock.mkdir,
    }
    make[what]()
    assert find_lock_holder(state) is None
    with pytest.raises(UsageError, match="take it away"):
        StateLock(state).acquire()
    assert other.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.usefixtures("impatient")
def test_a_deleted_lock_file_opens_no_lock(tmp_path: Path) -> None:
    with StateLock(tmp_path) as lock:
        (tmp_path / "lock").unlink()
        with pytest.raises(LockedError):
            StateLock(tmp_path).acquire()
        with pytest.raises(StateLostError, match="lock was deleted or replaced"):
            lock.check()


def test_the_lock_is_compared_with_what_is_there(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with StateLock(state) as lock:
        lock.check()
        state.rename(tmp_path / "moved")
        with pytest.raises(StateLostError, match="state was deleted or replaced"):
            lock.check()
        with pytest.raises(FileNotFoundError):
            make_directory(state / "host" / "here")
        assert not state.exists(), "nothing is made below what is gone"
        state.mkdir()
        (state / "lock").touch()
        with pytest.raises(StateLostError):
            lock.check()
    lock.check()
    make_directory(state / "host")


@pytest.mark.usefixtures("impatient")
def test_a_new_state_directory_stays_locked_while_the_deleted_one_is_in_use(tmp_path: Path) -> None:
    state = tmp_path / "state"
    other = hold_in_another_process(state)
    try:
        shutil.rmtree(state)
        with pytest.raises(
            LockedError, match=rf"pid {other.pid} still works on the state directory that was at {state}"
        ):
            StateLock(state).acquire()
        assert not state.exists()
    finally:
        other.kill()
        other.communicate()
    with StateLock(state) as lock:
        lock.check()


def test_a_process_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = StateLock(state)
    first.acquire()
    state.rename(tmp_path / "moved")
    with ThreadPoolExecutor(1) as pool:
        second = StateLock(state)
        begun = pool.submit(second.acquire)
        first.release()
        begun.result()
    assert find_lock_holder(state) is not None
    second.release()
    assert find_lock_holder(tmp_path / "moved") is None


def test_neighbouring_and_nested_directories_have_locks_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with StateLock(tmp_path / "a"), StateLock(tmp_path / "b"), StateLock(tmp_path / "a" / "b"):
        with pytest.raises(LockedError, match=f"is in use by pid {os.getpid()}"):
            StateLock(tmp_path / "link" / "a").acquire()
        assert len({abstract_name(tmp_path / name) for name in ("a", "b", "a/b", "link/a")}) == 3


SQUAT = """
import os, socket, sys
os.setresuid(*[int(sys.argv[2])] * 3)
name = socket.socket(socket.AF_UNIX)
name.bind(bytes.fromhex(sys.argv[1]))
name.listen()
print("taken", flush=True)
sys.stdin.read()
"""


@only_root("only root can start a process of another user")
def test_a_name_that_another_user_took_blocks_no_lock(tmp_path: Path) -> None:
    words = [sys.executable, "-c", SQUAT, abstract_name(tmp_path / "state").hex(), str(OWNER)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "taken\n"
        with StateLock(tmp_path / "state"):
            assert find_lock_holder(tmp_path / "state") is not None
        other.kill()


def test_a_name_without_a_listener_blocks_no_lock(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as name:
        name.bind(abstract_name(tmp_path))
        with StateLock(tmp_path):
            assert find_lock_holder(tmp_path) is not None


def test_a_name_that_does_not_answer_blocks_no_lock(tmp_path: Path) -> None:
    address = abstract_name(tmp_path)
    with socket.socket(socket.AF_UNIX) as name, ExitStack() as waiting:
        name.bind(address)
        name.listen(0)
        with suppress(BlockingIOError):
            while True:
                asking = waiting.enter_context(socket.socket(socket.AF_UNIX))
                asking.setblocking(False)
                asking.connect(address)
        with StateLock(tmp_path):
            assert find_lock_holder(tmp_path) is not None
