"""A restart that an operator asks for: new replicas take over one by one, and the version stays."""

from __future__ import annotations

from pathlib import Path

from tests.support.git import File
from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.sandbox import eventually

LONG = 30.0
API = "workload/shop/api"


def program(name: str, replicas: int = 2) -> str:
    """A workload that is ready as soon as it runs."""
    script = ["-c", "while :; do sleep 0.1; done"]
    return served(name, replicas=replicas, command="/bin/sh", args=script, ports=None, readinessProbe=None)


FILES: dict[str, File] = {"shop/api.yaml": program("api")}


def well(sandbox: HostSandbox, name: str = "api", replicas: int = 2) -> bool:
    """Whether a workload is recorded as healthy, and so many replicas of it are ready and no others there."""
    there = [each.ready for each in sandbox.replicas(name).values()]
    return sandbox.healthy(f"workload/shop/{name}@here") and there == [True] * replicas


def restarted(sandbox: HostSandbox, before: set[str]) -> bool:
    """Whether the workload is well in replicas that are all new."""
    return well(sandbox) and not sandbox.replicas("api").keys() & before


def test_a_restart_replaces_every_replica_and_nothing_else(tmp_path: Path) -> None:
    with host_sandbox(tmp_path, FILES | {"shop/web.yaml": program("web", 1)}) as sandbox, sandbox.daemon() as daemon:
        eventually(lambda: well(sandbox) and well(sandbox, "web", 1), "all is well", LONG)
        before, other = sandbox.replicas("api"), sandbox.replicas("web")
        assert sandbox.run("restart", API).returncode == 0
        eventually(lambda: restarted(sandbox, before.keys()), "new replicas took over", LONG)
        assert {replica.version for replica in sandbox.replicas("api").values()} == {1}
        assert sandbox.replicas("web") == other
        again = sandbox.replicas("api")
        assert _count(sandbox) == 1
        assert sandbox.run("restart", API).returncode == 0
        eventually(lambda: restarted(sandbox, again.keys()), "and once more", LONG)
        sandbox.repo.commit({"shop/api.yaml": None})
        eventually(lambda: f"{API}@here" not in sandbox.recorded(), "it is gone", LONG)
        eventually(lambda: _count(sandbox) == 0, "and its restarts are forgotten")
        assert not [mapping for mapping in daemon.log() if mapping.get("level") in ("warning", "error")]


def test_a_restart_requested_without_a_daemon_is_done_when_one_starts(tmp_path: Path) -> None:
    with host_sandbox(tmp_path, FILES) as sandbox:
        with sandbox.daemon() as daemon:
            eventually(lambda: well(sandbox), "all is well", LONG)
            assert daemon.stop() == 0
        before = sandbox.replicas("api").keys()
        assert "no daemon runs" in sandbox.run("restart", API).stdout
        with sandbox.daemon():
            eventually(lambda: restarted(sandbox, before), "new replicas took over", LONG)


def _count(sandbox: HostSandbox) -> int:
    with sandbox.records() as records:
        return records.restarts.count(API)
