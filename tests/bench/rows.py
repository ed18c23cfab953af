"""What is measured: each function gives rows of docs/benchmarks.md; their names are what ``--only`` takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from statistics import median

from tests.bench import crowd, peers
from tests.bench.apirows import api
from tests.bench.askrows import THOUSANDS, asked
from tests.bench.containers import containers
from tests.bench.cronrows import cron
from tests.bench.dataplane import dataplane
from tests.bench.ground import Ground, Site
from tests.bench.growthrows import findings, growth
from tests.bench.hostrows import host
from tests.bench.inside import Followed
from tests.bench.measure import BIN, Measured, inside, middle, middle_of, percentile, run
from tests.bench.platformrows import platform
from tests.bench.probing import probes
from tests.bench.push import push
from tests.bench.series import series
from tests.bench.table import Row
from tests.bench.volumerows import volumes

RECONCILER = BIN / "reconciler"
SMALL = 1_000
MANY_FILES = 10_000
USERS = 5_000
DOCUMENTS = 4_000
SAMPLES = 3
"""How often what takes long is measured."""
TURNS = 4
"""Rounds in which two figures are measured for a comparison."""


def first(ground: Ground) -> Iterator[Row]:
    """The first apply of everything, as a whole process."""
    taken = [ground.first_apply(ground.count) for _ in range(ground.often(SAMPLES))]
    yield _whole(f"first apply of {ground.count:,}, durable", middle_of(taken), 60, cores=2, note=_range(taken))
    yield Row("  its most resident memory", max(each.peak for each in taken), 400, "MB")


def cold(ground: Ground) -> Iterator[Row]:
    """From nothing cached to a plan."""
    taken = []
    for _ in range(ground.often(SAMPLES)):
        with ground.temporary_site(ground.count) as site:
            found, measured = inside("prepare", settings=site.settings)
        assert found["steps"] >= ground.count
        taken.append(measured)
    yield _whole("cold start, nothing cached, to Plan", middle_of(taken), 15, cores=2, note=_range(taken))


def warm(ground: Ground) -> Iterator[Row]:
    """A restart on state that is up to date."""
    site = ground.applied(ground.count)
    found = [inside("restart", settings=site.settings) for _ in range(ground.often(5) + 1)][1:]
    taken = [measured for _, measured in found]
    yield _whole('warm start to "nothing to do", imports included', middle_of(taken), 1.5)
    yield Row("resident memory after it", max(each["resident"] for each, _ in found), 400, "MB")
    collector, loop = (max(each[name] for each, _ in found) for name in ("collector", "loop"))
    yield Row(
        "longest pause in it",
        max(collector, loop),
        0.05,
        note=f"collector {1000 * collector:.1f} ms, event loop {1000 * loop:.1f} ms",
    )


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
    sizes: list[list[Followed]] = [[], []]
    # In turn, so that a slow minute of the machine is one for both.
    for turn in range(TURNS):
        for found, count in zip(sizes, (ground.count, SMALL), strict=True):
            found += _commits(ground, count, 1, 200 // TURNS, turn * 1000)
    many, few = sizes
    yield _followed("one-file commit to recorded and status committed, p50", many, 0.01)
    whole = [each.seconds for each in many]
    yield Row("  the same, p99", percentile(whole, 0.99), 0.025, note=f"the slowest {_ms(whole, 1)}")
    yield _followed(f"  the same with {SMALL:,} manifests, p50", few)
    times = median(whole) / median(each.seconds for each in few)
    cpu = median(each.cpu for each in many) / median(each.cpu for each in few)
    yield Row(f"  {ground.count:,} manifests against {SMALL:,}", times, 1.5, "times", note=f"CPU {cpu:.2f} times")


def many(ground: Ground) -> Iterator[Row]:
    """A daemon after many commits."""
    found = _commits(ground, SMALL, 1, 2000, 5000)
    note = f"after the first one {found[0].resident:.0f} MB"
    yield Row(f"resident memory after {len(found):,} one-file commits", found[-1].resident, 100, "MB", note=note)


def large(ground: Ground) -> Iterator[Row]:
    """A commit that changes a thousand files."""
    files = min(1000, ground.count // 2)
    found = _commits(ground, ground.count, files, 5)
    yield _followed(f"{files:,}-file commit to recorded and status committed", found, 1)


def thousands(ground: Ground) -> Iterator[Row]:
    """Three thousand resources: what the commands take as whole processes, and a daemon for a change."""
    site = ground.applied(THOUSANDS)
    name = f"{THOUSANDS:,} resources"
    taken = [ground.first_apply(THOUSANDS) for _ in range(ground.often(SAMPLES))]
    yield _whole(f"{name}: first apply, whole process", middle_of(taken), 3, note=_range(taken))
    measured = middle([RECONCILER, "plan"], ground.often(10), site.env)
    yield _whole(f"{name}: plan without changes, whole process", measured, 0.2)
    runs = []
    for seed in range(ground.often(10)):
        run([sys.executable, "-c", CHANGE, str(site.repository), str(seed)])
        runs.append(run([RECONCILER, "apply"], site.env))
    yield _whole(f"{name}: apply of one change, whole process", middle_of(runs), 0.25)
    yield _followed(f"{name}: apply of one change in a daemon", _commits(ground, THOUSANDS, 1, 200), 0.01)


CHANGE = """import pathlib, sys
from tests.bench.generate import commit_change
commit_change(pathlib.Path(sys.argv[1]), 1, int(sys.argv[2]))
"""


def members(ground: Ground) -> Iterator[Row]:
    """Changes in and of a GVC that everything is a member of."""
    site = ground.applied(ground.count, "crowd")
    name = f"a GVC of {ground.count:,} workloads"
    member = crowd.workload_file(ground.count // 2)
    yield from _change(ground, site, f"{name}: change of one of them", member, r"image: \S+:\d+\.\d+\.")
    yield from _change(ground, site, f"{name}: change of its description", crowd.GVC_FILE, "description: Release ")


def shared(ground: Ground) -> Iterator[Row]:
    """Changes of what many workloads read."""
    count = min(USERS, ground.count)
    site = ground.applied(count, "crowd")
    yield from _change(ground, site, f"a variable of a GVC of {count:,} workloads", crowd.GVC_FILE, "value: release-")
    yield from _change(
        ground, site, f"a secret that {count:,} workloads use", crowd.SECRET_FILE, "not-a-real-password-"
    )


def documents(ground: Ground) -> Iterator[Row]:
    """A change of one document of a large file."""
    count = min(DOCUMENTS, ground.count)
    site = ground.applied(count, "documents")
    name = crowd.workload_name(count // 2)
    pattern = rf"name: {name}\n(?:.*\n)*?      image: \S+:\d+\.\d+\."
    yield from _change(ground, site, f"a file of {count:,} documents: change of one", crowd.DOCUMENTS, pattern)


def validate(ground: Ground) -> Iterator[Row]:
    """Ten thousand files as they lie in a directory."""
    count = MANY_FILES // (10 if ground.quick else 1)
    trees = [(ground.work_tree(count), "files")]
    if ground.fixture == "plain":
        trees.append((ground.mixed_tree(count), "files of all kinds"))
    for tree, what in trees:
        measured = middle([RECONCILER, "validate", tree], ground.often(5), peers.without_settings(ground))
        yield _whole(f"validate {count:,} {what}, whole process", measured, 2, cores=2)


def commands(ground: Ground) -> Iterator[Row]:
    """Commands that people wait for."""
    yield _whole("reconciler --help", middle([RECONCILER, "--help"], ground.often(20)), 0.1)
    gvc, name = ground.workload(42)
    one = ["get", "workload", name, "--gvc", gvc]
    for count in (THOUSANDS, ground.count):
        measured = middle([RECONCILER, *one], ground.often(20), ground.applied(count).env)
        yield _whole(f"reconciler get of one of {count:,}", measured, 0.25)
    measured = middle([RECONCILER, "get"], ground.often(10), ground.applied(THOUSANDS).env)
    yield _whole(f"reconciler get of all {THOUSANDS:,}", measured, 0.25)


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
    first, cold, warm, poll, paths, commit, push, many, large, thousands, asked, members, shared, documents, growth,
    findings, series, validate, commands, logs, host, probes, volumes, api, platform, cron, containers,
    dataplane,
)  # fmt: skip
ROWS: dict[str, Callable[[Ground], Iterator[Row]]] = {each.__name__: each for each in _ALL}


def _commits(ground: Ground, count: int, files: int, times: int, seed: int = 0) -> list[Followed]:
    site = ground.applied(count)
    found, _ = inside("commits", settings=site.settings, times=ground.often(times), files=files, seed=seed)
    return [Followed(*each) for each in found]


def _change(ground: Ground, site: Site, what: str, file: str, pattern: str) -> Iterator[Row]:
    """Commits that count up the number behind ``pattern``, and the memory that stays; there is no budget for them."""
    found, _ = inside("counts", settings=site.settings, times=ground.often(20), file=file, pattern=pattern)
    followed = [Followed(*each) for each in found]
    yield _followed(what, followed)
    most = max(each.resident for each in followed)
    yield Row("  resident memory after it", followed[-1].resident, 0, "MB", note=f"at most {most:.0f} MB")


def _followed(what: str, found: list[Followed], limit: float = 0) -> Row:
    run, status, cpu, steps, _ = (median(part) for part in zip(*found, strict=True))
    note = f"run {1000 * run:.1f} ms, status {1000 * status:.1f} ms, {steps:,.0f} steps"
    return Row(what, median(each.seconds for each in found), limit, cpu=cpu, note=note)


def _whole(what: str, measured: Measured, limit: float, cores: int = 1, note: str = "") -> Row:
    """The row of a whole process, which may use so many ``cores``."""
    notes = ", ".join(filter(None, [measured.note(), note]))
    return Row(what, measured.wall, limit, note=notes, cpu=measured.cpu, cores=cores)


def _range(taken: list[Measured]) -> str:
    return f"{len(taken)} samples, {min(taken).wall:.3g} to {max(taken).wall:.3g} s"


def _ms(values: list[float], share: float) -> str:
    return f"{1000 * percentile(values, share):.2f} ms"
