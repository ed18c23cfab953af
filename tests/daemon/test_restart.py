"""A restart that an operator asks for: new replicas take over one by one, and the version stays."""

from __future__ import annotations

from pathlib import Path

from tests.cli.desk import golden
from tests.daemon.hosting import LONG, SHOP, HostSite, host_site, program
from tests.daemon.kit import eventually

API = "workload/shop/api"
NOT_HERE = ("workload/shop/nobody", "workload/shop/halted", "workload/shop/cron", "workload/far/api")


def restarted(site: HostSite, before: set[str]) -> bool:
    """Whether the workload is well in replicas that are all new."""
    return site.well() and not site.replicas().keys() & before


def test_a_restart_replaces_every_replica_and_nothing_else(tmp_path: Path) -> None:
    with host_site(tmp_path, SHOP | {"shop/web.yaml": program("web", replicas=1)}) as site, site.daemon() as daemon:
        eventually(lambda: site.well() and site.well("web", 1), "all is well", LONG)
        before, other = site.replicas(), site.replicas("web")
        assert site.run("restart", API).returncode == 0
        eventually(lambda: restarted(site, before.keys()), "new replicas took over", LONG)
        assert {each.version for each in site.replicas().values()} == {1}
        assert site.replicas("web") == other
        again = site.replicas()
        assert _count(site) == 1
        assert site.run("restart", API).returncode == 0
        eventually(lambda: restarted(site, again.keys()), "and once more", LONG)
        site.repo.commit({"shop/api.yaml": None})
        eventually(lambda: f"{API}@here" not in site.recorded(), "it is gone", LONG)
        eventually(lambda: _count(site) == 0, "and its restarts are forgotten")
        assert not [each for each in daemon.log() if each.get("level") in ("warning", "error")]


def test_a_restart_that_nobody_heard_of_is_done_when_a_daemon_starts(tmp_path: Path) -> None:
    with host_site(tmp_path) as site:
        with site.daemon() as daemon:
            eventually(site.well, "all is well", LONG)
            assert daemon.stop() == 0
        before = site.replicas().keys()
        assert "no daemon runs" in site.run("restart", API).stdout
        with site.daemon():
            eventually(lambda: restarted(site, before), "new replicas took over", LONG)


def test_what_has_no_replicas_cannot_be_restarted(tmp_path: Path) -> None:
    stopped = program("halted").replace("capacityAI: false", "capacityAI: false, suspend: true")
    elsewhere = "kind: gvc\nname: far\nspec: {staticPlacement: {locationLinks: [//location/there]}}\n"
    locations = {"here": {"engine": "host"}, "there": {"engine": "recorded"}}
    files = SHOP | {"shop/halted.yaml": stopped, "shop/cron.yaml": CRON, "far/gvc.yaml": elsewhere}
    with host_site(tmp_path, files | {"far/api.yaml": program("api")}, locations=locations) as site, site.daemon():
        eventually(lambda: site.well() and site.applied(site.repo.git("rev-parse", "main")), "all is well", LONG)
        site.run("suspend", API, "--reason", "a look inside")
        words = (
            "gvc/shop",
            "workload/shop/nobody",
            "workload/shop/halted",
            "workload/shop/cron",
            "workload/far/api",
            API,
        )
        said = [_said(site, "restart", each) for each in words]
        site.run("resume", API)
        site.run("suspend", "main")
        said += [_said(site, "restart", API)]
        site.run("resume", "main")
        golden("restart.txt", "".join([*said, _said(site, "restart", API)]))
        assert site.run("events", API).stdout.count(" RestartRequested ") == 1


def _count(site: HostSite) -> int:
    with site.records() as records:
        return records.restarts.count(API)


def _said(site: HostSite, *words: str) -> str:
    ended = site.run(*words)
    return f"$ reconciler {' '.join(words)}\n{ended.stdout}{ended.stderr}"


CRON = """kind: workload
name: cron
spec:
  type: cron
  job: {schedule: "0 0 1 1 *"}
  containers:
    - {name: main, image: //image/cron:1, command: "true"}
"""
