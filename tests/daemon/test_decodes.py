"""A workload's body is decoded once on its way from a commit to a running process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.sandbox import ROOT

DATA = "kind: volumeset\nname: data\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
MOUNTED = [{"uri": "platform://volumeset/data", "path": "/data"}]


def decodes(sandbox: HostSandbox) -> int:
    """How often one `reconciler apply` decodes the body of the workload web."""
    command = [sys.executable, "-m", "tests.daemon.count_decodes", "apply"]
    environ = {**os.environ, **sandbox.environ}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("mounting", [False, True], ids=["plain", "mounting"])
def test_the_body_of_a_new_workload_is_decoded_once(tmp_path: Path, mounting: bool) -> None:
    with host_sandbox(tmp_path, {"shop/data.yaml": DATA}) as sandbox:
        assert decodes(sandbox) == 0
        spec: dict[str, Any] = {"ports": None, "readinessProbe": None}
        spec |= {"type": "stateful", "volumes": MOUNTED} if mounting else {}
        sandbox.repo.commit({"shop/web.yaml": served(replicas=1, command="sleep", args=["1000"], **spec)})
        assert decodes(sandbox) == 1
        assert list(sandbox.programs().values())
