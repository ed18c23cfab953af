"""The lock on the state directory: one process at a time may write there, and anybody can learn which."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import time
from pathlib import Path
from typing import Self

import msgspec

from reconciler.clock import iso
from reconciler.errors import LockedError, UsageError

_PATIENCE = 2.0


class Holder(msgspec.Struct, frozen=True):
    """Who holds the lock; ``since`` is UTC as ``2026-01-31T12:00:00Z``."""

    pid: int
    host: str
    command: str
    since: str

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}, `{self.command}`, since {self.since}"


class StateLock:
    """An exclusive lock on ``state``/lock for as long as this process lives or until ``release``.

    The kernel keeps it, so it ends with the process however that ends; the file stays and means nothing by itself.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._file: int | None = None

    def acquire(self, command: str = "") -> None:
        """Take the lock for ``command`` (default: this process's command line).

        Raises LockedError naming the holder, UsageError where the state directory cannot be written.
        """
        path = self._state / "lock"
        try:
            self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if os.geteuid() == 0:  # what root begins, the daemon's user has to be able to go on with
                os.fchown(file, self._state.stat().st_uid, self._state.stat().st_gid)
        except OSError as error:
            raise UsageError(f"the state directory {self._state} cannot be written: {error.strerror}") from error
        if not _take(file):
            found = _read(file)
            os.close(file)
            who = str(found) if found else "a process that has not said who it is"
            raise LockedError(f"the state directory {self._state} is in use by {who}; stop it or use another `state:`")
        self._file = file
        words = command or " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
        # On a full disk the lock holds all the same, and the records say what is wrong.
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, msgspec.json.encode(Holder(os.getpid(), socket.gethostname(), words, iso(time.time()))), 0)

    def release(self) -> None:
        """Let the lock go; nothing happens where it is not held."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
            # Closing alone would leave it to a child that is just being started and still shares the open file.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def holder(state: Path) -> Holder | None:
    """Who holds the lock on ``state`` right now, or None; a file left behind by a killed process counts as None."""
    try:
        file = os.open(state / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _try(file, fcntl.LOCK_SH):
            return None
        return _read(file) or Holder(0, socket.gethostname(), "starting", iso(time.time()))
    finally:
        os.close(file)


def _take(file: int) -> bool:
    """Take the exclusive lock; False where another process has it.

    A question by ``holder`` shares the lock for an instant. Whoever can share it as well has met only such a
    question and asks again.
    """
    deadline = time.monotonic() + _PATIENCE
    while not _try(file, fcntl.LOCK_EX):
        if not _try(file, fcntl.LOCK_SH) or time.monotonic() > deadline:
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _try(file: int, kind: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, kind | fcntl.LOCK_NB)
        return True
    return False


def _read(file: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(file, 4096, 0), type=Holder)
    except msgspec.DecodeError:
        return None
