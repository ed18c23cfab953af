"""The lock on the state directory: one process at a time may write there, and others can see which one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Self

import msgspec

from reconciler import __version__
from reconciler.errors import LockedError, StateLostError, UsageError
from reconciler.private_files import make_directory, open_regular, set_locked
from reconciler.times import format_iso_time

_PATIENCE = 5.0
_POLL = 0.05
_CREDENTIALS = struct.Struct("iII")
"""Process, user and group, as the kernel gives them."""
_Identity = tuple[int, int]


class LockHolder(msgspec.Struct, frozen=True):
    """The process that holds the lock; ``since`` is UTC as ``2026-01-31T12:00:00Z``. ``version`` is its program's."""

    pid: int
    host: str
    command: str
    since: str
    version: str = ""

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}, `{self.command}`, since {self.since}"

    def is_alive(self) -> bool:
        """Whether this process can see the holder; not if the holder has ended, or runs in another container."""
        if self.pid <= 0:
            return False
        try:
            os.kill(self.pid, 0)
        except OSError as error:
            return error.errno == errno.EPERM
        return True


class StateLock:
    """An exclusive lock on the directory ``state``, and on the file ``lock`` in it, which names the holder.

    It lasts for as long as this process lives, or until ``release``. The kernel keeps it, so it ends with the process
    however that ends; the file stays and means nothing by itself. The directory is locked in case the file is deleted,
    and a name outside of it in case the whole directory is: see ``_take_name``.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._directory: int | None = None
        self._file: int | None = None
        self._name: int | None = None

    def acquire(self, command: str = "") -> None:
        """Take the lock for ``command`` (default: this process's command line).

        Raises LockedError naming the holder, UsageError if the state directory cannot be written or the file is a link.
        """
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return self._try_to_acquire(command)
            except LockedError:
                lock_holder = find_lock_holder(self._state)
                if (lock_holder is not None and lock_holder.is_alive()) or time.monotonic() > deadline:
                    raise
            # A killed process leaves the lock to a child that it was starting, until that runs its own program.
            time.sleep(_POLL)

    def _try_to_acquire(self, command: str) -> None:
        try:
            make_directory(self._state.parent)
            name = _take_name(self._state)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            self._acquire(command)
        except BaseException:
            if name is not None:
                os.close(name)
            raise
        self._name = name

    def _acquire(self, command: str) -> None:
        try:
            make_directory(self._state)
            directory = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            file = self._locked_file(directory)
        except BaseException:
            os.close(directory)
            raise
        self._directory, self._file = directory, file
        set_locked(self._state, True)
        words = command or " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
        # On a full disk the lock still holds, and the records report the full disk.
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
            holder = LockHolder(os.getpid(), socket.gethostname(), words, format_iso_time(time.time()), __version__)
            os.pwrite(file, msgspec.json.encode(holder), 0)

    def _locked_file(self, directory: int) -> int:
        """Lock the directory and the file; return the file."""
        try:
            free = _take_lock(directory)
            file = open_regular(self._state / "lock", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise self._unwritable(error) from error
        if free and _take_lock(file):
            return file
        holder = _read_holder(file)
        os.close(file)
        raise _in_use(self._state, holder)

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(f"the state directory {self._state} cannot be written: {error.strerror}")

    def check(self) -> None:
        """Raise StateLostError if the locked directory, or the file in it, was deleted or replaced."""
        if self._directory is None or self._file is None:
            return
        for path, locked in ((self._state, self._directory), (self._state / "lock", self._file)):
            if _get_file_identity(path) != _get_file_identity(locked):
                raise StateLostError(
                    f"{path} was deleted or replaced while the daemon worked; it has stopped, since two daemons must "
                    f"not use one state. Put the state directory {self._state} back, or restore a backup, and start it "
                    "again"
                )

    def release(self) -> None:
        """Release the lock; does nothing if this process does not hold it."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, 0)
        for descriptor in (self._file, self._directory):
            if descriptor is not None:
                # Closing alone would leave the lock to a starting child process that still shares the open file.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)
        if self._name is not None:
            os.close(self._name)
        self._file = self._directory = self._name = None
        set_locked(self._state, False)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def abstract_name(state: Path) -> bytes:
    """The address for the directory ``state``, which need not exist. Raises OSError if its parent does not exist."""
    path = os.path.realpath(state)
    above = os.stat(os.path.dirname(path))
    last = hashlib.blake2b(os.fsencode(os.path.basename(path)), digest_size=16).hexdigest()
    return f"\0reconciler/{os.geteuid()}/{above.st_dev:x}/{above.st_ino:x}/{last}".encode()


def _take_name(state: Path) -> int | None:
    """Bind an abstract socket named after the directory ``state``, which outlives that; return its descriptor.

    The name contains the user, the parent directory and the last part of the path, so only processes that use the same
    path share it. Any user of the host can bind it first. The kernel reports the owner of the socket: another user, or
    a container that shares only the network, does not count. Then, and if there are no abstract sockets, the result is
    None, and only ``StateLock.check`` detects a second process, within a second. Raises LockedError if a process of
    this user still has the name after a moment, in which it could have ended.
    """
    address = abstract_name(state)
    deadline = time.monotonic() + _PATIENCE
    while True:
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            name.bind(address)
            name.listen()
            return name.detach()
        except OSError as error:
            name.close()
            pid = _find_listener_pid(address) if error.errno == errno.EADDRINUSE else 0
        lock_holder = find_lock_holder(state) if pid else None
        if not pid:
            return None
        if lock_holder is not None:
            raise _in_use(state, lock_holder)
        if time.monotonic() > deadline:
            raise LockedError(
                f"pid {pid} still works on the state directory that was at {state} before it was deleted or replaced; "
                "wait until it has ended, or stop it"
            )
        time.sleep(_POLL)


def _find_listener_pid(address: bytes) -> int:
    """The pid of the process that listens at ``address``, if it is this user's and visible from here; else 0."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(address)
            raw = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return 0
    pid, user, _ = _CREDENTIALS.unpack(raw)
    return int(pid) if user == os.geteuid() else 0


def _in_use(state: Path, holder: LockHolder | None) -> LockedError:
    who = str(holder) if holder else "an unknown process"
    return LockedError(f"the state directory {state} is in use by {who}; stop it or use another `state:`")


def find_lock_holder(state: Path) -> LockHolder | None:
    """Return the process that holds the lock on ``state``, or None; a file left by a killed process counts as None."""
    try:
        file = os.open(state / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _try_lock(file, fcntl.LOCK_SH):
            return None
        return _read_holder(file) or LockHolder(0, socket.gethostname(), "starting", format_iso_time(time.time()))
    finally:
        os.close(file)


def _take_lock(file: int) -> bool:
    """Take the exclusive lock; False if another process has it.

    ``find_lock_holder`` shares the lock for an instant. If this process can share it too, it met only that, and tries
    again.
    """
    deadline = time.monotonic() + _PATIENCE
    while not _try_lock(file, fcntl.LOCK_EX):
        if not _try_lock(file, fcntl.LOCK_SH) or time.monotonic() > deadline:
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _try_lock(file: int, kind: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, kind | fcntl.LOCK_NB)
        return True
    return False


def _read_holder(file: int) -> LockHolder | None:
    try:
        return msgspec.json.decode(os.pread(file, 4096, 0), type=LockHolder)
    except msgspec.DecodeError:
        return None


def _get_file_identity(target: Path | int) -> _Identity | None:
    """Device and inode of a path or an open file; None if it does not exist."""
    try:
        stat = os.fstat(target) if isinstance(target, int) else os.stat(target)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
