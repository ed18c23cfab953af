"""Ephemeral storage of replicas: what they may have, what they use, and the end of those that use more."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR

from reconciler.bugs import contained
from reconciler.clock import Clock
from reconciler.engines.host.replica import Replica
from reconciler.engines.host.runtimes.protocol import ContainerId

GIGABYTE = 10**9
LOOKS = 10.0
"""Seconds between looks at what replicas use."""
SHARE = 0.005
"""The part of a core that looks may take; where there are many files they come less often."""
LEAST = 4096
"""Bytes that each file and directory counts for at least, so that a look at ever so many ends."""
_BLOCK = 512


def storage_limit(replica: Replica) -> int:
    """Bytes that ``replica`` may use: 1 GB, and with more than one core 1 GB for each (the platform's limits)."""
    return max(GIGABYTE, sum(each.wanted.cpu for each in replica.containers) * GIGABYTE // 1000)


def storage_used(paths: Iterable[Path], enough: int) -> int:
    """Bytes of the disk that all below ``paths`` takes, and no more exactly than ``enough``. Follows no symlink.

    A tree that is too deep to be looked at counts as ``enough``.
    """
    used, folders = 0, []
    for path in paths:
        with suppress(OSError):
            found = path.lstat()
            used += _size(found)
            folders += [str(path)] if S_ISDIR(found.st_mode) else []
    while folders and used < enough:
        try:
            size, inner = _listed(folders.pop())
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except OSError:
            return enough
        used += size
        folders += inner
    return used


def _listed(folder: str) -> tuple[int, list[str]]:
    """What the entries of a directory take, and the directories among them. Raises OSError."""
    used, folders = 0, []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                used += _size(entry.stat(follow_symlinks=False))
                folders += [entry.path] if entry.is_dir(follow_symlinks=False) else []
    return used, folders


def _size(found: os.stat_result) -> int:
    return max(LEAST, found.st_blocks * _BLOCK)


class EphemeralStorage:
    """Looks now and then at what the replicas of a location use, and has those ended that use too much.

    ``scratch`` is the directory of what replicas have for themselves, ``output`` leads to what a container wrote and
    nobody has taken up yet. Files that a program has deleted and holds open do not count.
    """

    def __init__(self, scratch: Path, output: Callable[[ContainerId], Path], clock: Clock) -> None:
        self._scratch = scratch
        self._output = output
        self._clock = clock
        self._pause = LOOKS

    async def run(self, replicas: Callable[[], Sequence[Replica]], evict: Callable[[Replica, str], None]) -> None:
        """Go on until cancelled; ``evict`` gets each replica that uses too much, and why it has to end."""
        while True:
            await self._clock.sleep(self._pause)
            with contained("a look at ephemeral storage"):
                for replica, used in await asyncio.to_thread(self.find_excess, replicas()):
                    limit = f"{storage_limit(replica) / GIGABYTE:.1f} GB"
                    evict(replica, f"it uses {used / GIGABYTE:.1f} GB of ephemeral storage and may use {limit}")

    def find_excess(self, replicas: Sequence[Replica]) -> list[tuple[Replica, int]]:
        """Those of ``replicas`` that use more than they may, with bytes. Blocks while it looks at their files."""
        begun = time.thread_time()
        found = []
        for replica in replicas:
            limit = storage_limit(replica)
            used = storage_used(self._paths(replica), limit + 1)
            if used > limit:
                found.append((replica, used))
        self._pause = max(LOOKS, (time.thread_time() - begun) / SHARE)
        return found

    def _paths(self, replica: Replica) -> list[Path]:
        places = (ContainerId(replica.key, replica.name, each.name) for each in replica.containers)
        return [self._scratch / replica.key.gvc / replica.key.name / replica.name, *map(self._output, places)]
