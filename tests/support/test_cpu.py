"""The budget of CPU seconds: printed on a machine of a person, and enforced in CI."""

from __future__ import annotations

import sys

import pytest

from tests.support.cpu import FILE, main

WORK = (
    sys.executable,
    "-c",
    f"import os; print(len([*range(10**6)])); open(os.environ[{FILE!r}], 'w').write("
    """'{"total": 9, "tests": {"tests/api/test_a.py::test_x": 8.0, "tests/cli/test_b.py::test_y": 1.0}}')""",
)


def test_a_run_within_the_tolerance_passes_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert main("1000000", *WORK) == 0


def test_a_run_over_the_budget_passes_outside_ci(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert main("0", *WORK) == 0
    assert "budget 0 s, at " in capsys.readouterr().out


def test_a_run_over_the_budget_fails_in_ci_and_names_the_dearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    assert main("0", *WORK) == 1
    assert capsys.readouterr().err == (
        "This is more than 1.3 times the budget there. The dearest are the folders tests/api (8.0 s), "
        "tests/cli (1.0 s), and the tests tests/api/test_a.py::test_x (8.0 s), tests/cli/test_b.py::test_y (1.0 s).\n"
    )
    assert main("0", sys.executable, "-c", "raise SystemExit(3)") == 3
