"""Rows about changes that should cost the same among ten times the resources."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from statistics import median

from tests.bench.measure import BIN, Failed, Measured, measure_in_process, run
from tests.bench.table import Row
from tests.bench.workspace import Workspace
from tests.cost.changes import CHANGES
from tests.support.git import GitRepo

FEW, MANY = 1_000, 10_000
MOST = 1.5
TURNS = 3
FEW_FINDINGS, BESIDE = 300, 100
"""Findings of a folder, and other manifests beside it."""
PLAIN = "kind: secret\nname: plain-{0}\ntype: dictionary\ndata: {{password: not-a-real-password-{0}}}\n"


def growth(workspace: Workspace) -> Iterator[Row]:
    """Each change among few resources and among many, in CPU seconds."""
    few, many = (FEW // 10, MANY // 10) if workspace.quick else (FEW, MANY)
    for name in CHANGES:
        taken: dict[int, list[float]] = {few: [], many: []}
        for _ in range(workspace.often(TURNS)):  # in turn, so that a slow minute of the machine is one for both
            for count, found in taken.items():
                found += _measured(workspace, name, count)
        before, after = (median(found) for found in taken.values())
        note = f"CPU among {few:,} {1000 * before:.1f} ms, among {many:,} {1000 * after:.1f} ms"
        yield Row(f"{name}: among {many:,} against {few:,}", after / before, MOST, "times", note=note, cpu=after)


def findings(workspace: Workspace) -> Iterator[Row]:
    """Commands on many warnings of one folder: they cost ten times as much among ten times as many, at most."""
    few, many = FEW_FINDINGS, FEW_FINDINGS * 10
    taken = {count: _of_findings(workspace, count) for count in (few, many)}
    for words, measured in taken[many].items():
        before = taken[few][words].cpu
        note = f"CPU with {few:,} {before:.2f} s"
        what = f"{words} with {many:,} findings in one folder"
        yield Row(what, measured.wall, 0, note=note, cpu=measured.cpu)
        yield Row(f"  against {few:,}", measured.cpu / before, many / few, "times", cpu=measured.cpu)


def _of_findings(workspace: Workspace, count: int) -> dict[str, Measured]:
    """What commands take on a repository of ``count`` secrets in plain text, each of which is a warning."""
    installation = workspace.installation(BESIDE)
    GitRepo(installation.repository).commit({f"plain/{number}.yaml": PLAIN.format(number) for number in range(count)})
    tree = workspace.scratch / f"findings-{count}"
    run(["git", "clone", "--quiet", installation.repository, tree])
    arguments = {"validate": [tree / "plain"], "plan": [], "apply": []}
    taken = {name: run([BIN / "reconciler", name, *more], installation.env) for name, more in arguments.items()}
    for name, measured in taken.items():
        if measured.output.count("secret-plain-text") < count:
            raise Failed(f"{name} shows fewer findings than there are")
    return taken


def _measured(workspace: Workspace, name: str, count: int) -> list[float]:
    with tempfile.TemporaryDirectory(dir=workspace.scratch) as directory:
        seconds: list[float] = measure_in_process(
            "growth", directory=directory, change=name, count=count, times=workspace.often(20)
        )[0]
    return seconds
