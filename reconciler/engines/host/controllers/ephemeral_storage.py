"""Limits the ephemeral storage of replicas: measures their usage and evicts replicas above the limit."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from stat import S_ISDIR
from typing import Any, Protocol

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.workload.spec import count_storage_megabytes

GIGABYTE = 10**9
MEASURE_SECONDS = 10.0
"""Seconds between two measurements."""
CHECK_SECONDS = 1.0
"""Seconds between two looks at the free space of the disks; one that shrinks quickly is measured at once."""
SHRUNK = 100_000_000
"""Bytes by which the free space shrinks before that."""
SHARE = 0.005
"""The share of one core that measuring may take; with many files, measurements are less frequent."""
SHARE_IN_NEED = 0.05
"""The same while a disk shrinks quickly."""
LEAST = 4096
"""The least number of bytes that a file or directory counts for, so that measuring countless empty ones ends."""
_BLOCK = 512


def storage_limit(replica: Replica) -> int:
    """Bytes that ``replica`` may use: 1 GB, and with more than one core 1 GB for each core (the platform's limits)."""
    return count_storage_megabytes(container.wanted for container in replica.containers) * GIGABYTE // 1000


def storage_used(paths: Iterable[Path], enough: int) -> int:
    """Bytes on disk of all files below ``paths``; counting stops at ``enough``. Follows no symlink.

    A tree that is too deep to read counts as ``enough``.
    """
    used, folders = 0, []
    for path in paths:
        with suppress(OSError):
            stat = path.lstat()
            used += _get_disk_size(stat)
            folders += [str(path)] if S_ISDIR(stat.st_mode) else []
    while folders and used < enough:
        try:
            size, inner = _list_directory(folders.pop())
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except OSError:
            return enough
        used += size
        folders += inner
    return used


def _list_directory(folder: str) -> tuple[int, list[str]]:
    """The size of a directory's entries, and its subdirectories. Raises OSError."""
    used, folders = 0, []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                used += _get_disk_size(entry.stat(follow_symlinks=False))
                folders += [entry.path] if entry.is_dir(follow_symlinks=False) else []
    return used, folders


def _get_disk_size(stat: os.stat_result) -> int:
    return max(LEAST, stat.st_blocks * _BLOCK)


class Evictor(Protocol):
    """The replicas of a location, as far as they can be evicted."""

    def live_replicas(self) -> list[Replica]:
        """All that are not ending."""

    def evict(self, replica: Replica, message: str) -> None:
        """End a replica at once, because of ``message``."""


class EphemeralStorage(LocationPart):
    """Measures the storage of a location's replicas at intervals and evicts those that use too much.

    ``scratch`` is the directory of the replicas' private files; ``written`` returns what else a container fills, such
    as the file of its output that is not collected yet. Deleted files that a program holds open do not count.
    """

    def __init__(
        self,
        scratch: Path,
        written: Callable[[ContainerId], tuple[Path, ...]],
        clock: Clock,
        evictor: Evictor,
    ) -> None:
        self._evictor = evictor
        self._scratch = scratch
        self._written = written
        self._clock = clock
        self._cost = 0.0
        self._disks: dict[int, tuple[Path, int]] = {}

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Measures, and evicts the replicas that use too much."""
        return (self.run(),)

    async def run(self) -> None:
        """Measure until cancelled."""
        measured = self._clock.monotonic()
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            now = self._clock.monotonic()
            if now - measured < self.pause(shrinking=self._is_shrinking()):
                continue
            measured = now
            with contain_bugs("the measurement of ephemeral storage"):
                for replica, used in await asyncio.to_thread(self.find_excess, self._evictor.live_replicas()):
                    use, limit = used / GIGABYTE, storage_limit(replica) / GIGABYTE
                    text = f"it uses {use:.1f} GB of ephemeral storage and may use {limit:.1f} GB"
                    self._evictor.evict(replica, text)

    def pause(self, *, shrinking: bool) -> float:
        """The seconds between two measurements, by what the last one has cost."""
        return self._cost / SHARE_IN_NEED if shrinking else max(MEASURE_SECONDS, self._cost / SHARE)

    def _is_shrinking(self) -> bool:
        """Whether a disk has much less room than at the last measurement; costs a call of the kernel for each."""
        return any(free - _get_free_bytes(path) > SHRUNK for path, free in self._disks.values())

    def find_excess(self, replicas: Sequence[Replica]) -> list[tuple[Replica, int]]:
        """Those of ``replicas`` that exceed their limit, with their bytes. Blocks while it reads their directories."""
        begun = time.thread_time()
        excess = []
        disks: dict[int, Path] = {}
        for replica in replicas:
            limit, paths = storage_limit(replica), self._paths(replica)
            for path in paths:
                with suppress(OSError):
                    disks.setdefault(path.lstat().st_dev, path.parent)
            used = storage_used(paths, limit + 1)
            if used > limit:
                excess.append((replica, used))
        self._disks = {device: (path, _get_free_bytes(path)) for device, path in disks.items()}
        self._cost = time.thread_time() - begun
        return excess

    def _paths(self, replica: Replica) -> list[Path]:
        places = (ContainerId(replica.key, replica.name, container.name) for container in replica.containers)
        private = self._scratch / replica.key.gvc / replica.key.name / replica.name
        return [private, *chain.from_iterable(map(self._written, places))]


def _get_free_bytes(path: Path) -> int:
    """Free bytes of the disk of ``path``; 0 if that is unknown, as after its removal."""
    try:
        statvfs_result = os.statvfs(path)
    except OSError:
        return 0
    return statvfs_result.f_bavail * statvfs_result.f_frsize
