"""Rows about commands on a host whose daemon runs: it plans and applies for them, and its CPU counts too."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pygit2

from tests.bench.generate import commit_change
from tests.bench.ground import Ground, Site
from tests.bench.hostsite import used
from tests.bench.measure import BIN, Measured, middle_of, run
from tests.bench.push import daemon_on, restart_next
from tests.bench.table import Row

THOUSANDS = 3_000


def asked(ground: Ground) -> Iterator[Row]:
    """A plan without changes, and the apply of one change, as whole processes beside a daemon."""
    site = ground.applied(THOUSANDS)
    name = f"{THOUSANDS:,} resources beside their daemon"
    with daemon_on(ground, site, "0s") as daemon:
        planned = Asking(ground, site, daemon, "plan").run(times=ground.often(20))
        applied = Asking(ground, site, daemon, "apply").run(partial(push, site), ground.often(20))
    for what, measured, limit in (("plan without changes", planned, 0.2), ("apply of one change", applied, 0.25)):
        yield Row(f"{name}: {what}, whole process", measured.wall, limit, cpu=measured.cpu, note=measured.note())


class Asking:
    """A command that ``daemon`` on ``site`` answers."""

    def __init__(self, ground: Ground, site: Site, daemon: subprocess.Popen[bytes], verb: str) -> None:
        # The very file of the daemon: it answers only for the settings that it has.
        self._words: list[str | Path] = [
            BIN / "reconciler",
            verb,
            "--settings",
            ground.with_status_interval(site, "0s"),
        ]
        self._daemon = daemon

    def run(self, prepare: Callable[[int], object] = lambda _: None, times: int = 1) -> Measured:
        """The middle run of several, each after ``prepare``; the CPU seconds are those of both programs."""
        runs, before = [], used(self._daemon.pid).cpu
        for seed in range(times):
            prepare(seed)
            runs.append(run(self._words))
        cpu = (used(self._daemon.pid).cpu - before) / times
        return middle_of(runs)._replace(cpu=cpu + median(each.cpu for each in runs))


def push(site: Site, seed: int) -> None:
    """Move the branch by one commit of one file, prepared beside it."""
    restart_next(site.repository)
    commit = commit_change(Path(site.repository), 1, 4_000_000 + seed, "next")
    pygit2.Repository(str(site.repository)).references["refs/heads/main"].set_target(commit)
