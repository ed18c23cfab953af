"""Scenarios on real control planes: they show what a host shows, but for the differences that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.scenarios.differences import check_differences, read_transcript
from tests.kubernetes.scenarios.runner import ScenarioRunner
from tests.kubernetes.scenarios.scenario import Scenario, list_scenarios
from tests.kubernetes.scenarios.stages import cluster_stage

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("scenario", list_scenarios(), ids=lambda scenario: scenario.name)
def test_a_cluster_shows_the_same(scenario: Scenario, cluster: Cluster, kubelet: Kubelet, tmp_path: Path) -> None:
    with cluster_stage(tmp_path, cluster, kubelet, f"scenario-{scenario.name}-") as stage:
        transcript = ScenarioRunner(scenario, stage).run()
    check_differences(scenario, read_transcript(scenario.transcript_file.read_text()), transcript)
