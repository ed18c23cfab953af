"""What a change costs, case by case: classes, versions, refusals and holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.model.finding import Severity
from reconciler.planning.plan import Step
from reconciler.settings import LocationSettings, PruneSettings
from tests.support.cases import cases
from tests.support.pipeline import BASE, PLACES, PipelineHarness, placed, shown


def written(step: Step) -> str:
    """A step as a case writes it."""
    fields = ", ".join(f"{change.path} {change.change}" for change in step.changes)
    words = f"{step.action} {placed(step)} v{step.version}" + (f": {fields}" if fields else "")
    return f"{words}, hold: {step.hold}" if step.hold else words


@pytest.mark.parametrize("case", cases("planning/changes.yaml"))
def test_a_change_plans_the_steps_of_its_case(case: dict[str, Any], tmp_path: Path) -> None:
    prune = PruneSettings(**case.get("prune", {}))
    bound = {place: LocationSettings("recorded") for place in case.get("settings_before", PLACES)}
    harness = PipelineHarness(
        tmp_path,
        {"shop/gvc.yaml": BASE, "shop/all.yaml": case["before"]},
        locations=bound,
        prune=prune,
        external=("//location/there",),
    )
    harness.applied()
    harness.commit({"shop/gvc.yaml": case.get("gvc", BASE), "shop/all.yaml": case["after"]})
    if "settings_before" in case:
        harness.settings = msgspec.structs.replace(harness.settings, locations=harness.places)
        harness.pipeline = harness.new_pipeline()
    prepared = harness.prepare()
    errors = [finding for finding in prepared.findings if finding.severity is Severity.ERROR]
    assert shown(errors) == case.get("findings", [])
    assert (prepared.plan is None) == ("findings" in case)
    if prepared.plan is not None:
        assert [written(step) for step in prepared.plan.steps] == case["steps"]
