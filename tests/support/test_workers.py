"""Tests that run in several processes are reported as those of one, also where a process ends amid a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.workers import VARIABLE

ROOT = Path(__file__).parents[2]

TESTS = """
import os, signal, warnings
import pytest

def note(name, *words):
    with open(name, "a") as file:
        print(os.environ["TEST_WORKER"], *words, file=file)

def test_stops():
    pytest.fail("here") if "STOP" in os.environ else None

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    yield tmp_path_factory.mktemp("shared")
    note("ended", "shared")

@pytest.mark.parametrize("number", range(30))
def test_passes(number, shared, tmp_path):
    assert tmp_path.parent == shared.parent
    note("passed", number, tmp_path.parent)

def test_fails():
    print("shown with the failure")
    assert 1 == 2

def test_warns():
    warnings.warn("this is old", DeprecationWarning)

@pytest.mark.skip(reason="for this reason")
def test_skips():
    pass

@pytest.mark.xfail(reason="for that reason")
def test_fails_as_expected():
    raise ValueError

def test_ends_its_worker():
    os.kill(os.getpid(), signal.SIGKILL)

def test_after_that():
    pass
"""


def run(path: Path, *options: str, **environ: str) -> str:
    """What pytest prints of the tests above, run by three workers in ``path``."""
    (path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.support.workers", "--workers=3"]
    inherited = {name: value for name, value in os.environ.items() if name not in {VARIABLE, "PYTEST_CURRENT_TEST"}}
    done = subprocess.run(
        [*command, "--rootdir", str(path), "-ra", f"--basetemp={path}/t", *options, "test_it.py"],
        cwd=path,
        env={**inherited, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_test_is_run_and_reported_once_with_what_it_printed(tmp_path: Path) -> None:
    printed = run(tmp_path)
    assert "2 failed, 33 passed, 1 skipped, 1 xfailed, 1 warning" in printed
    for part in (
        "\nshown with the failure",
        "E       assert 1 == 2",
        "DeprecationWarning: this is old",
        "for this reason",
    ):
        assert printed.count(part) == 1, printed
    assert "the worker that ran this test ended with -9" in printed
    passed = [line.split() for line in (tmp_path / "passed").read_text().splitlines()]
    assert sorted(int(number) for _, number, _ in passed) == [*range(30)]
    assert {place for worker, _, place in passed} == {f"{tmp_path}/t/{worker}" for worker, _, _ in passed}
    ended = (tmp_path / "ended").read_text().split()[::2]
    assert len(ended) == len(set(ended))
    assert len({worker for worker, _, _ in passed} - {*ended}) < 2, "only one that is killed leaves a fixture"


@pytest.mark.slow
def test_none_is_begun_after_the_last_failure_that_is_allowed(tmp_path: Path) -> None:
    printed = run(tmp_path, "-x", "-k", "stops or passes", STOP="1")
    assert "stopping after 1 failures" in printed
    passed = [line.split() for line in (tmp_path / "passed").read_text().splitlines()]
    assert len([worker for worker, _, _ in passed if worker == "2"]) < 2
