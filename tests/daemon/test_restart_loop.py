"""Stateful replicas with exec probes, restarted again and again: no probe outlives its start, and SIGTERM works."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.sandbox import eventually

NAMES = ("ant", "bee", "cat")
PATIENCE = 60.0
PROBE = {"exec": {"command": ["true"]}, "periodSeconds": 1}
LOOP = ["-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]


def stateful(name: str) -> str:
    """Two replicas with identities, probed by programs."""
    probes = {"readinessProbe": PROBE, "livenessProbe": PROBE}
    return served(name, command="/bin/sh", args=LOOP, ports=None, type="stateful", **probes)


def well(sandbox: HostSandbox, name: str) -> bool:
    """Whether both replicas are ready and recorded so."""
    return sandbox.healthy(f"workload/shop/{name}@here") and all(each.ready for each in sandbox.replicas(name).values())


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.0, pytest.param(120.0, marks=pytest.mark.slow)])
def test_restarts_in_a_loop_leave_nothing_that_holds_up_sigterm(tmp_path: Path, seconds: float) -> None:
    files = {f"shop/{name}.yaml": stateful(name) for name in NAMES}
    with host_sandbox(tmp_path, files, host={"terminationScale": 0.001}) as sandbox, sandbox.daemon() as daemon:
        eventually(lambda: all(well(sandbox, name) for name in NAMES), "all are ready", PATIENCE)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for name in NAMES:
                assert sandbox.run("restart", f"workload/shop/{name}").returncode == 0
        eventually(lambda: all(well(sandbox, name) for name in NAMES), "all are ready again", PATIENCE)
        assert daemon.stop() == 0
        assert not daemon.logged("tasks_abandoned")
        assert not daemon.logged("exit_forced")
