"""The shipped alert rules: each fires when it should, and names what exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from reconciler.api.metrics import METRICS
from reconciler.reasons import ConditionType, Reason
from tests.project.tree import ROOT
from tests.support.programs import tool

RULES = ROOT / "docs" / "monitoring" / "alerts.yaml"
CASES = Path(__file__).parents[1] / "cases" / "monitoring" / "alerts.yaml"


def rules() -> list[dict[str, str]]:
    """Every shipped rule."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_alerts_name_metrics_conditions_and_reasons_that_exist() -> None:
    metrics = {metric.name for metric in METRICS}
    for rule in rules():
        named = set(re.findall(r"reconciler_\w+", rule["expr"]))
        assert named
        assert named <= metrics
        assert set(re.findall(r'kind="(\w+)"', rule["expr"])) <= {
            str(condition_type) for condition_type in ConditionType
        }
        assert set(re.findall(r'reason="(\w+)"', rule["expr"])) <= {str(reason) for reason in Reason}


def test_each_alert_is_tested_firing_and_silent() -> None:
    cases = [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if "exp_alerts" in case} == names
    assert {case["alertname"] for case in cases if "exp_alerts" not in case} == names


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_bytes(RULES.read_bytes())
    (tmp_path / "cases.yaml").write_bytes(CASES.read_bytes())
    command = [tool("promtool", "prometheus"), "test", "rules", "cases.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
