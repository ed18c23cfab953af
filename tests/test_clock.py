"""The clock of the host."""

from __future__ import annotations

import subprocess
import sys

from tests.support.programs import tool

SUSPENDED = 100_000
"""Seconds that CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC, as on a machine that was suspended for so long."""


def test_measured_time_counts_while_the_machine_is_suspended() -> None:
    program = (
        "import time; from reconciler.clock import SystemClock; print(SystemClock().monotonic() - time.monotonic())"
    )
    space = [tool("unshare", "util-linux"), "--time", "--boottime", str(SUSPENDED)]
    if subprocess.run([*space, "true"], check=False, capture_output=True).returncode:
        space[1:1] = ["--map-root-user"]
    shown = subprocess.run([*space, sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert float(shown) > SUSPENDED - 1
