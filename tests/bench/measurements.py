"""Measurements from within: ``python -m tests.bench.measurements NAME JSON`` prints what it found as JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

BEGAN = time.perf_counter()
WARM_UP = 5
"""Commits that are not counted: a daemon has seen some before."""


class Pauses:
    """The longest time for which nothing else could run: the collector's, and the event loop's."""

    def __init__(self) -> None:
        self.collector = 0.0
        self.loop = 0.0
        self._began = 0.0
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.collector = max(self.collector, time.perf_counter() - self._began)

    async def beat(self) -> None:
        """Watch the loop, until cancelled."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self.loop = max(self.loop, time.perf_counter() - began - 0.001)


def opened(settings_file: str) -> Any:
    """A runner over the settings, as the daemon makes it."""
    from reconciler.clock import SystemClock
    from reconciler.pipeline.runner import Runner
    from reconciler.records.store import FILE, Records
    from reconciler.settings import load_settings

    settings = load_settings(Path(settings_file))
    return Runner(settings, Records.open(settings.state / FILE), SystemClock())


def prepare(settings: str) -> dict[str, float]:
    """From nothing at all to a plan."""
    runner = opened(settings)
    prepared = runner.pipelines["main"].plan_revision(keep_cache=True)
    return {"seconds": time.perf_counter() - BEGAN, "steps": len(prepared.plan.steps)}


def restart(settings: str) -> dict[str, float]:
    """A daemon's start on state that it has, until it knows that nothing is to be done."""
    pauses = Pauses()

    async def start() -> None:
        runner = opened(settings)
        beat = asyncio.create_task(pauses.beat())
        await runner.open()
        ended = await runner.run("main", "start")
        assert ended.outcome == "unchanged", ended
        runner.flush("main", force=True)
        beat.cancel()
        pauses.runner = runner  # type: ignore[attr-defined]

    asyncio.run(start())
    seconds = time.perf_counter() - BEGAN
    gc.collect()
    return {"seconds": seconds, "resident": _resident(), "collector": pauses.collector, "loop": pauses.loop}


def poll(settings: str, times: int) -> list[float]:
    """Seconds of polls of a source that has not moved."""

    async def measure() -> list[float]:
        runner = opened(settings)
        await runner.run("main", "start")
        seconds = []
        for _ in range(times):
            began = time.perf_counter()
            assert await runner.poll("main") is None
            seconds.append(time.perf_counter() - began)
        return seconds

    return asyncio.run(measure())


def paths(settings: str, times: int) -> list[float]:
    """QueryBudget of commits that each change one file."""
    runner = opened(settings)
    line = runner.pipelines["main"]
    ids = made(line.source.settings.url, times, 1, 100_000)
    seconds = []
    for before, after in pairwise(ids):
        old, new = (line.source.repository.resolve(one).tree for one in (before, after))
        began = time.perf_counter()
        changes = line.source.repository.compare(old, new).changes
        seconds.append(time.perf_counter() - began)
        assert len(changes) == 1
    return seconds


class FollowedCommit(NamedTuple):
    """One commit followed: seconds of the run and of writing the status, CPU seconds of both, steps performed.

    ``resident`` are the megabytes of the process after it, of the last commit after the upkeep too.
    """

    run: float
    status: float
    cpu: float
    steps: int
    resident: float

    @property
    def seconds(self) -> float:
        """From the ref to the status commit."""
        return self.run + self.status


def commits(settings: str, times: int, files: int, seed: int = 0) -> list[FollowedCommit]:
    """What following each of several commits of ``files`` files takes; ``seed`` selects the files."""
    warm_up = WARM_UP if files == 1 else 1
    return _follow(settings, lambda url: made(url, times + warm_up, files, files * 1000 + seed))[-times:]


def counts(settings: str, times: int, file: str, pattern: str) -> list[FollowedCommit]:
    """What following each of several commits takes that count up the number behind ``pattern`` in ``file``."""
    from tests.bench.generate import commit_count

    def make(repository: str) -> list[str]:
        return added(repository, (partial(commit_count, Path(repository), file, pattern) for _ in range(times + 1)))

    return _follow(settings, make)[-times:]


def _follow(settings: str, make: Callable[[str], list[str]]) -> list[FollowedCommit]:
    """Every commit that ``make`` adds to the repository but the first, as a daemon follows it."""

    from reconciler.daemon.upkeep import Upkeep

    async def follow() -> list[FollowedCommit]:
        runner = opened(settings)
        upkeep = Upkeep(runner)
        repository = runner.pipelines["main"].source.settings.url
        ids = make(repository)
        await step(repository, ids[0], lambda: runner.run("main", "start"))
        runner.flush("main", force=True)
        gc.collect()
        commits_followed: list[FollowedCommit] = []
        for commit in ids[1:]:
            used = _cpu()
            run, ended = await step(repository, commit, lambda: runner.poll("main"))
            assert ended.outcome == "applied", ended
            began = time.perf_counter()
            assert runner.flush("main", force=True)
            commits_followed.append(
                FollowedCommit(run, time.perf_counter() - began, _cpu() - used, ended.steps, _resident())
            )
            upkeep.start()
        await upkeep.finish()
        upkeep.start()  # what became due during the last one
        await upkeep.finish()
        return [*commits_followed[:-1], commits_followed[-1]._replace(resident=_resident())]

    return asyncio.run(follow())


def messages(settings: str, times: int) -> list[float]:
    """CPU seconds that make the messages of a run, for each of several."""
    from reconciler.notifications.collector import Collector
    from reconciler.notifications.outcomes import RunNotice, record_notice

    runner = opened(settings)
    collector = Collector(runner.settings, runner.records, runner.clock)
    collector.open()
    collector.collect()
    taken = []
    for number in range(times):
        record_notice(runner.records, RunNotice("main", f"main@sha1:{number:040}", "failed", failed=f"{number}"))
        used = _cpu()
        collector.collect()
        taken.append(_cpu() - used)
    return taken


def growth(directory: str, change: str, count: int, times: int) -> list[float]:
    """CPU seconds of following each of several changes among ``count`` other resources."""
    from tests.cost.changes import CHANGES

    measured = CHANGES[change](Path(directory), count, True)
    taken = []
    for number in range(1, times + WARM_UP + 1):
        measured.change(number)
        before = _cpu()
        measured.follow()
        taken.append(_cpu() - before)
    return taken[-times:]


def _cpu() -> float:
    """CPU seconds of this process and of those that it waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _resident() -> float:
    """The megabytes of this process that are in memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def ingest(directory: str, lines: int) -> dict[str, float]:
    """Seconds to collect ``lines`` lines of 100 bytes that a container wrote; one check of 100 files without news."""
    from reconciler.clock import SystemClock
    from reconciler.engines.host.logs.collector import Collector
    from reconciler.engines.host.runtimes.protocol import ContainerId
    from reconciler.model.key import Key

    web = Key.parse("workload/shop/web")
    files = [(Path(directory) / f"output-{number}", ContainerId(web, f"web-{number}", "main")) for number in range(100)]
    for file, _ in files[1:]:
        file.write_bytes(b"listening\n")
    with files[0][0].open("wb") as out:
        for number in range(lines):
            what = (
                f"2026-01-31T12:00:00Z INFO GET /api/orders/{number * 7919 % 100_003} {number % 977} ms {number:08x} "
            )
            out.write(f"{what:.<99}\n".encode())

    async def collect() -> dict[str, float]:
        collector = Collector(Path(directory) / "logs", "here", SystemClock())
        for file, place in files:
            collector.watch(place, file)
        began, used = time.perf_counter(), time.process_time()
        while (await collector.collect()).behind:
            pass
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        began = time.perf_counter()
        for _ in range(100):
            await collector.collect()
        return {"seconds": seconds, "cpu": cpu, "check": (time.perf_counter() - began) / 100}

    return asyncio.run(collect())


async def step(repository: str, commit: str, run: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    """Move the branch to ``commit``, then run; the seconds of the run alone, and how it ended."""
    import pygit2

    pygit2.Repository(repository).references["refs/heads/main"].set_target(commit)
    began = time.perf_counter()
    ended = await run()
    return time.perf_counter() - began, ended


def made(repository: str, times: int, files: int, seed: int) -> list[str]:
    """The branch's commit and ``times`` further ones of ``files`` files each; the branch is left where it was."""
    from tests.bench.generate import commit_change

    return added(
        repository, (partial(commit_change, Path(repository), files, seed + number) for number in range(times))
    )


def added(repository: str, commits: Iterable[Callable[[], str]]) -> list[str]:
    """The branch's commit and those that ``commits`` make; the branch is left where it was."""
    import pygit2

    branch = pygit2.Repository(repository).references["refs/heads/main"]
    first = str(branch.target)
    ids = [first, *(commit() for commit in commits)]
    pygit2.Repository(repository).references["refs/heads/main"].set_target(first)
    return ids


NAMES: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (prepare, restart, poll, paths, commits, counts, messages, growth, ingest)
}

if __name__ == "__main__":
    print(json.dumps(NAMES[sys.argv[1]](**json.loads(sys.argv[2]))))
