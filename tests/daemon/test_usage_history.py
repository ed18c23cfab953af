"""What workloads used, as people read it: measured by the daemon, kept over its restart, gone with the workload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.host_sandbox import HostSandbox, fetch, host_sandbox, served
from tests.support.sandbox import eventually

WEB = "workload/shop/web"


def read_points(sandbox: HostSandbox, *options: str) -> list[dict[str, Any]]:
    """The points of the workload."""
    done = sandbox.run("usage", WEB, "-o", "json", *options)
    assert done.returncode == 0, done.stderr
    points: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return points


def test_what_a_workload_used_outlives_the_daemon_and_ends_with_the_workload(tmp_path: Path) -> None:
    with host_sandbox(tmp_path, {"shop/web.yaml": served("web")}) as sandbox:
        with sandbox.daemon():
            eventually(sandbox.healthy, "web is healthy")
            eventually(lambda: read_points(sandbox), "a point is measured", 60)
        (point, *_) = read_points(sandbox)
        assert (point["location"], point["replicasWanted"]) == ("here", 2)
        assert point["cpuMillicores"] >= 0
        assert point["memoryBytes"] > 1_000_000
        assert "2/2" in sandbox.run("usage", WEB).stdout
        with sandbox.daemon():
            eventually(sandbox.healthy, "web is healthy again")
            assert read_points(sandbox)[0] == point
            sandbox.repo.commit({"shop/web.yaml": None}, "Delete web")
            eventually(lambda: f"{WEB}@here" not in sandbox.recorded(), "web is gone")
            eventually(
                lambda: not list((sandbox.state / "host/here/usage-history").rglob("web")), "its points are gone"
            )
        assert sandbox.run("usage", WEB).returncode == 1


def test_haproxy_counts_requests_and_what_they_take(tmp_path: Path) -> None:
    bound = {"here": {"engine": "host", "dataplane": "haproxy"}}
    sandboxed = host_sandbox(tmp_path, {"shop/web.yaml": served("web", replicas=1)}, locations=bound)
    with sandboxed as sandbox, sandbox.daemon():
        eventually(sandbox.healthy, "web is healthy")

        def is_counted() -> bool:
            fetch(sandbox.address())
            points = read_points(sandbox)
            return any(point["requestsPerSecond"] and point["latencyMilliseconds"] is not None for point in points)

        eventually(is_counted, "requests are counted", 150)
