"""Rows about thousands of commits one after the other: does the last thousand cost what the first does?"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from reconciler.listing import list_paths
from tests.bench.generate import commit_change
from tests.bench.host_sandbox import used
from tests.bench.measure import run
from tests.bench.push import daemon_on, move, restart_next
from tests.bench.table import Row
from tests.bench.workspace import Workspace

COMMITS, PARTS = 10_000, 10
TURNS = 10
MANIFESTS = 1_000
SLOWER = 1 / 0.95
LOOSE = 5_000
"""The most loose objects of Git at any time."""


class Part(NamedTuple):
    """Some of the commits: seconds of time and of the daemon's CPU, then its megabytes and the loose objects."""

    seconds: float
    cpu: float
    resident: float
    loose: int


class FollowingDaemon(NamedTuple):
    """A daemon, its repository, and the commits for it."""

    daemon: subprocess.Popen[bytes]
    repository: Path
    commits: list[str]

    def follow(self, start: int, count: int) -> Part:
        """Move the branch to each of ``count`` commits once the status of the one before is written."""
        before, began = used(self.daemon.pid).cpu, time.monotonic()
        for commit in self.commits[start : start + count]:
            move(self.repository, commit)
        seconds, after = time.monotonic() - began, used(self.daemon.pid)
        loose = sum(1 for _ in list_paths(self.repository / "objects", "[0-9a-f][0-9a-f]/*"))
        return Part(seconds, after.cpu - before, after.resident, loose)


def series(workspace: Workspace) -> Iterator[Row]:
    """Commits of one file each to one daemon, of which the last tenth is in turn with the first one of another daemon.

    The pace of a machine is not the same after some minutes, and often slower under load.
    """
    count = COMMITS // (20 if workspace.quick else 1)
    size = count // PARTS
    with _following(workspace, count) as old:
        parts = [old.follow(start, size) for start in range(0, count - size, size)]
        with _following(workspace, size) as new:
            pairs = [
                (old.follow(count - size + start, size // TURNS), new.follow(start, size // TURNS))
                for start in range(0, size, size // TURNS)
            ]
    last, first = (_sum(taken) for taken in zip(*pairs, strict=True))
    yield from _rows(count, [*parts, last], first)


@contextmanager
def _following(workspace: Workspace, count: int) -> Iterator[FollowingDaemon]:
    """A new daemon, and ``count`` commits that it has not seen."""
    installation = workspace.newly_applied(MANIFESTS)
    with daemon_on(workspace, installation, "0s") as daemon:
        restart_next(installation.repository)
        commits = [commit_change(installation.repository, 1, 3_000_000 + seed, "next") for seed in range(count)]
        # Else the objects of these commits would be the most.
        run(["git", "-C", installation.repository, "repack", "-a", "-d", "-q"])
        yield FollowingDaemon(daemon, installation.repository, commits)


def _sum(parts: tuple[Part, ...]) -> Part:
    seconds, cpu = sum(part.seconds for part in parts), sum(part.cpu for part in parts)
    return Part(seconds, cpu, parts[-1].resident, max(part.loose for part in parts))


def _rows(count: int, parts: list[Part], first: Part) -> Iterator[Row]:
    last, size = parts[-1], count // len(parts)
    what = f"{count:,} commits in a row, the last tenth against the first of another daemon"
    each = ", ".join(f"{1000 * part.cpu / size:.1f}" for part in parts)
    note = f"{1000 * first.cpu / size:.1f} ms of the other one for each; of the first one {each} ms"
    yield Row(f"{what}: CPU", last.cpu / first.cpu, SLOWER, "times", cpu=sum(part.cpu for part in parts), note=note)
    rates = ", ".join(f"{size / part.seconds:.0f}" for part in parts)
    note = f"{size / first.seconds:.0f} commits/s of the other one; of the first one {rates}"
    yield Row("  the same: time", last.seconds / first.seconds, SLOWER, "times", note=note)
    memory, middle = ", ".join(f"{part.resident:.0f}" for part in parts), parts[len(parts) // 2]
    yield Row(
        "  memory: the last tenth against the sixth", last.resident / middle.resident, 1.1, "times", note=f"{memory} MB"
    )
    loose = [part.loose for part in parts]
    yield Row("  loose objects of Git, against the most", max(loose) / LOOSE, 1, "times", note=f"{loose}")
