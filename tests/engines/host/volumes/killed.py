"""Performs operations on volumes in processes that die before a system call: `python -m ... ROOT SETTING`.

Each line of the input is a name of OPERATIONS and a number: the operation runs in a forked process that is killed at
the system call of that number, of those that may change the disk. The answer is the number of such calls if it came to
its end, otherwise -1. A first line says that the disk is open: two processes must not probe it at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.runtimes.protocol import ExecResult
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.host.volumesets.commands import VolumeCommands
from reconciler.engines.host.volumesets.hooks import SnapshotHookRunner
from reconciler.engines.host.volumesets.verifier import CheckRun, SnapshotVerifier
from reconciler.engines.host.volumesets.volume_sets import KnownVolumeSet
from reconciler.engines.protocol import Observation
from reconciler.engines.volume_commands import DeleteVolume, RestoreVolume, VolumeCommand
from reconciler.engines.volumes import VolumeSetState
from reconciler.model.key import Key
from reconciler.model.kinds.volumeset import Specification
from reconciler.model.record import Health
from tests.engines.host.fake import FakeRuntime, Programs
from tests.engines.host.provisioning.kit import volume_sets
from tests.engines.host.volumes.kit import ONE, SET, VOLUME, Disk

COMMAND = "c1"


def command(disk: Disk, ask: VolumeCommand) -> None:
    """Perform a command as the daemon does, which repeats it after a crash with the same id."""
    sets = volume_sets(disk.store, disk.root, disk.root.with_name("records.sqlite"))
    seen = Observation(SET, "here", Health.HEALTHY, b"{}")
    sets.known[SET] = KnownVolumeSet(seen, Specification(), VolumeSetState("here"))
    hooks = SnapshotHookRunner(disk.root, sets, FakeRuntime(Programs(disk.clock)).exec)
    verifier = SnapshotVerifier(disk.root, sets, disk.clock, NoChecks())
    commands = VolumeCommands(disk.root, sets, disk.clock, COMMAND.__eq__, hooks, verifier)
    asyncio.run(commands.perform(SET, ask, COMMAND))


class NoChecks:
    """No workload checks the snapshots."""

    def owner(self, _key: Key) -> Owner:
        """That of nobody."""
        return Owner()

    async def run(self, _check: CheckRun, _limit: float) -> ExecResult:
        """Never called."""
        raise AssertionError("the volume set has no workload")


OPERATIONS: dict[str, Callable[[Disk, VolumeStore], object]] = {
    "attach": lambda disk, _: disk.attach(),
    "detach": lambda _, store: store.detach(VOLUME, ONE),
    "grow": lambda disk, store: store.grow(VOLUME, disk.capacity * 2),
    "snapshot": lambda disk, _: disk.snapshot("second"),
    "delete_snapshot": lambda _, store: store.delete_snapshot(VOLUME, "first"),
    "restore": lambda _, store: store.restore(VOLUME, "first", "before"),
    "clear": lambda _, store: store.clear(VOLUME),
    "drop": lambda _, store: store.drop(SET, keep_final_snapshot=True),
    "deleteVolume": lambda disk, _: command(disk, DeleteVolume("here", 0)),
    "restoreVolume": lambda disk, _: command(disk, RestoreVolume("here", 0, "first")),
    "open": lambda _, store: store.open(),
}
_MODULES = frozenset({"posix", "fcntl", "_posixsubprocess", "io", "_io"})


_READS = frozenset(
    {
        *("posix.access", "posix.close", "posix.fspath", "posix.fstat", "posix.getegid", "posix.geteuid"),
        *("posix.getpid", "posix.listdir", "posix.lseek", "posix.lstat", "posix.major", "posix.minor", "posix.pipe"),
        *("posix.pread", "posix.readlink", "posix.scandir", "posix.stat", "posix.statvfs", "posix.urandom"),
        *("posix.WIFSTOPPED", "posix._path_normpath", "posix.waitstatus_to_exitcode"),
        *("_io.__exit__", "_io.close", "_io.fileno", "_io.read", "_io.seek"),
    }
)
"""Calls that leave the disk as it was: who dies at one of them leaves what who dies at the next call leaves.

`posix.read` waits for what another process does, and counts.
"""


class Countdown:
    """Counts the system calls of this process that may change the disk, and kills it at one of them."""

    def __init__(self, last: int) -> None:
        self.passed = 0
        self._last = last

    def __call__(self, _: FrameType, event: str, function: object) -> None:
        # Functions of the C library, called through ctypes, lie between calls that are counted.
        owner = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
        if event == "c_call" and owner in _MODULES and f"{owner}.{function.__name__}" not in _READS:  # type: ignore[attr-defined]
            self.passed += 1
            if self.passed == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


def perform(disk: Disk, name: str, last: int) -> int:
    """Perform an operation in a process that dies; return its number of system calls, or -1 if it died."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        countdown = Countdown(last)
        sys.setprofile(countdown)
        threading.setprofile(countdown)
        try:
            OPERATIONS[name](disk, disk.store)
        finally:
            sys.setprofile(None)
        os.write(write, str(countdown.passed).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read, "rb") as answer:
        return int(answer.read() or -1)


def main(root: str, setting: str) -> None:
    """Answer requests until the input ends."""
    disk = Disk(Path(root), setting)
    print("ready", flush=True)
    for line in sys.stdin:
        name, last = line.split()
        print(perform(disk, name, int(last)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
