"""The pace of the machine is that of the time that a row took."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.bench.calibration import REFERENCE, Calibration
from tests.bench.measure import Failed
from tests.support.sandbox import eventually


def test_the_pace_is_that_of_the_rounds_since_a_time(tmp_path: Path) -> None:
    with Calibration(tmp_path) as calibration:
        first = calibration.since(0.0)
        began = time.monotonic()
        assert calibration.since(began) == first[-1:]
        later = eventually(lambda: [each for each in calibration.since(began) if each != first[-1]])
        assert calibration.since(0.0) == first + later
        assert calibration.pace(began) == later[0] / REFERENCE > 0


def test_a_benchmark_ends_where_nothing_measures_the_pace(tmp_path: Path) -> None:
    (tmp_path / "calibration").touch()
    with pytest.raises(Failed, match="nothing measures"):
        Calibration(tmp_path).since(0.0)
