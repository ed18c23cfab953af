"""The pace of the machine is that of the time that a row took, and nothing measures it after the benchmark."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bench.calibration import LEAST_ROUNDS, REFERENCE, Calibration
from tests.bench.measure import ROOT, Failed
from tests.support.sandbox import eventually

KILLED = """import os, sys
from pathlib import Path
from tests.bench.calibration import Calibration
with Calibration(Path(sys.argv[1])) as calibration:
    print(calibration.process.pid, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_the_pace_is_that_of_the_rounds_since_a_time(tmp_path: Path) -> None:
    loads = [REFERENCE * number for number in range(1, 21)]
    # They ended before this machine started, so those of the process follow.
    earlier = "".join(f"{number - 20.0} {load}\n" for number, load in enumerate(loads))
    (tmp_path / "calibration").write_text(earlier)
    with Calibration(tmp_path) as calibration:
        assert calibration.since(-10.0)[:10] == loads[10:]
        assert len(calibration.since(time.monotonic() + 1000)) == LEAST_ROUNDS
        assert eventually(lambda: calibration.since(-1000.0)[20:], "a round is measured")[0] > 0
        assert calibration.pace(-1000.0) < 20


def test_a_benchmark_whose_pace_nothing_measures_fails(tmp_path: Path) -> None:
    with Calibration(tmp_path) as calibration:
        calibration.since(0.0)
        assert calibration.process is not None
        calibration.process.kill()
        calibration.process.wait()
        with pytest.raises(Failed, match="nothing measures"):
            calibration.since(0.0)


def test_nothing_measures_the_pace_after_a_benchmark_that_is_killed(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    process = Path(f"/proc/{int(done.stdout)}/cmdline")
    eventually(lambda: not process.exists() or b"calibration" not in process.read_bytes(), "it ends")
