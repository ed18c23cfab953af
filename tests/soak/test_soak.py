"""Random commits with kills, full disks, lost files and clock jumps: in the end nothing has leaked."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from statistics import median

import pytest

from tests.soak.chaos_sandbox import FAKETIME, ChaosSandbox, chaos
from tests.support.programs import only_root

pytestmark = only_root("a disk of its own has to be mounted")

LONG = float(os.environ.get("SOAK_SECONDS", "3600"))
STOP = 10.0
"""Seconds in which SIGTERM ends the daemon, beside what it waits for (terminationScale makes that two)."""


@pytest.fixture(autouse=True)
def _clock() -> None:
    if not FAKETIME.exists():
        missing = "libfaketime is not installed: apt-get install faketime"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)


def disturb(soak: ChaosSandbox, seconds: float, chance: random.Random, *, kills: bool) -> None:
    """Troubles for ``seconds``, with a rest after every 20 of them."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            trouble = chance.choice(soak.troubles(kills))
            soak.counts[trouble.__name__] += trouble.__name__ != "commit"
            trouble()
            time.sleep(chance.uniform(0, 0.5))
        bounded(soak)


def bounded(soak: ChaosSandbox) -> None:
    """At rest, tasks and open files are bounded by what runs."""
    sample = soak.rest()
    assert sample.tasks <= 25 + 6 * soak.load, sample.names
    assert sample.files <= 60 + 8 * soak.load, sample
    assert sample.threads <= 40, sample


@pytest.mark.slow
def test_trouble_for_a_moment_leaves_nothing_behind(tmp_path: Path) -> None:
    with chaos(tmp_path, seed=1) as soak:
        for trouble in (soak.commit, soak.commit, soak.commit, soak.kill, soak.commit, soak.kill_replicas, soak.jump):
            trouble()
        soak.fill_disk()
        bounded(soak)
        soak.stop()
        bounded(soak)
        soak.close()


@pytest.mark.slow
def test_an_hour_of_trouble_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(os.environ.get("SOAK_SEED", "1"))
    with chaos(tmp_path, seed=chance.randrange(1 << 30)) as soak:
        try:
            disturb(soak, LONG * 0.2, chance, kills=True)
            first = len(soak.samples) - 1
            disturb(soak, LONG * 0.6, chance, kills=False)
            memory = [each.memory for each in soak.samples[first]]
            disturb(soak, LONG * 0.2, chance, kills=True)
            soak.close()
        finally:
            with capsys.disabled():
                report(soak)
    assert soak.slowest_stop < STOP + 2
    quarter = len(memory) // 4
    early, late = median(memory[quarter : 2 * quarter]), median(memory[-quarter:])
    assert late < early * 1.05, f"memory grows: {early / 1024:.1f} MiB became {late / 1024:.1f} MiB"


def report(soak: ChaosSandbox) -> None:
    """The figures, for people."""
    print("\n" + ", ".join(f"{count} {name}" for name, count in sorted(soak.counts.items())))
    longest = max(soak.samples, key=len)
    for at in longest and sorted({0, len(longest) // 4, len(longest) // 2, 3 * len(longest) // 4, len(longest) - 1}):
        sample = longest[at]
        print(
            f"rest {at + 1} of {len(longest)} of the longest daemon: {sample.memory / 1024:.1f} MiB,"
            f" {sample.files} files, {sample.threads} threads, {sample.tasks} tasks"
        )
    print(f"slowest stop {soak.slowest_stop:.1f} s")
