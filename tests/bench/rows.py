"""What is measured: each function gives rows of docs/benchmarks.md; their names are what ``--only`` takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from statistics import median

from tests.bench import large_gvc, peers
from tests.bench.api_rows import api
from tests.bench.cluster_rows import cluster, pods
from tests.bench.command_rows import THOUSANDS, asked
from tests.bench.containers import containers
from tests.bench.cron_rows import cron
from tests.bench.dataplane import dataplane
from tests.bench.growth_rows import findings, growth
from tests.bench.host_rows import host
from tests.bench.measure import BIN, Measured, measure_in_process, middle, middle_of, percentile, run
from tests.bench.measurements import FollowedCommit
from tests.bench.notification_rows import notifications
from tests.bench.page_rows import page
from tests.bench.platform_rows import platform
from tests.bench.probe_rows import probes
from tests.bench.push import push
from tests.bench.series import series
from tests.bench.table import Row
from tests.bench.volume_rows import volumes
from tests.bench.workspace import Installation, Workspace

RECONCILER = BIN / "reconciler"
SMALL = 1_000
MANY_FILES = 10_000
USERS = 5_000
DOCUMENTS = 4_000
SAMPLES = 3
"""How often what takes long is measured."""
TURNS = 4
"""Rounds in which two figures are measured for a comparison."""


def first(workspace: Workspace) -> Iterator[Row]:
    """The first apply of everything, as a whole process."""
    taken = [workspace.first_apply(workspace.count) for _ in range(workspace.often(SAMPLES))]
    yield _whole(f"first apply of {workspace.count:,}, durable", middle_of(taken), 60, cores=2, note=_range(taken))
    yield Row("  its most resident memory", max(each.peak for each in taken), 400, "MB")


def cold(workspace: Workspace) -> Iterator[Row]:
    """From nothing cached to a plan."""
    taken = []
    for _ in range(workspace.often(SAMPLES)):
        with workspace.temporary_installation(workspace.count) as installation:
            found, measured = measure_in_process("prepare", settings=installation.settings)
        assert found["steps"] >= workspace.count
        taken.append(measured)
    yield _whole("cold start, nothing cached, to Plan", middle_of(taken), 15, cores=2, note=_range(taken))


def warm(workspace: Workspace) -> Iterator[Row]:
    """A restart on state that is up to date."""
    installation = workspace.applied(workspace.count)
    restarts = [measure_in_process("restart", settings=installation.settings) for _ in range(workspace.often(5) + 1)][
        1:
    ]
    taken = [measured for _, measured in restarts]
    yield _whole('warm start to "nothing to do", imports included', middle_of(taken), 1.5)
    yield Row("resident memory after it", max(each["resident"] for each, _ in restarts), 400, "MB")
    collector, loop = (max(each[name] for each, _ in restarts) for name in ("collector", "loop"))
    yield Row(
        "longest pause in it",
        max(collector, loop),
        0.05,
        note=f"collector {1000 * collector:.1f} ms, event loop {1000 * loop:.1f} ms",
    )


def poll(workspace: Workspace) -> Iterator[Row]:
    """A poll of a source that has not moved."""
    delays, _ = measure_in_process(
        "poll", settings=workspace.applied(workspace.count).settings, times=workspace.often(1000)
    )
    yield Row("poll that finds nothing new, local source", median(delays), 0.001, note=f"p99 {_ms(delays, 0.99)}")


def paths(workspace: Workspace) -> Iterator[Row]:
    """Which files one commit changed."""
    delays, _ = measure_in_process(
        "paths", settings=workspace.applied(workspace.count).settings, times=workspace.often(200)
    )
    yield Row("changed paths of a one-file commit", median(delays), 0.002, note=f"p99 {_ms(delays, 0.99)}")


def commit(workspace: Workspace) -> Iterator[Row]:
    """A one-file commit from its ref to its status, where there is much and where there is little."""
    sizes: list[list[FollowedCommit]] = [[], []]
    # In turn, so that a slow minute of the machine is one for both.
    for turn in range(TURNS):
        for found, count in zip(sizes, (workspace.count, SMALL), strict=True):
            found += _commits(workspace, count, 1, 200 // TURNS, turn * 1000)
    many, few = sizes
    yield _followed("one-file commit to recorded and status committed, p50", many, 0.01)
    whole = [commit.seconds for commit in many]
    yield Row("  the same, p99", percentile(whole, 0.99), 0.025, note=f"the slowest {_ms(whole, 1)}")
    yield _followed(f"  the same with {SMALL:,} manifests, p50", few)
    times = median(whole) / median(commit.seconds for commit in few)
    cpu = median(commit.cpu for commit in many) / median(commit.cpu for commit in few)
    yield Row(f"  {workspace.count:,} manifests against {SMALL:,}", times, 1.5, "times", note=f"CPU {cpu:.2f} times")


def many(workspace: Workspace) -> Iterator[Row]:
    """A daemon after many commits."""
    found = _commits(workspace, SMALL, 1, 2000, 5000)
    note = f"after the first one {found[0].resident:.0f} MB"
    yield Row(f"resident memory after {len(found):,} one-file commits", found[-1].resident, 100, "MB", note=note)


def large(workspace: Workspace) -> Iterator[Row]:
    """A commit that changes a thousand files."""
    files = min(1000, workspace.count // 2)
    found = _commits(workspace, workspace.count, files, 5)
    yield _followed(f"{files:,}-file commit to recorded and status committed", found, 1)


def thousands(workspace: Workspace) -> Iterator[Row]:
    """Three thousand resources: what the commands take as whole processes, and a daemon for a change."""
    installation = workspace.applied(THOUSANDS)
    name = f"{THOUSANDS:,} resources"
    taken = [workspace.first_apply(THOUSANDS) for _ in range(workspace.often(SAMPLES))]
    yield _whole(f"{name}: first apply, whole process", middle_of(taken), 3, note=_range(taken))
    measured = middle([RECONCILER, "plan"], workspace.often(10), installation.env)
    yield _whole(f"{name}: plan without changes, whole process", measured, 0.2)
    runs = []
    for seed in range(workspace.often(10)):
        run([sys.executable, "-c", CHANGE, str(installation.repository), str(seed)])
        runs.append(run([RECONCILER, "apply"], installation.env))
    yield _whole(f"{name}: apply of one change, whole process", middle_of(runs), 0.25)
    yield _followed(f"{name}: apply of one change in a daemon", _commits(workspace, THOUSANDS, 1, 200), 0.01)


CHANGE = """import pathlib, sys
from tests.bench.generate import commit_change
commit_change(pathlib.Path(sys.argv[1]), 1, int(sys.argv[2]))
"""


def members(workspace: Workspace) -> Iterator[Row]:
    """Changes in and of a GVC that everything is a member of."""
    installation = workspace.applied(workspace.count, "large-gvc")
    name = f"a GVC of {workspace.count:,} workloads"
    member = large_gvc.workload_file(workspace.count // 2)
    yield from _change(workspace, installation, f"{name}: change of one of them", member, r"image: \S+:\d+\.\d+\.")
    yield from _change(
        workspace, installation, f"{name}: change of its description", large_gvc.GVC_FILE, "description: Release "
    )


def shared(workspace: Workspace) -> Iterator[Row]:
    """Changes of what many workloads read."""
    count = min(USERS, workspace.count)
    installation = workspace.applied(count, "large-gvc")
    yield from _change(
        workspace, installation, f"a variable of a GVC of {count:,} workloads", large_gvc.GVC_FILE, "value: release-"
    )
    yield from _change(
        workspace, installation, f"a secret that {count:,} workloads use", large_gvc.SECRET_FILE, "not-a-real-password-"
    )


def documents(workspace: Workspace) -> Iterator[Row]:
    """A change of one document of a large file."""
    count = min(DOCUMENTS, workspace.count)
    installation = workspace.applied(count, "documents")
    name = large_gvc.workload_name(count // 2)
    pattern = rf"name: {name}\n(?:.*\n)*?      image: \S+:\d+\.\d+\."
    yield from _change(
        workspace, installation, f"a file of {count:,} documents: change of one", large_gvc.DOCUMENTS, pattern
    )


def validate(workspace: Workspace) -> Iterator[Row]:
    """Ten thousand files as they lie in a directory."""
    count = MANY_FILES // (10 if workspace.quick else 1)
    trees = [(workspace.work_tree(count), "files")]
    if workspace.fixture == "plain":
        trees.append((workspace.mixed_tree(count), "files of all kinds"))
    for tree, what in trees:
        measured = middle([RECONCILER, "validate", tree], workspace.often(5), peers.without_settings(workspace))
        yield _whole(f"validate {count:,} {what}, whole process", measured, 2, cores=2)


def commands(workspace: Workspace) -> Iterator[Row]:
    """Commands that people wait for."""
    yield _whole("reconciler --help", middle([RECONCILER, "--help"], workspace.often(20)), 0.1)
    gvc, name = workspace.workload(42)
    one = ["get", "workload", name, "--gvc", gvc]
    for count in (THOUSANDS, workspace.count):
        measured = middle([RECONCILER, *one], workspace.often(20), workspace.applied(count).env)
        yield _whole(f"reconciler get of one of {count:,}", measured, 0.25)
    measured = middle([RECONCILER, "get"], workspace.often(10), workspace.applied(THOUSANDS).env)
    yield _whole(f"reconciler get of all {THOUSANDS:,}", measured, 0.25)


def logs(workspace: Workspace) -> Iterator[Row]:
    """What a location's log collector takes: many lines, and none."""
    lines = 200_000 * workspace.often(10)
    result, _ = measure_in_process("ingest", directory=workspace.scratch, lines=lines)
    rate = f"{lines / result['seconds']:,.0f} lines/s, {result['cpu']:.2f} s of CPU"
    yield Row(f"{lines:,} lines of 100 bytes into the logs", result["seconds"], lines / 200_000, note=rate)
    yield Row("a look at 100 containers that write nothing", result["check"], 0.001)


def others(workspace: Workspace) -> Iterator[Row]:
    """Other programs at work like ours; only with --peers, since they are fetched."""
    yield from peers.rows(workspace)


_ALL = (
    first,
    cold,
    warm,
    poll,
    paths,
    commit,
    push,
    many,
    large,
    thousands,
    asked,
    members,
    shared,
    documents,
    growth,
    notifications,
    findings,
    series,
    validate,
    commands,
    logs,
    host,
    probes,
    volumes,
    api,
    page,
    platform,
    cron,
    cluster,
    pods,
    containers,
    dataplane,
)
ON_DEMAND = frozenset({"pods"})
"""Rows that repeat a part of others, and are measured only where they are named."""
ROWS: dict[str, Callable[[Workspace], Iterator[Row]]] = {each.__name__: each for each in _ALL}


def _commits(workspace: Workspace, count: int, files: int, times: int, seed: int = 0) -> list[FollowedCommit]:
    installation = workspace.applied(count)
    rows, _ = measure_in_process(
        "commits", settings=installation.settings, times=workspace.often(times), files=files, seed=seed
    )
    return [FollowedCommit(*each) for each in rows]


def _change(workspace: Workspace, installation: Installation, what: str, file: str, pattern: str) -> Iterator[Row]:
    """Commits that count up the number behind ``pattern``, and the memory that stays; there is no budget for them."""
    rows, _ = measure_in_process(
        "counts", settings=installation.settings, times=workspace.often(20), file=file, pattern=pattern
    )
    followed = [FollowedCommit(*each) for each in rows]
    yield _followed(what, followed)
    most = max(each.resident for each in followed)
    yield Row("  resident memory after it", followed[-1].resident, 0, "MB", note=f"at most {most:.0f} MB")


def _followed(what: str, commits: list[FollowedCommit], limit: float = 0) -> Row:
    run, status, cpu, steps, _ = (median(part) for part in zip(*commits, strict=True))
    note = f"run {1000 * run:.1f} ms, status {1000 * status:.1f} ms, {steps:,.0f} steps"
    return Row(what, median(each.seconds for each in commits), limit, cpu=cpu, note=note)


def _whole(what: str, measured: Measured, limit: float, cores: int = 1, note: str = "") -> Row:
    """The row of a whole process, which may use so many ``cores``."""
    notes = ", ".join(filter(None, [measured.note(), note]))
    return Row(what, measured.wall, limit, note=notes, cpu=measured.cpu, cores=cores)


def _range(taken: list[Measured]) -> str:
    return f"{len(taken)} samples, {min(taken).wall:.3g} to {max(taken).wall:.3g} s"


def _ms(values: list[float], share: float) -> str:
    return f"{1000 * percentile(values, share):.2f} ms"
