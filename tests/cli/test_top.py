"""`reconciler top`: the replicas on this host, how they are, and what they use."""

from __future__ import annotations

import grp
import json
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.decisions.replica import Ended, Phase, Replica, ReplicaContainer
from reconciler.model.key import Key
from tests.cli.test_readers import GROUP, becoming_another, member
from tests.support.command_sandbox import SETTINGS, golden, here
from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.sandbox import eventually
from tests.support.terminal import terminal

RUNNING, WAITING = Phase.RUNNING, Phase.WAITING
ON_HOST = SETTINGS.replace(
    "  here: {engine: recorded}", "  here: {engine: host, runtime: process}\n  near: {engine: host, runtime: process}"
)
LONG = 30.0


def replica(name: str, *containers: ReplicaContainer, **more: object) -> Replica:
    """A replica of shop/api, 330 s old."""
    key = Key.parse(str(more.pop("key", "workload/shop/api")))
    fields = {"version": 3, "config_hash": "", "created": time.monotonic() - 330, **more}
    return Replica(name, key, containers=containers, **fields)  # type: ignore[arg-type]


def replicas() -> list[tuple[str, Replica]]:
    """Replicas in every state, each with its location. No program runs, so that the ready ones may be dead."""
    over = Ended(3, 0.0, "Error", "no config")
    well = ReplicaContainer("main", RUNNING, ready=True)
    return [
        ("here", replica("api-b", well, ReplicaContainer("side", RUNNING, ready=True, restarts=2), ready_since=1.0)),
        ("here", replica("api-c", ReplicaContainer("main", RUNNING), version=4, ports={8080: 20_001, 9000: 20_002})),
        ("here", replica("api-d", ReplicaContainer("main", RUNNING, message="HTTP 503\x1b[2J"))),
        ("here", replica("api-e", ReplicaContainer("main", WAITING, failures=2, restarts=7, last=over))),
        ("here", replica("api-f", well, ready_since=1.0, ending=2.0, reason="ScaledDown")),
        ("near", replica("api-a", well, ready_since=1.0)),
        ("near", replica("db-0", well, key="workload/blog/db", ready_since=1.0, created=time.monotonic() - 90_000)),
        (
            "near",
            replica(
                "web-a", ReplicaContainer("main", WAITING), key="workload/shop/web", created=time.monotonic() - 18_100
            ),
        ),
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with settings for two locations on this host, and a state directory with replicas."""
    (tmp_path / "settings.yaml").write_text(ON_HOST)
    for location, each in replicas():
        ReplicaStore(tmp_path / "state" / "host" / location / "replicas").save(each)
    return tmp_path


def test_every_replica_is_a_line_in_order_of_its_workload(place: Path) -> None:
    result = here("top", cwd=place)
    assert (result.code, result.err) == (0, "")
    golden("top.txt", result.out)


def test_json_shows_the_same_as_text(place: Path) -> None:
    rows = here("top", "-o", "json", "--gvc", "shop", cwd=place).json["replicas"]
    assert [each["replica"] for each in rows] == ["api-b", "api-c", "api-d", "api-e", "api-f", "api-a", "web-a"]
    age = rows[1].pop("ageSeconds")
    assert 330 <= age < 400
    assert rows[1] == {
        "workload": "workload/shop/api",
        "location": "here",
        "replica": "api-c",
        "version": 4,
        "state": "Loading",
        "message": "",
        "restarts": 0,
        "cpuMillicores": None,
        "memoryBytes": None,
        "ports": {"8080": 20_001, "9000": 20_002},
    }


def test_top_reports_a_host_without_replicas(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    result = here("top", cwd=tmp_path)
    assert (result.code, result.out) == (0, "")
    assert "the settings bind no location to the engine host" in result.err
    assert here("top", "-o", "json", cwd=tmp_path).json == {"replicas": []}
    (tmp_path / "settings.yaml").write_text(ON_HOST)
    result = here("top", cwd=tmp_path)
    assert (result.code, result.out, result.err) == (0, "", "no replicas run here\n")


def test_top_shows_the_use_of_processes_and_redraws_in_place(tmp_path: Path) -> None:
    files = {"shop/web.yaml": served("web", replicas=1), "shop/busy.yaml": busy()}
    with host_sandbox(tmp_path, files) as sandbox, sandbox.daemon():
        eventually(lambda: sandbox.healthy() and sandbox.healthy("workload/shop/busy@here"), "all is well", LONG)
        found = {each["workload"]: each for each in _replicas(sandbox)}
        loop, web = found["workload/shop/busy"], found["workload/shop/web"]
        assert loop["cpuMillicores"] > 2 * web["cpuMillicores"]
        assert web["memoryBytes"] > 2**20
        assert (web["state"], list(web["ports"])) == ("Ready", ["8080"])
        _, port = sandbox.ready("web")[0].split(":")
        with terminal([*sandbox.command, "top", "--interval", "0.1"], sandbox.environ) as live:
            first = live.until(lambda screen: f"{port}->8080" in screen, "the table")
            assert len(first.splitlines()) == 3
            sandbox.repo.commit({"shop/busy.yaml": None})
            eventually(lambda: not sandbox.replicas("busy"), "it is gone", LONG)
            live.until(lambda screen: "shop/busy" not in screen, "the table without it")
            live.process.send_signal(signal.SIGINT)
            assert [line.split()[0] for line in live.ended().splitlines()] == ["WORKLOAD", "shop/web"]
            assert live.process.returncode == 130
            assert live.written.count("\x1b[?25l") == live.written.count("\x1b[?25h") == 1


def test_top_shows_replicas_to_a_reader_with_another_boot_id(tmp_path: Path) -> None:
    with host_sandbox(tmp_path, {"shop/web.yaml": served("web", replicas=1)}) as sandbox:
        with sandbox.daemon():
            eventually(sandbox.healthy, "all is well", LONG)
        [begun] = (sandbox.state / "host/here/run").rglob("record.json")
        former = begun.rename(sandbox.path / "former")
        [row] = _replicas(sandbox)
        assert (row["state"], row["memoryBytes"]) == ("Unknown", None), "nothing shows that it lives"
        former.rename(begun)
        here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        written = [path for path in (sandbox.state / "host").rglob("*.json") if here in path.read_text()]
        assert {path.name == "record.json" for path in written} == {True, False}
        for path in written:
            path.write_text(path.read_text().replace(here, "another"))
        [row] = _replicas(sandbox)
        assert (row["state"], row["memoryBytes"] > 2**20) == ("Ready", True)


@becoming_another
def test_readers_are_shown_the_same() -> None:
    path = Path(tempfile.mkdtemp(prefix="reconciler-test-"))
    path.chmod(0o755)
    try:
        with (
            host_sandbox(path, {"shop/web.yaml": served("web", replicas=1)}, readers=GROUP) as sandbox,
            sandbox.daemon(),
        ):
            sandbox.settings_file.chmod(0o644)
            eventually(sandbox.healthy, "all is well", LONG)
            asked = member(sandbox, "top", "-o", "json")
            assert (asked.returncode, asked.stderr) == (0, ""), asked.stderr
            [found] = json.loads(asked.stdout)["replicas"]
            assert (found["state"], found["memoryBytes"] > 0) == ("Ready", True)
            refused = member(sandbox, "top", groups=[grp.getgrnam("nogroup").gr_gid])
            assert (refused.returncode, f"member of the group {GROUP}" in refused.stderr) == (1, True)
    finally:
        shutil.rmtree(path)


def busy() -> str:
    """A workload that never rests."""
    script = ["-c", "while :; do :; done"]
    return served("busy", replicas=1, command="/bin/sh", args=script, ports=None, readinessProbe=None)


def _replicas(sandbox: HostSandbox) -> list[dict[str, int]]:
    result: subprocess.CompletedProcess[str] = sandbox.run("top", "-o", "json")
    return list(json.loads(result.stdout)["replicas"])
