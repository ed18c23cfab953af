"""What fuzzing begins with, checked in every test run; the slow tests and `make fuzz` go on from there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.campaign import USUAL, Bounds, Campaign, Crasher, FuzzWorkspace, fuzz, missing
from tests.fuzz.seeds import write_seeds
from tests.fuzz.targets import TARGETS

SECONDS = 20
WHOLE = sum(target.share for target in TARGETS.values())
SEEDS = 25
"""Seeds of each target that every run replays, spread over all."""


@pytest.fixture
def atheris() -> None:
    """The test needs the fuzzer; without it the test skips, and fails in CI."""
    if reason := missing():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.mark.parametrize("name", TARGETS)
def test_no_seed_breaks_anything(name: str, tmp_path: Path) -> None:
    count = write_seeds(tmp_path, TARGETS[name].seeds())
    assert count > SEEDS
    for path in sorted(tmp_path.iterdir())[:: count // SEEDS]:
        TARGETS[name].check(path.read_bytes())


@pytest.mark.slow
@pytest.mark.usefixtures("atheris")
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_anything(name: str, tmp_path: Path) -> None:
    campaign = fuzz(FuzzWorkspace(name, tmp_path), SECONDS * TARGETS[name].share / WHOLE)
    assert not campaign.found, "\n".join(map(str, campaign.found))
    assert campaign.coverage > 200, campaign


def planted(name: str, tmp_path: Path, bounds: Bounds = USUAL) -> Campaign:
    return fuzz(FuzzWorkspace(f"planted-{name}", tmp_path, tmp_path), 3, bounds=bounds, most=1)


def first(campaign: Campaign) -> Crasher:
    assert campaign.found, campaign
    assert campaign.found[0].path is not None
    assert b":" not in campaign.found[0].path.read_bytes()
    return campaign.found[0]


@pytest.mark.slow
@pytest.mark.usefixtures("atheris")
def test_fuzzing_finds_an_input_that_raises(tmp_path: Path) -> None:
    found = first(planted("raises", tmp_path))
    assert "RuntimeError: a fault that was put here" in str(found)
    assert "--reproduce planted-raises" in str(found)


@pytest.mark.slow
@pytest.mark.usefixtures("atheris")
def test_fuzzing_finds_an_input_that_hangs(tmp_path: Path) -> None:
    found = first(planted("hangs", tmp_path, Bounds(seconds=1)))
    assert "timeout" in str(found.path)


@pytest.mark.slow
@pytest.mark.usefixtures("atheris")
def test_fuzzing_finds_an_input_that_takes_too_much_memory(tmp_path: Path) -> None:
    found = first(planted("grows", tmp_path, Bounds(memory=200)))
    assert "oom" in str(found.path)


@pytest.mark.slow
@pytest.mark.usefixtures("atheris")
def test_fuzzing_finds_an_input_that_ends_the_process(tmp_path: Path) -> None:
    found = first(planted("dies", tmp_path))
    assert "ended with -9" in str(found)
