"""Rows about thousands of commits one after the other: does the last thousand cost what the first does?"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reconciler.listing import list_paths
from tests.bench.calibration import Calibration
from tests.bench.generate import commit_change
from tests.bench.ground import Ground
from tests.bench.hostsite import used
from tests.bench.measure import run
from tests.bench.push import daemon_on, move, restart_next
from tests.bench.table import Row

COMMITS, PARTS = 10_000, 10
MANIFESTS = 1_000
SLOWER = 1 / 0.95
LOOSE = 5_000
"""The most loose objects of Git at any time."""


class Part(NamedTuple):
    """A tenth of the commits: seconds of time and of the daemon's CPU, then its megabytes and the loose objects.

    ``pace`` is how slow the machine was meanwhile, against the reference.
    """

    seconds: float
    cpu: float
    resident: float
    loose: int
    pace: float


def series(ground: Ground) -> Iterator[Row]:
    """Commits of one file each; each follows when the daemon has written the status of the one before."""
    count = COMMITS // (20 if ground.quick else 1)
    site = ground.applied(MANIFESTS)
    size = count // PARTS
    with daemon_on(ground, site, "0s") as daemon:
        restart_next(site.repository)
        commits = [commit_change(site.repository, 1, 3_000_000 + seed, "next") for seed in range(count)]
        # Else the objects of these commits would be the most.
        run(["git", "-C", site.repository, "repack", "-a", "-d", "-q"])
        parts = [
            _follow(site.repository, daemon, commits[start : start + size], ground.calibration)
            for start in range(0, count, size)
        ]
    yield from _rows(count, parts)


def _rows(count: int, parts: list[Part]) -> Iterator[Row]:
    first, last, size = parts[0], parts[-1], count // len(parts)
    what = f"{count:,} commits in a row, the last tenth against the first"
    each = [f"{1000 * part.cpu / size:.0f}" for part in parts]
    pace = last.pace / first.pace
    note = f"{', '.join(each)} ms of the daemon for each; the machine {pace:.2f} times as slow"
    cpu, seconds = last.cpu / first.cpu / pace, last.seconds / first.seconds / pace
    yield Row(f"{what}: CPU", cpu, SLOWER, "times", cpu=sum(part.cpu for part in parts), note=note)
    rates = [f"{size / part.seconds:.0f}" for part in parts]
    yield Row(f"{what}: time", seconds, SLOWER, "times", note=f"{', '.join(rates)} commits/s")
    memory, middle = [f"{part.resident:.0f}" for part in parts], parts[len(parts) // 2]
    yield Row("  memory: the last tenth against the sixth", last.resident / middle.resident, 1.1, "times",
              note=f"{', '.join(memory)} MB")  # fmt: skip
    loose = [part.loose for part in parts]
    yield Row("  loose objects of Git, against the most", max(loose) / LOOSE, 1, "times", note=f"{loose}")


def _follow(repository: Path, daemon: subprocess.Popen[bytes], commits: list[str], calibration: Calibration) -> Part:
    """Move the branch to each of ``commits`` once the status of the one before is written."""
    before, began = used(daemon.pid).cpu, time.monotonic()
    for commit in commits:
        move(repository, commit)
    seconds, after = time.monotonic() - began, used(daemon.pid)
    loose = sum(1 for _ in list_paths(repository / "objects", "[0-9a-f][0-9a-f]/*"))
    return Part(seconds, after.cpu - before, after.resident, loose, calibration.pace(began))
