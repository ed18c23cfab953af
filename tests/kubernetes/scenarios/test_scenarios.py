"""Scenarios on this host and on a fake cluster: both show the same, but for the differences that are named.

``REWRITE_CASES=1`` writes the transcripts of the host; read them before you commit them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kubernetes.scenarios.differences import (
    DIFFERENCES,
    check_differences,
    list_met_differences,
    read_transcript,
)
from tests.kubernetes.scenarios.runner import ScenarioRunner, format_transcript
from tests.kubernetes.scenarios.scenario import FOLDER, Scenario, list_scenarios
from tests.kubernetes.scenarios.stages import fake_stage, host_stage

SCENARIOS = list_scenarios()


def each_scenario(is_slow: Callable[[Scenario], bool]) -> pytest.MarkDecorator:
    """Parametrizes a test by all scenarios."""
    params = [
        pytest.param(scenario, id=scenario.name, marks=[pytest.mark.slow] if is_slow(scenario) else [])
        for scenario in SCENARIOS
    ]
    return pytest.mark.parametrize("scenario", params)


@each_scenario(lambda scenario: scenario.slow)
def test_a_host_shows_what_is_written_down(scenario: Scenario, tmp_path: Path) -> None:
    with host_stage(tmp_path) as stage:
        text = format_transcript(ScenarioRunner(scenario, stage).run())
    if os.environ.get("REWRITE_CASES"):
        scenario.transcript_file.write_text(text)
    assert text == scenario.transcript_file.read_text()


@each_scenario(lambda scenario: scenario.timed)
def test_a_fake_cluster_shows_the_same(scenario: Scenario, tmp_path: Path) -> None:
    with fake_stage(tmp_path, measured=scenario.measured) as stage:
        transcript = ScenarioRunner(scenario, stage).run()
    check_differences(scenario, read_transcript(scenario.transcript_file.read_text()), transcript)


def test_a_scenario_meets_each_difference() -> None:
    assert list_met_differences() == list(DIFFERENCES)


def test_each_transcript_is_of_a_scenario() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {scenario.name for scenario in SCENARIOS}
