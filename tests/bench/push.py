"""The time from a push to the status commit, in a daemon that is watched from outside."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pygit2

from tests.bench.generate import commit_change
from tests.bench.host_sandbox import PATIENCE, share, used
from tests.bench.measure import BIN, Failed, percentile
from tests.bench.table import Row
from tests.bench.workspace import Installation, Workspace

STATUS = "refs/heads/reconciler/status"
INTERVAL = 5
"""Seconds of ``status.interval`` for the row that has one: shorter than the default, so that it takes less time."""
REST = 3.0
"""Seconds after which nothing of a start, or of a commit, is in progress."""


def push(workspace: Workspace) -> Iterator[Row]:
    """From the moved ref to the status commit that names it, and the daemon at rest between them."""
    name = f"push to status commit, daemon of {workspace.count:,}"
    installation = workspace.applied(workspace.count)
    with daemon_on(workspace, installation, "0s") as daemon:
        before = used(daemon.pid).cpu
        delays = measure_pushes(installation.repository, workspace.often(100), 0.1)
        cpu = (used(daemon.pid).cpu - before) / len(delays)
        yield Row(f"{name}, p50", median(delays), 0.035, cpu=cpu)
        yield Row("  the same, p99", percentile(delays, 0.99), 0.08, note=f"the slowest {1000 * max(delays):.1f} ms")
        time.sleep(REST)
        busy, resident = share(daemon.pid, 4.0 if workspace.quick else 30.0)
        yield Row("  the daemon at rest after them: of one core", busy, 0.5, "%", note=f"{resident:.0f} MB")
    with daemon_on(workspace, installation, f"{INTERVAL}s"):
        delays = measure_pushes(installation.repository, workspace.often(5), INTERVAL + 1.0)
        yield Row(f"push to status commit, the first in {INTERVAL} s of `status.interval`, p50", median(delays), 0.035)


@contextmanager
def daemon_on(workspace: Workspace, installation: Installation, interval: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon at rest on an applied repository; status is written at most once in ``interval``."""
    settings = workspace.with_status_interval(installation, interval)
    before = _target(installation.repository)
    commit_change(installation.repository, 1, 1_000_000 + int(time.time()))
    with (
        (workspace.scratch / "push.log").open("ab") as log,
        subprocess.Popen([BIN / "reconciler", "run", "--settings", settings], stdout=log, stderr=log) as daemon,
    ):
        try:
            _wait(installation.repository, before)
            time.sleep(REST)
            yield daemon
        finally:
            daemon.terminate()


def measure_pushes(repository: Path, times: int, pause: float) -> list[float]:
    """Seconds from each of ``times`` moves of the branch, ``pause`` seconds apart, to the status commit."""
    delays = []
    for seed in range(times):
        restart_next(repository)
        commit = commit_change(repository, 1, 2_000_000 + seed, "next")
        time.sleep(pause)
        delays.append(move(repository, commit))
    return delays


def restart_next(repository: Path) -> None:
    """Let the branch ``next``, on which commits are prepared, start at the branch that the daemon follows."""
    git = pygit2.Repository(str(repository))
    git.references.create("refs/heads/next", git.references["refs/heads/main"].target, force=True)


def move(repository: Path, commit: str) -> float:
    """Move the branch to ``commit``; the seconds to the status commit that follows."""
    before, began = _target(repository), time.perf_counter()
    pygit2.Repository(str(repository)).references["refs/heads/main"].set_target(commit)
    return _wait(repository, before) - began


def _wait(repository: Path, before: str) -> float:
    """When the status branch is no longer at ``before`` (perf_counter). Raises Failed if it stays there."""
    deadline = time.perf_counter() + PATIENCE
    while _target(repository) == before:
        if time.perf_counter() > deadline:
            raise Failed("the daemon wrote no status")
        time.sleep(0.0005)
    return time.perf_counter()


def _target(repository: Path) -> str:
    """The commit of the status branch; "" without one. Its loose file is read, since libgit2 would cost the daemon."""
    try:
        return (repository / STATUS).read_text(encoding="ascii")
    except FileNotFoundError:
        return ""
