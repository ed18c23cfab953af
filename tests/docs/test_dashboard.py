"""The shipped dashboard: Prometheus parses its expressions, and they name what exists."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import yaml

from reconciler.api.metrics import METRICS
from reconciler.reasons import ConditionType
from tests.project.tree import ROOT
from tests.support.programs import tool

DASHBOARD = ROOT / "docs" / "monitoring" / "dashboard.json"


def expressions() -> list[str]:
    """The expression of every target of every panel."""
    return [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]


def test_the_dashboard_names_metrics_labels_and_conditions_that_exist() -> None:
    labels = {metric.name: set(metric.labels) for metric in METRICS}
    for expression in expressions():
        [name] = re.findall(r"reconciler_\w+", expression)
        assert name in labels
        grouped = {value for group in re.findall(r"by \(([^)]*)\)", expression) for value in group.split(", ")}
        assert grouped | set(re.findall(r"(\w+)=", expression)) <= labels[name], expression
        assert set(re.findall(r'kind="(\w+)"', expression)) <= {str(condition_type) for condition_type in ConditionType}


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not mine & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= mine


def test_prometheus_parses_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(expressions())]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    command = [tool("promtool", "prometheus"), "check", "rules", "--lint=none", "rules.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
