"""Scenarios on real control planes: they show what a host shows, but for the differences that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.cluster.build import MODULE_FILES, NEWEST
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.scenarios.differences import check_differences, read_transcript
from tests.kubernetes.scenarios.runner import ScenarioRunner
from tests.kubernetes.scenarios.scenario import Scenario, list_scenarios
from tests.kubernetes.scenarios.stages import cluster_stage

pytestmark = pytest.mark.cluster


ON_EACH_VERSION = ("cron-commands", "failed-rollout")
"""Scenarios that older versions show, too: what controllers do differs most between versions there."""
RUNS = [
    pytest.param(minor, scenario, id=f"{minor}-{scenario.name}")
    for minor in MODULE_FILES
    for scenario in list_scenarios()
    if minor == NEWEST or scenario.name in ON_EACH_VERSION
]


@pytest.mark.parametrize(("cluster", "scenario"), RUNS, indirect=["cluster"], scope="session")
def test_a_cluster_shows_the_same(scenario: Scenario, cluster: Cluster, kubelet: Kubelet, tmp_path: Path) -> None:
    prefix = f"scenario-{scenario.name}-"
    with cluster_stage(tmp_path, cluster, kubelet, prefix, measured=scenario.measured) as stage:
        transcript = ScenarioRunner(scenario, stage).run()
    check_differences(scenario, read_transcript(scenario.transcript_file.read_text()), transcript)
