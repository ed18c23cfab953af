"""Rows about commands on a host whose daemon runs: it plans and applies for them, and its CPU counts too."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pygit2

from tests.bench.generate import commit_change
from tests.bench.host_sandbox import used
from tests.bench.measure import BIN, Measured, middle_of, run
from tests.bench.push import daemon_on, restart_next
from tests.bench.table import Row
from tests.bench.workspace import Installation, Workspace

THOUSANDS = 3_000


def asked(workspace: Workspace) -> Iterator[Row]:
    """A plan without changes, and the apply of one change, as whole processes beside a daemon."""
    installation = workspace.applied(THOUSANDS)
    name = f"{THOUSANDS:,} resources beside their daemon"
    with daemon_on(workspace, installation, "0s") as daemon:
        planned = CommandMeasurement(workspace, installation, daemon, "plan").run(times=workspace.often(20))
        applied = CommandMeasurement(workspace, installation, daemon, "apply").run(
            partial(push, installation), workspace.often(20)
        )
    for what, measured, limit in (("plan without changes", planned, 0.2), ("apply of one change", applied, 0.25)):
        yield Row(f"{name}: {what}, whole process", measured.wall, limit, cpu=measured.cpu, note=measured.note())


class CommandMeasurement:
    """A command that ``daemon`` on ``installation`` answers."""

    def __init__(
        self, workspace: Workspace, installation: Installation, daemon: subprocess.Popen[bytes], verb: str
    ) -> None:
        # The very file of the daemon: it answers only for the settings that it has.
        self._words: list[str | Path] = [
            BIN / "reconciler",
            verb,
            "--settings",
            workspace.with_status_interval(installation, "0s"),
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


def push(installation: Installation, seed: int) -> None:
    """Move the branch by one commit of one file, prepared beside it."""
    restart_next(installation.repository)
    commit = commit_change(Path(installation.repository), 1, 4_000_000 + seed, "next")
    pygit2.Repository(str(installation.repository)).references["refs/heads/main"].set_target(commit)
