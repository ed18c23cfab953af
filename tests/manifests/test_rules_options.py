"""Rules of options, schedules, rollouts, firewalls and queries: what no single example can show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.manifests.rule_check import check_rules
from reconciler.model.key import Kind
from reconciler.review.folder import check_folder
from tests.support.cases import cases
from tests.support.rule_cases import AROUND, DIALECT

REFUSED = {
    ("serverless", "latency"),
    ("standard", "concurrency"),
    ("stateful", "concurrency"),
}
"""docs/platform/workload.md#scaling-strategies; and a workload without requests has none to count."""


def broken_rules(spec: dict[str, Any], kind: Kind = Kind.WORKLOAD) -> list[str]:
    """The ids of the rules that a manifest with this body breaks."""
    return [rule.id for rule, _ in check_rules(kind, {"spec": spec}).flaws]


@pytest.mark.parametrize("case", cases("manifests/torn-options.yaml"))
def test_a_value_of_the_wrong_type_causes_no_further_finding(case: dict[str, Any], tmp_path: Path) -> None:
    tmp_path.joinpath("manifest.yaml").write_text(case["document"])
    found = check_folder(tmp_path, DIALECT, AROUND).findings
    assert len(found) == case["faults"], found


@pytest.mark.parametrize("metric", ["disabled", "concurrency", "rps", "cpu", "memory", "latency"])
@pytest.mark.parametrize("type_", ["serverless", "standard", "stateful", "cron"])
def test_each_type_follows_the_metrics_that_it_can(type_: str, metric: str) -> None:
    spec = {"type": type_, "defaultOptions": {"autoscaling": {"metric": metric}}}
    assert ("autoscaling-metric" in broken_rules(spec)) == ((type_, metric) in REFUSED)


@pytest.mark.parametrize("metric", ["disabled", "concurrency", "rps", "cpu", "memory", "latency", ""])
@pytest.mark.parametrize("type_", ["serverless", "standard", "stateful", "cron"])
def test_only_a_serverless_workload_that_counts_requests_scales_to_zero(type_: str, metric: str) -> None:
    scaling = {"minScale": 0} | ({"metric": metric} if metric else {})
    spec = {"type": type_, "defaultOptions": {"autoscaling": scaling}}
    assert ("scale-to-zero" in broken_rules(spec)) == (
        type_ != "serverless" or metric not in ("concurrency", "rps", "")
    )


@pytest.mark.parametrize("surge", [0, "0", "0%", "00%", 1, "1", "25%", None])
@pytest.mark.parametrize("missing", [0, "0", "0%", 1, "10%", None])
def test_a_rollout_without_an_extra_replica_is_noticed(surge: int | str, missing: int | str) -> None:
    both = {"maxSurgeReplicas": surge, "maxUnavailableReplicas": missing}
    rollout = {field: value for field, value in both.items() if value is not None}
    stuck = surge in (0, "0", "0%", "00%") and missing in (0, "0", "0%", None)
    assert ("rollout-unavailable" in broken_rules({"type": "standard", "rolloutOptions": rollout})) == stuck


def test_a_schedule_of_any_length_is_judged() -> None:
    minutes = ",".join(["5"] * 100_000)
    assert broken_rules({"type": "cron", "job": {"schedule": f"{minutes} 0 1 2 *"}}) == []
    assert broken_rules({"type": "cron", "job": {"schedule": f"{minutes} 0 30 2 *"}}) == ["cron-never"]
    assert broken_rules({"type": "cron", "job": {"schedule": f"{minutes},61 0 1 2 *"}}) == ["cron-schedule"]
