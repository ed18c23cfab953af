"""What is decided at one moment: a case for each rule of docs/platform/workload.md."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler.engines.host.decisions.decide import decide_actions
from reconciler.engines.host.decisions.progress import compute_progress
from tests.engines.host.decisions.reading import lines, replica_from, timing_from, wanted_from
from tests.support.cases import cases

FILES = ("rollout", "scaling", "ordinals", "restarts", "ending")


@pytest.mark.parametrize("case", [case for name in FILES for case in cases(f"host/{name}.yaml")])
def test_decisions_are_those_of_the_case(case: dict[str, Any]) -> None:
    replicas = [replica_from(each) for each in case.get("replicas", [])]
    decision = decide_actions(
        wanted_from(case["wanted"]), replicas, case.get("now", 1000.0), timing_from(case.get("timing"))
    )
    assert lines(decision) == case.get("acts", [])
    assert decision.wake == case.get("wake")


@pytest.mark.parametrize("case", cases("host/progress.yaml"))
def test_how_far_a_rollout_is(case: dict[str, Any]) -> None:
    spec = wanted_from(case["wanted"])
    assert spec is not None
    shown = msgspec.to_builtins(
        compute_progress(spec, [replica_from(each) for each in case.get("replicas", [])], 1000.0)
    )
    assert {name: shown[name] for name in case["progress"]} == case["progress"]
