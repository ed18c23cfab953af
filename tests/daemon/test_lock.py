"""One process at a time holds the state directory, and anybody can learn which."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.daemon.lock import StateLock, holder
from reconciler.errors import LockedError, StateLostError, UsageError
from reconciler.private_files import make_directory

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

ASK = """
import sys
from pathlib import Path
from reconciler.daemon.lock import holder
print("asking", flush=True)
while True:
    holder(Path(sys.argv[1]))
"""


def hold_in_another_process(state: Path) -> subprocess.Popen[str]:
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(state)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    return other


def test_a_second_process_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    other = hold_in_another_process(tmp_path)
    try:
        with pytest.raises(LockedError, match=rf"pid {other.pid} on .*`reconciler run`, since 20"):
            StateLock(tmp_path).acquire()
        found = holder(tmp_path)
        assert found is not None
        assert (found.pid, found.command) == (other.pid, "reconciler run")
    finally:
        other.kill()
        other.communicate()


def test_a_killed_holder_leaves_the_lock_free(tmp_path: Path) -> None:
    other = hold_in_another_process(tmp_path)
    os.kill(other.pid, signal.SIGKILL)
    other.communicate()
    assert holder(tmp_path) is None
    with StateLock(tmp_path):
        found = holder(tmp_path)
    assert found is not None
    assert found.pid == os.getpid()


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    lock = StateLock(tmp_path)
    lock.acquire()
    lock.release()
    lock.release()
    assert holder(tmp_path) is None
    lock.acquire()
    lock.release()


def test_asking_who_holds_the_lock_keeps_nobody_from_taking_it(tmp_path: Path) -> None:
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
    assert holder(tmp_path) is None
    other.communicate("the child may go\n")


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
    assert holder(state) is None
    with pytest.raises(UsageError, match="take it away"):
        StateLock(state).acquire()
    assert other.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()


def test_a_deleted_lock_file_lets_nobody_in(tmp_path: Path) -> None:
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
        with StateLock(state) as second:
            second.check()
            with pytest.raises(StateLostError):
                lock.check()
    lock.check()
    make_directory(state / "host")
