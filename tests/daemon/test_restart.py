"""A restart that an operator asks for: new replicas take over one by one, and the version stays."""

from __future__ import annotations

from pathlib import Path

from tests.support.git import File
from tests.support.host_sandbox import HostSite, host_site, served
from tests.support.sandbox import eventually

LONG = 30.0
API = "workload/shop/api"


def program(name: str, replicas: int = 2) -> str:
    """A workload that is ready as soon as it runs."""
    script = ["-c", "while :; do sleep 0.1; done"]
    return served(name, replicas=replicas, command="/bin/sh", args=script, ports=None, readinessProbe=None)


FILES: dict[str, File] = {"shop/api.yaml": program("api")}


def well(site: HostSite, name: str = "api", replicas: int = 2) -> bool:
    """Whether a workload is recorded as healthy, and so many replicas of it are ready and no others there."""
    there = [each.ready for each in site.replicas(name).values()]
    return site.healthy(f"workload/shop/{name}@here") and there == [True] * replicas


def restarted(site: HostSite, before: set[str]) -> bool:
    """Whether the workload is well in replicas that are all new."""
    return well(site) and not site.replicas("api").keys() & before


def test_a_restart_replaces_every_replica_and_nothing_else(tmp_path: Path) -> None:
    with host_site(tmp_path, FILES | {"shop/web.yaml": program("web", 1)}) as site, site.daemon() as daemon:
        eventually(lambda: well(site) and well(site, "web", 1), "all is well", LONG)
        before, other = site.replicas("api"), site.replicas("web")
        assert site.run("restart", API).returncode == 0
        eventually(lambda: restarted(site, before.keys()), "new replicas took over", LONG)
        assert {each.version for each in site.replicas("api").values()} == {1}
        assert site.replicas("web") == other
        again = site.replicas("api")
        assert _count(site) == 1
        assert site.run("restart", API).returncode == 0
        eventually(lambda: restarted(site, again.keys()), "and once more", LONG)
        site.repo.commit({"shop/api.yaml": None})
        eventually(lambda: f"{API}@here" not in site.recorded(), "it is gone", LONG)
        eventually(lambda: _count(site) == 0, "and its restarts are forgotten")
        assert not [each for each in daemon.log() if each.get("level") in ("warning", "error")]


def test_a_restart_requested_without_a_daemon_is_done_when_one_starts(tmp_path: Path) -> None:
    with host_site(tmp_path, FILES) as site:
        with site.daemon() as daemon:
            eventually(lambda: well(site), "all is well", LONG)
            assert daemon.stop() == 0
        before = site.replicas("api").keys()
        assert "no daemon runs" in site.run("restart", API).stdout
        with site.daemon():
            eventually(lambda: restarted(site, before), "new replicas took over", LONG)


def _count(site: HostSite) -> int:
    with site.records() as records:
        return records.restarts.count(API)
