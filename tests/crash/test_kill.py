"""A daemon that is killed at any moment, any number of times, reaches the state of an undisturbed one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.daemon_with_ledger import POINTS
from tests.crash.harness import PHASES, CrashHarness, Ending, Kill, assert_same, random_kill

WORK = 0.3
"""Seconds that a phase takes, start included."""

EXACT = (
    (Kill("begin:3"), Kill("half:40"), Kill("committed:9"), Kill("move:1")),
    (Kill("write:4"), Kill("performed:90"), Kill("moved:1")),
    (Kill("perform:7"), Kill("commit:5"), Kill(after=0.1)),
)
"""Ten deaths: at every point of the program once, and one whenever it happens."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Ending]:
    """The outcome without kills."""
    harness = CrashHarness.create(tmp_path_factory.mktemp("peace"))
    endings = harness.go_through([[] for _ in PHASES])
    assert harness.repeated == 0
    assert [len(ending.records) > 200 for ending in endings] == [True] * len(PHASES)
    return endings


def test_ten_kills_change_nothing_about_the_end(tmp_path: Path, undisturbed: list[Ending]) -> None:
    harness = CrashHarness.create(tmp_path)
    endings = harness.go_through(EXACT)
    assert_same(endings, undisturbed)
    assert harness.kills == 10
    assert set(harness.points) == set(POINTS)
    assert 0 < harness.repeated <= 8 * harness.kills


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_kills_change_nothing_about_the_end(tmp_path: Path, undisturbed: list[Ending], seed: int) -> None:
    chance = random.Random(seed)
    kills = [[random_kill(chance, WORK) for _ in range(number)] for number in (4, 3, 3)]
    harness = CrashHarness.create(tmp_path)
    assert_same(harness.go_through(kills), undisturbed)
    assert harness.kills == 10
