"""Inputs that fuzzing found once do no harm again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fuzz.targets import TARGETS
from tests.support.cases import cases


@pytest.mark.parametrize("case", cases("fuzz/inputs.yaml"))
def test_inputs_that_fuzzing_found_do_no_harm(case: dict[str, Any]) -> None:
    raw = case["raw"]
    TARGETS[case["target"]].check(raw if isinstance(raw, bytes) else raw.encode())
