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
from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.programs import fill, only_root, small_disk
from tests.support.sandbox import eventually

wait = partial(eventually, patience=60.0)
pytestmark = only_root("mounts a file system of its own")
PLAIN = served("plain", replicas=1, command="sleep", args=["100000"], ports=None, readinessProbe=None)


@contextlib.contextmanager
def on_small_disk(path: Path, files: dict[str, str], size: str = "40m") -> Iterator[HostSandbox]:
    """A sandbox whose state directory lies on a file system of its own."""
    everything = host_sandbox(path / "site", files, prune={"percent": 100})
    with small_disk(path / "small", f"size={size}") as small, everything as sandbox:
        sandbox.state = small / "state"
        sandbox.configure(state=str(sandbox.state))
        yield sandbox


def killed(sandbox: HostSandbox, name: str) -> int:
    """Kill one program of a workload; which one."""
    names = {each.name for each in sandbox.replicas(name).values()}
    victim = min(pid for pid in sandbox.programs() if replica_of(pid) in names)
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


def states(sandbox: HostSandbox) -> dict[str, str]:
    """What `top` shows of each replica."""
    shown = json.loads(sandbox.run("top", "-o", "json").stdout)
    return {each["replica"]: each["state"] for each in shown["replicas"]}


def answers(sandbox: HostSandbox) -> set[str]:
    """The answers of the endpoints; a refused connection is an answer too."""
    try:
        return sandbox.greetings("web")
    except OSError:
        return {"refused"}


def test_a_replica_that_dies_on_a_full_disk_is_restarted_and_leaves_the_endpoints(tmp_path: Path) -> None:
    files = {"shop/web.yaml": served(env={"GREETING": "well"}), "shop/plain.yaml": PLAIN}
    with on_small_disk(tmp_path, files) as sandbox, sandbox.daemon() as daemon:
        wait(lambda: sandbox.healthy() and sandbox.healthy("workload/shop/plain@here"))
        before = sandbox.programs()
        fill(sandbox.state)
        for name in ("web", "plain"):
            killed(sandbox, name)
        wait(
            lambda: len(sandbox.programs()) == 3 and len(sandbox.programs().keys() - before.keys()) == 2,
            "both run again",
        )
        wait(lambda: len(sandbox.ready("web")) == 2 and answers(sandbox) == {"well"})
        wait(lambda: [*states(sandbox).values()] == ["Ready"] * 3, "so is the one without a probe")

        daemon.kill()
        names, victim = set(states(sandbox)), killed(sandbox, "web")
        # A signal takes effect a moment after it is sent.
        wait(lambda: sorted(states(sandbox).values()).count("Ready") == 2, "the dead one is not called ready")
        assert names == set(states(sandbox)), victim
        with sandbox.daemon():
            wait(lambda: len(sandbox.programs()) == 3 and len(sandbox.ready("web")) == 2, "a new daemon does so too")
            wait(lambda: answers(sandbox) == {"well"})
            wait(lambda: set(states(sandbox).values()) == {"Ready"})
            fill(sandbox.state)  # what the daemon released is taken by others at once
            former = set(sandbox.programs())
            asked = sandbox.run("restart", "workload/shop/plain")
            assert asked.returncode == 0, asked.stderr
            wait(lambda: len(former - set(sandbox.programs())) == 1 and len(sandbox.programs()) == 3, "it is restarted")


def test_a_workload_that_filled_the_disk_can_be_deleted(tmp_path: Path) -> None:
    script = "cat /dev/zero > $RECONCILER_VOLUMES/big/file; exec sleep 100000"
    volumes = [{"uri": "scratch://s", "path": "/big"}]
    plain: dict[str, Any] = {"ports": None, "readinessProbe": None}
    greedy = served("greedy", replicas=1, command="/bin/sh", args=["-c", script], volumes=volumes, **plain)
    with (
        on_small_disk(tmp_path, {"shop/web.yaml": served(env={"GREETING": "well"})}) as sandbox,
        sandbox.daemon() as daemon,
    ):
        wait(sandbox.healthy)
        reserve = sandbox.state / "reserve"
        assert reserve.stat().st_size == RESERVE_BYTES
        sandbox.repo.commit({"shop/greedy.yaml": greedy})
        wait(lambda: daemon.logged("disk", full=True), "it logs the full disk")
        wait(lambda: sandbox.condition("DiskFull") == "true DiskFull")
        assert reserve.stat().st_size == REQUESTS_BYTES
        sandbox.repo.commit({"shop/greedy.yaml": None, "shop/more.yaml": served("more", replicas=1)})
        wait(lambda: "workload/shop/greedy@here" not in sandbox.recorded(), "it is deleted")
        wait(lambda: sandbox.healthy("workload/shop/more@here"), "what waited for room comes then")
        wait(lambda: reserve.stat().st_size and not sandbox.condition("DiskFull"))
        reasons = [json.loads(line)["reason"] for line in sandbox.run("events", "-o", "json").stdout.splitlines()]
        assert {"DiskFull", "DiskRecovered"} <= set(reasons)
        assert answers(sandbox) == {"well"}


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
    arguments = ("location=here", "volumeIndex=0", "snapshotName=one", "--yes", "--wait")
    with on_small_disk(tmp_path, files) as sandbox:
        sandbox.configure(
            host={"defaultUser": "root", "volumes": "directory", "diskReserve": 0, "terminationScale": 0.005}
        )
        with sandbox.daemon():
            wait(lambda: sandbox.healthy("workload/shop/db@here"))
            taken = sandbox.run("command", "volumeset/shop/data", "createVolumeSnapshot", *arguments)
            assert taken.returncode == 0, taken.stdout + taken.stderr
            wait(lambda: sandbox.healthy("workload/shop/db@here"))
            fill(sandbox.state)
            wait(lambda: sandbox.condition("DiskFull") == "true DiskFull" or fill(sandbox.state))
            fill(sandbox.state)
            gone = sandbox.run("command", "volumeset/shop/data", "deleteVolumeSnapshot", *arguments)
            assert gone.returncode == 0, gone.stdout + gone.stderr
            assert not list(sandbox.state.glob("host/here/volumes/shop/data/0.d/snapshots/*"))


def test_a_delete_without_a_daemon_needs_only_the_reserved_room(tmp_path: Path) -> None:
    files = {"shop/web.yaml": served(replicas=1, env={"GREETING": "well"}), "shop/plain.yaml": PLAIN}
    with on_small_disk(tmp_path, files) as sandbox:
        with sandbox.daemon():
            wait(lambda: sandbox.healthy() and sandbox.healthy("workload/shop/plain@here"))
        fill(sandbox.state)
        sandbox.repo.commit({"shop/plain.yaml": None, "shop/more.yaml": served("more", replicas=1)})
        while "workload/shop/plain@here" in sandbox.recorded():
            done = sandbox.run("apply")
            assert done.returncode == 1
            assert "only deletes are carried out" in done.stdout
        assert "workload/shop/more@here" not in sandbox.recorded()
        assert len(sandbox.programs()) == 1
