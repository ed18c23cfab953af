"""What is measured: each function gives rows of docs/benchmarks.md; their names are what ``--only`` takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from statistics import median

from tests.bench import crowd, peers
from tests.bench.containers import containers
from tests.bench.cronrows import cron
from tests.bench.dataplane import dataplane
from tests.bench.ground import Ground, Site
from tests.bench.hostrows import host
from tests.bench.measure import BIN, inside, middle, percentile, run
from tests.bench.push import push
from tests.bench.table import Row

RECONCILER = BIN / "reconciler"
SMALL = 1_000
THOUSANDS = 3_000
MANY_FILES = 10_000
USERS = 5_000
DOCUMENTS = 4_000
TURNS = 4
"""Rounds in which two figures are measured for a comparison."""


def first(ground: Ground) -> Iterator[Row]:
    """The first apply of everything, as a whole process."""
    measured = ground.applied(ground.count).first
    assert measured is not None
    yield Row(f"first apply of {ground.count:,}, durable", measured.wall, 60, note=measured.note())


def cold(ground: Ground) -> Iterator[Row]:
    """From nothing cached to a plan."""
    found, measured = inside("prepare", settings=ground.site(ground.count).settings)
    assert found["steps"] >= ground.count
    yield Row("cold start, nothing cached, to Plan", measured.wall, 15, note=measured.note())


def warm(ground: Ground) -> Iterator[Row]:
    """A restart on state that is up to date."""
    site = ground.applied(ground.count)
    found = [inside("restart", settings=site.settings) for _ in range(ground.often(5) + 1)][1:]
    walls = [measured.wall for _, measured in found]
    yield Row('warm start to "nothing to do", imports included', median(walls), 1.5, note=found[0][1].note())
    yield Row("resident memory after it", max(each["resident"] for each, _ in found), 400, "MB")
    collector, loop = (max(each[name] for each, _ in found) for name in ("collector", "loop"))
    yield Row("longest pause in it", max(collector, loop), 0.05,
              note=f"collector {1000 * collector:.1f} ms, event loop {1000 * loop:.1f} ms")  # fmt: skip


def poll(ground: Ground) -> Iterator[Row]:
    """A poll of a source that has not moved."""
    found, _ = inside("poll", settings=ground.applied(ground.count).settings, times=ground.often(1000))
    yield Row("poll that finds nothing new, local source", median(found), 0.001, note=f"p99 {_ms(found, 0.99)}")


def paths(ground: Ground) -> Iterator[Row]:
    """Which files one commit changed."""
    found, _ = inside("paths", settings=ground.applied(ground.count).settings, times=ground.often(200))
    yield Row("changed paths of a one-file commit", median(found), 0.002, note=f"p99 {_ms(found, 0.99)}")


def commit(ground: Ground) -> Iterator[Row]:
    """A one-file commit from its ref to its status, where there is much and where there is little."""
    pairs: list[list[Pair]] = [[], []]
    # In turn, so that a slow minute of the machine is one for both.
    for turn in range(TURNS):
        for found, count in zip(pairs, (ground.count, SMALL), strict=True):
            found += _commits(ground, count, 1, 200 // TURNS, turn * 1000)
    whole, few = ([sum(pair) for pair in found] for found in pairs)
    yield Row("one-file commit to recorded and status committed, p50", median(whole), 0.01, note=_parts(pairs[0]))
    yield Row("  the same, p99", percentile(whole, 0.99), 0.025, note=f"the slowest {_ms(whole, 1)}")
    yield Row(f"  the same with {SMALL:,} manifests, p50", median(few), 0, note=_parts(pairs[1]))
    yield Row(f"  {ground.count:,} manifests against {SMALL:,}", median(whole) / median(few), 1.5, "times")


def large(ground: Ground) -> Iterator[Row]:
    """A commit that changes a thousand files."""
    files = min(1000, ground.count // 2)
    found = _commits(ground, ground.count, files, 5)
    whole = [sum(pair) for pair in found]
    yield Row(f"{files:,}-file commit to recorded and status committed", median(whole), 1, note=_parts(found))


def thousands(ground: Ground) -> Iterator[Row]:
    """Three thousand resources: what the commands take as whole processes, and a daemon for a change."""
    site = ground.applied(THOUSANDS)
    assert site.first is not None
    name = f"{THOUSANDS:,} resources"
    yield Row(f"{name}: first apply, whole process", site.first.wall, 3, note=site.first.note())
    measured = middle([RECONCILER, "plan"], ground.often(10), site.env)
    yield Row(f"{name}: plan without changes, whole process", measured.wall, 0.2, note=measured.note())
    runs = []
    for seed in range(ground.often(10)):
        run([sys.executable, "-c", CHANGE, str(site.repository), str(seed)])
        runs.append(run([RECONCILER, "apply"], site.env))
    measured = sorted(runs)[len(runs) // 2]
    yield Row(f"{name}: apply of one change, whole process", measured.wall, 0.25, note=measured.note())
    found = _commits(ground, THOUSANDS, 1, 200)
    yield Row(f"{name}: apply of one change in a daemon", median(map(sum, found)), 0.01, note=_parts(found))


CHANGE = """import pathlib, sys
from tests.bench.generate import commit_change
commit_change(pathlib.Path(sys.argv[1]), 1, int(sys.argv[2]))
"""


def members(ground: Ground) -> Iterator[Row]:
    """Changes in and of a GVC that everything is a member of."""
    site = ground.applied(ground.count, "crowd")
    name = f"a GVC of {ground.count:,} workloads"
    member = crowd.workload_file(ground.count // 2)
    yield _change(ground, site, f"{name}: change of one of them", member, r"image: \S+:\d+\.\d+\.")
    yield _change(ground, site, f"{name}: change of its description", crowd.GVC_FILE, "description: Release ")


def shared(ground: Ground) -> Iterator[Row]:
    """Changes of what many workloads read."""
    count = min(USERS, ground.count)
    site = ground.applied(count, "crowd")
    yield _change(ground, site, f"a variable of a GVC of {count:,} workloads", crowd.GVC_FILE, "value: release-")
    yield _change(ground, site, f"a secret that {count:,} workloads use", crowd.SECRET_FILE, "not-a-real-password-")


def documents(ground: Ground) -> Iterator[Row]:
    """A change of one document of a large file."""
    count = min(DOCUMENTS, ground.count)
    site = ground.applied(count, "documents")
    name = crowd.workload_name(count // 2)
    pattern = rf"name: {name}\n(?:.*\n)*?      image: \S+:\d+\.\d+\."
    yield _change(ground, site, f"a file of {count:,} documents: change of one", crowd.DOCUMENTS, pattern)


def validate(ground: Ground) -> Iterator[Row]:
    """Ten thousand files as they lie in a directory; then other programs on the same files with the same schema."""
    count = MANY_FILES // (10 if ground.quick else 1)
    without_settings = {"RECONCILER_SETTINGS": str(ground.scratch / "none.yaml")}
    taken = []
    trees = [(ground.work_tree(count), "files")]
    if ground.fixture == "plain":
        trees.append((ground.mixed_tree(count), "files of all kinds"))
    for tree, what in trees:
        measured = middle([RECONCILER, "validate", tree], ground.often(5), without_settings)
        yield Row(f"validate {count:,} {what}, whole process", measured.wall, 2, note=measured.note())
        taken.append(measured.wall)
    yield from peers.validators(ground, count, taken[0])


def commands(ground: Ground) -> Iterator[Row]:
    """Commands that people wait for."""
    measured = middle([RECONCILER, "--help"], ground.often(20))
    yield Row("reconciler --help", measured.wall, 0.1, note=measured.note())
    gvc, name = ground.workload(42)
    one = ["get", "workload", name, "--gvc", gvc]
    for count in (THOUSANDS, ground.count):
        measured = middle([RECONCILER, *one], ground.often(20), ground.applied(count).env)
        yield Row(f"reconciler get of one of {count:,}", measured.wall, 0.25, note=measured.note())
    measured = middle([RECONCILER, "get"], ground.often(10), ground.applied(THOUSANDS).env)
    yield Row(f"reconciler get of all {THOUSANDS:,}", measured.wall, 0.25, note=measured.note())


def logs(ground: Ground) -> Iterator[Row]:
    """What a location's log collector takes: many lines, and none."""
    lines = 200_000 * ground.often(10)
    found, _ = inside("ingest", directory=ground.scratch, lines=lines)
    rate = f"{lines / found['seconds']:,.0f} lines/s, {found['cpu']:.2f} s of CPU"
    yield Row(f"{lines:,} lines of 100 bytes into the logs", found["seconds"], lines / 200_000, note=rate)
    yield Row("a look at 100 containers that write nothing", found["check"], 0.001)


def others(ground: Ground) -> Iterator[Row]:
    """Other programs at work like ours; only with --peers, since they are fetched."""
    yield from peers.rows(ground)


_ALL = (
    first, cold, warm, poll, paths, commit, push, large, thousands, members, shared, documents, validate, commands,
    logs, host, cron, containers, dataplane,
)  # fmt: skip
ROWS: dict[str, Callable[[Ground], Iterator[Row]]] = {each.__name__: each for each in _ALL}


Pair = tuple[float, float]
"""Seconds of a run, and of writing the status."""


def _commits(ground: Ground, count: int, files: int, times: int, seed: int = 0) -> list[Pair]:
    site = ground.applied(count)
    found, _ = inside("commits", settings=site.settings, times=ground.often(times), files=files, seed=seed)
    return [(run, status) for run, status, *_ in found]


def _change(ground: Ground, site: Site, what: str, file: str, pattern: str) -> Row:
    """Commits that count up the number behind ``pattern``; there is no budget for it."""
    found, _ = inside("counts", settings=site.settings, times=ground.often(20), file=file, pattern=pattern)
    pairs = [(run, status) for run, status, _, _ in found]
    cpu, steps = median(each[2] for each in found), median(each[3] for each in found)
    return Row(what, median(map(sum, pairs)), 0, note=f"{_parts(pairs)}, {cpu:.3f} s of CPU, {steps:,.0f} steps")


def _parts(found: list[Pair]) -> str:
    run, status = (median(part) for part in zip(*found, strict=True))
    return f"run {1000 * run:.1f} ms, status {1000 * status:.1f} ms"


def _ms(values: list[float], share: float) -> str:
    return f"{1000 * percentile(values, share):.2f} ms"
