"""Whether an object is as wanted, by the rules of kstatus; its cases are in readiness.yaml."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.engines.kubernetes.status.readiness import ReadinessState, compute_readiness
from tests.support.cases import cases

CASES = cases("kubernetes-status/readiness.yaml")


@pytest.mark.parametrize("case", CASES)
def test_an_object_is_as_its_case_expects(case: dict[str, Any]) -> None:
    part = {"kind": case["kind"], "metadata": {"name": "web"}, **case["object"]}
    if case["kind"] in ("Deployment", "StatefulSet") and "generation" not in part["metadata"]:
        part["metadata"] = {**part["metadata"], "generation": 1}
        part["status"] = {"observedGeneration": 1, **part["status"]}
    readiness = compute_readiness(part)
    assert (readiness.state, readiness.message) == (case["state"], case.get("message", ""))
    assert readiness.current is (case["state"] == "Current")


def test_every_state_is_in_a_case() -> None:
    assert {case.values[0]["state"] for case in CASES} == set(ReadinessState)
