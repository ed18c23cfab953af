"""A disk without room: what runs goes on, what dies is restarted, and what is shown is true."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from reconciler.records.reserve import REQUESTS_BYTES, RESERVE_BYTES
from tests.support.host_sandbox import HostSite, host_site, served
from tests.support.programs import fill, only_root, small_disk
from tests.support.sandbox import eventually

wait = partial(eventually, patience=60.0)
pytestmark = only_root("mounts a file system of its own")
PLAIN = served("plain", replicas=1, command="sleep", args=["100000"], ports=None, readinessProbe=None)


@contextlib.contextmanager
def on_small_disk(path: Path, files: dict[str, str], size: str = "40m") -> Iterator[HostSite]:
    """A site whose state directory lies on a file system of its own."""
    everything = host_site(path / "site", files, prune={"percent": 100})
    with small_disk(path / "small", f"size={size}") as small, everything as site:
        site.state = small / "state"
        site.configure(state=str(site.state))
        yield site


def killed(site: HostSite, name: str) -> int:
    """Kill one program of a workload; which one."""
    names = {each.name for each in site.replicas(name).values()}
    victim = min(pid for pid in site.programs() if replica_of(pid) in names)
    os.kill(victim, signal.SIGKILL)
    return victim


def replica_of(pid: int) -> str:
    """The replica that a process belongs to; "" where it has ended, or only begins."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    marker = next((each for each in environ if each.startswith(b"RECONCILER_CONTAINER=")), b"///")
    return marker.decode().split("/")[3]


def states(site: HostSite) -> dict[str, str]:
    """What `top` shows of each replica."""
    shown = json.loads(site.run("top", "-o", "json").stdout)
    return {each["replica"]: each["state"] for each in shown["replicas"]}


def answers(site: HostSite) -> set[str]:
    """The answers of the endpoints; a refused connection is an answer too."""
    try:
        return site.greetings("web")
    except OSError:
        return {"refused"}


def test_a_replica_that_dies_on_a_full_disk_is_restarted_and_leaves_the_endpoints(tmp_path: Path) -> None:
    files = {"shop/web.yaml": served(env={"GREETING": "well"}), "shop/plain.yaml": PLAIN}
    with on_small_disk(tmp_path, files) as site, site.daemon() as daemon:
        wait(lambda: site.healthy() and site.healthy("workload/shop/plain@here"))
        before = site.programs()
        fill(site.state)
        for name in ("web", "plain"):
            killed(site, name)
        wait(lambda: len(site.programs()) == 3 and len(site.programs().keys() - before.keys()) == 2, "both run again")
        wait(lambda: len(site.ready("web")) == 2 and answers(site) == {"well"})
        wait(lambda: [*states(site).values()] == ["Ready"] * 3, "so is the one without a probe")

        daemon.kill()
        names, victim = set(states(site)), killed(site, "web")
        # A signal takes effect a moment after it is sent.
        wait(lambda: sorted(states(site).values()).count("Ready") == 2, "the dead one is not called ready")
        assert names == set(states(site)), victim
        with site.daemon():
            wait(lambda: len(site.programs()) == 3 and len(site.ready("web")) == 2, "a new daemon does so too")
            wait(lambda: answers(site) == {"well"})
            wait(lambda: set(states(site).values()) == {"Ready"})
            fill(site.state)  # what the daemon released is taken by others at once
            former = set(site.programs())
            asked = site.run("restart", "workload/shop/plain")
            assert asked.returncode == 0, asked.stderr
            wait(lambda: len(former - set(site.programs())) == 1 and len(site.programs()) == 3, "it is restarted")


def test_a_workload_that_filled_the_disk_can_be_deleted(tmp_path: Path) -> None:
    script = "cat /dev/zero > $RECONCILER_VOLUMES/big/file; exec sleep 100000"
    volumes = [{"uri": "scratch://s", "path": "/big"}]
    plain: dict[str, Any] = {"ports": None, "readinessProbe": None}
    greedy = served("greedy", replicas=1, command="/bin/sh", args=["-c", script], volumes=volumes, **plain)
    with on_small_disk(tmp_path, {"shop/web.yaml": served(env={"GREETING": "well"})}) as site, site.daemon() as daemon:
        wait(site.healthy)
        reserve = site.state / "reserve"
        assert reserve.stat().st_size == RESERVE_BYTES
        site.repo.commit({"shop/greedy.yaml": greedy})
        wait(lambda: daemon.logged("disk", full=True), "it logs the full disk")
        wait(lambda: site.condition("DiskFull") == "true DiskFull")
        assert reserve.stat().st_size == REQUESTS_BYTES
        site.repo.commit({"shop/greedy.yaml": None, "shop/more.yaml": served("more", replicas=1)})
        wait(lambda: "workload/shop/greedy@here" not in site.recorded(), "it is deleted")
        wait(lambda: site.healthy("workload/shop/more@here"), "what waited for room comes then")
        wait(lambda: reserve.stat().st_size and not site.condition("DiskFull"))
        reasons = [json.loads(line)["reason"] for line in site.run("events", "-o", "json").stdout.splitlines()]
        assert {"DiskFull", "DiskRecovered"} <= set(reasons)
        assert answers(site) == {"well"}


def test_a_snapshot_can_be_deleted_on_a_full_disk(tmp_path: Path) -> None:
    data = {
        "kind": "volumeset",
        "name": "data",
        "gvc": "shop",
        "spec": {"initialCapacity": 10, "performanceClass": "general-purpose-ssd"},
    }
    volumes = [{"uri": "platform://volumeset/data", "path": "/data"}]
    script = "head -c 4000000 /dev/urandom > $RECONCILER_VOLUMES/data/file; exec sleep 100000"
    options: dict[str, Any] = {"ports": None, "readinessProbe": None, "volumes": volumes, "type": "stateful"}
    files = {
        "shop/data.yaml": json.dumps(data),
        "shop/db.yaml": served("db", replicas=1, command="/bin/sh", args=["-c", script], **options),
    }
    place = ("location=here", "volumeIndex=0", "snapshotName=one", "--yes", "--wait")
    with on_small_disk(tmp_path, files) as site:
        site.configure(
            host={"defaultUser": "root", "volumes": "directory", "diskReserve": 0, "terminationScale": 0.005}
        )
        with site.daemon():
            wait(lambda: site.healthy("workload/shop/db@here"))
            taken = site.run("command", "volumeset/shop/data", "createVolumeSnapshot", *place)
            assert taken.returncode == 0, taken.stdout + taken.stderr
            wait(lambda: site.healthy("workload/shop/db@here"))
            fill(site.state)
            wait(lambda: site.condition("DiskFull") == "true DiskFull" or fill(site.state))
            fill(site.state)
            gone = site.run("command", "volumeset/shop/data", "deleteVolumeSnapshot", *place)
            assert gone.returncode == 0, gone.stdout + gone.stderr
            assert not list(site.state.glob("host/here/volumes/shop/data/0.d/snapshots/*"))


def test_a_delete_without_a_daemon_needs_only_the_reserved_room(tmp_path: Path) -> None:
    files = {"shop/web.yaml": served(replicas=1, env={"GREETING": "well"}), "shop/plain.yaml": PLAIN}
    with on_small_disk(tmp_path, files) as site:
        with site.daemon():
            wait(lambda: site.healthy() and site.healthy("workload/shop/plain@here"))
        fill(site.state)
        site.repo.commit({"shop/plain.yaml": None, "shop/more.yaml": served("more", replicas=1)})
        while "workload/shop/plain@here" in site.recorded():
            done = site.run("apply")
            assert done.returncode == 1
            assert "only deletes are carried out" in done.stdout
        assert "workload/shop/more@here" not in site.recorded()
        assert len(site.programs()) == 1
