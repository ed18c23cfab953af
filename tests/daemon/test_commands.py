"""Commands on resources and a running daemon: it performs them at once, and those that waited when it starts."""

from __future__ import annotations

import copy
import json
import random
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.records.store import FILE, Records
from reconciler.records.tables.commands import NewCommand
from tests.support.command_sandbox import DB
from tests.support.host_sandbox import host_sandbox, shared_folder
from tests.support.sandbox import GVC, DaemonSandbox, eventually

DATA = "volumeset/shop/data"


def snapshot(name: str) -> tuple[str, ...]:
    return ("command", DATA, "createVolumeSnapshot", "location=here", "volumeIndex=0", f"snapshotName={name}")


def snapshots(sandbox: DaemonSandbox) -> list[str]:
    """The names of the snapshots of the volume, as recorded."""
    [volume] = json.loads(sandbox.recorded()[f"{DATA}@here"].state)["volumes"]
    return [each["name"] for each in volume["volumeSnapshots"]]


def test_the_daemon_performs_commands_while_others_wait_for_it(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path, {"shop/gvc.yaml": GVC, "shop/db.yaml": DB})
    sandbox.configure(sources=[sandbox.source(interval="1h")])
    with sandbox.daemon() as daemon:
        eventually(lambda: daemon.logged("reconciled"), "the volume set is applied, and its run has ended")
        done = sandbox.run(*snapshot("first"))
        assert done.returncode == 0, done
        assert "createVolumeSnapshot at here: completed: the snapshot first of volume 0 is taken" in done.stdout
        taken = sandbox.run(*snapshot("first"))
        assert (taken.returncode, "failed: SnapshotExists: volume 0 has a snapshot first" in taken.stdout) == (1, True)
        assert snapshots(sandbox) == ["first"]
        assert len(daemon.logged("reconciled")) == 1, "a command runs no source"
    waiting = sandbox.run(*snapshot("second"), "--timeout", "0.1")
    assert (waiting.returncode, "no daemon runs" in waiting.stdout) == (0, True)
    with sandbox.daemon():
        eventually(lambda: snapshots(sandbox) == ["first", "second"], "the new daemon performs it")
    listed = json.loads(sandbox.run("command", DATA, "-o", "json").stdout)["items"]
    assert [each["lifecycleStage"] for each in listed] == ["completed", "failed", "completed"]


CRON = {
    "kind": "workload",
    "name": "job",
    "gvc": "shop",
    "spec": {
        "type": "cron",
        "containers": [{"name": "main", "image": "none", "command": "sh", "args": ["-c", "test ${#TOKEN} = 7"]}],
        "job": {"schedule": "0 0 29 2 *"},
    },
}


def files_with(state: Path, text: bytes) -> list[str]:
    """The files of a state directory that contain ``text``."""
    return [str(path) for path in state.rglob("*") if path.is_file() and text in path.read_bytes()]


def test_an_execution_on_demand_gets_its_variables_and_nothing_keeps_them(tmp_path: Path) -> None:
    job, secrets = "workload/shop/job", {"TOKEN": "hunter2", **{f"KEY{each}": "sekret" * 600 for each in range(5)}}
    env = [{"name": name, "value": value} for name, value in secrets.items()]
    (tmp_path / "spec.yaml").write_text(json.dumps({"containerOverrides": [{"name": "main", "env": env}]}))
    with host_sandbox(tmp_path, {"shop/job.yaml": json.dumps(CRON)}) as sandbox, sandbox.daemon():
        eventually(lambda: f"{job}@here" in sandbox.recorded(), "the workload is applied")
        started = sandbox.run("command", job, "runCronWorkload", "--spec", str(tmp_path / "spec.yaml"))
        assert started.returncode == 0, started
        name = started.stdout.split()[-1]

        def execution() -> str:
            status = json.loads(sandbox.recorded()[f"{job}@here"].state)["status"]
            return next((each["status"] for each in status["jobExecutions"] if each["name"] == name), "")

        eventually(lambda: execution() == "Success", "the execution ends well and is recorded")
        shown = [sandbox.run(*words).stdout for words in (("command", job), ("events", job), ("describe", job))]
        assert "hunter2" not in "".join([*shown, (tmp_path / "daemon.log").read_text()])
        for text in (b"hunter2", b"sekretsekret"):
            eventually(lambda text=text: not files_with(sandbox.state, text), f"{text!r} is in no file")  # type: ignore[misc]


@pytest.mark.parametrize(("commands", "kills"), [(3, 2), pytest.param(20, 12, marks=pytest.mark.slow)])
def test_each_command_starts_one_execution_however_often_the_daemon_is_killed(
    tmp_path: Path, commands: int, kills: int
) -> None:
    job, log, chance = "workload/shop/job", shared_folder(tmp_path) / "log", random.Random(7)
    body: dict[str, Any] = copy.deepcopy(CRON)
    body["spec"]["containers"][0]["args"] = ["-c", f"echo done >> {log}"]
    with host_sandbox(tmp_path, {"shop/job.yaml": json.dumps(body)}) as sandbox:
        with sandbox.daemon():
            eventually(lambda: f"{job}@here" in sandbox.recorded(), "the workload is applied")
        with closing(Records.open(sandbox.state / FILE)) as records:
            for _ in range(commands):
                records.commands.add(NewCommand(job, "here", "runCronWorkload", {"location": "here"}, "ann"))

        def done() -> bool:
            with sandbox.records() as found:
                ended = not found.commands.open()
            return ended and len(lines()) >= commands

        def lines() -> list[str]:
            return log.read_text().splitlines() if log.exists() else []

        for _ in range(kills):
            with sandbox.daemon() as daemon:
                deadline = time.monotonic() + chance.random() * 0.3
                while time.monotonic() < deadline and not done():
                    time.sleep(0.001)
                daemon.kill()
        with sandbox.daemon():
            eventually(done, "all commands are performed")
        listed = json.loads(sandbox.run("command", job, "-o", "json").stdout)["items"]
        assert [each["lifecycleStage"] for each in listed] == ["completed"] * commands
        assert len({each["status"]["messages"][0] for each in listed}) == commands
        assert len(lines()) == commands
