"""Proofs of snapshots with real programs: a copy is checked as the user and with the variables of the workload."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.host_sandbox import HostSandbox, host_sandbox
from tests.support.podman import IMAGE, podman_service
from tests.support.programs import OWNER, only_root
from tests.support.sandbox import eventually

pytestmark = only_root("only root gives workloads users of their own")

DATA = "volumeset/shop/data"
WRITE = 'cd "$RECONCILER_VOLUMES/data" && id -u >>log && exec sleep 1000000'
CHECK = (
    'cd "$RECONCILER_VOLUMES/data" && echo user $(id -u) sees $(cat log) with $GREETING'
    ' && echo checked >>log && test "$(head -n 1 log)" = "$(id -u)" && test ! -e broken'
)
wait = partial(eventually, patience=120.0)


def manifest(image: str) -> str:
    """A stateful workload whose snapshots are checked, and its volume set."""
    volume = {"uri": "platform://volumeset/data", "path": "/data"}
    container = {
        "name": "main",
        "image": image,
        "command": "/bin/sh",
        "args": ["-c", WRITE],
        "volumes": [volume],
        "ports": [{"number": 8080, "protocol": "http"}],
        "env": [{"name": "GREETING", "value": "hello"}],
    }
    workload = {
        "kind": "workload",
        "name": "db",
        "gvc": "shop",
        "tags": {"reconciler/verify-snapshot": CHECK},
        "spec": {"type": "stateful", "containers": [container], "securityOptions": {"runAsUser": OWNER}},
    }
    space = {"initialCapacity": 10, "performanceClass": "general-purpose-ssd"}
    volumeset = {"kind": "volumeset", "name": "data", "gvc": "shop", "spec": space}
    return "---\n".join(json.dumps(each) + "\n" for each in (workload, volumeset))


def command(sandbox: HostSandbox, name: str, snapshot: str) -> Any:
    """Perform a command on the volume."""
    return sandbox.run("command", DATA, name, "volumeIndex=0", f"snapshotName={snapshot}", "--yes")


@pytest.mark.parametrize(
    ("runtime", "backend"),
    [
        ("process", "image-ext4"),
        pytest.param("podman", "directory", marks=pytest.mark.slow),
        pytest.param("process", "directory", marks=pytest.mark.slow),
        pytest.param("podman", "image-ext4", marks=pytest.mark.slow),
    ],
)
def test_a_copy_is_checked_as_the_workload_would_see_it(tmp_path: Path, runtime: str, backend: str) -> None:
    with ExitStack() as stack:
        settings: dict[str, Any] = {"locations": {"here": {"engine": "host", "runtime": runtime}}}
        if runtime == "podman":
            settings["podman"] = {"socket": str(stack.enter_context(podman_service()).socket)}
        host = {"volumes": backend, "diskReserve": 0}
        files = {"shop/db.yaml": manifest(IMAGE if runtime == "podman" else "none")}
        sandbox = stack.enter_context(host_sandbox(tmp_path / "site", files, host=host, **settings))
        with sandbox.daemon():
            volume = sandbox.state / "host/here/volumes/shop/data/0"
            log = volume / "log"
            wait(lambda: log.exists() and log.read_text() == f"{OWNER}\n", "the workload writes")
            assert command(sandbox, "createVolumeSnapshot", "one").returncode == 0
            # A directory cannot be frozen, so its replica starts again.
            wait(lambda: log.exists() and log.read_text() == f"{OWNER}\n" * (1 + (backend == "directory")), "it runs")
            before = sandbox.replicas("db")
            done = command(sandbox, "verifyVolumeSnapshot", "one")
            assert done.returncode == 0, done
            assert sandbox.replicas("db") == before, "its replica runs on"
            assert "checked" not in log.read_text(), "its volume is not touched"
            assert "PROVEN" in sandbox.run("snapshots", DATA).stdout
            lines = sandbox.run("logs", "workload/shop/db").stdout
            assert f"user {OWNER} sees {OWNER} with hello" in lines, lines
            (volume / "broken").touch()
            assert command(sandbox, "createVolumeSnapshot", "two").returncode == 0
            refused = command(sandbox, "verifyVolumeSnapshot", "two")
            assert refused.returncode == 1
            assert "the check of the snapshot two of volume 0 ended with 1" in refused.stdout + refused.stderr
            assert not [*(sandbox.state / "host/here/verification").rglob("*")]
