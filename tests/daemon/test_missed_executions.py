"""Times of cron workloads that come while the daemon is down: they run only if Git still wants them then."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.sandbox import eventually

wait = partial(eventually, patience=60.0)
KEY = "workload/shop/job@here"
OTHER = "workload/shop/web@here"


def job(**spec: Any) -> str:
    """A cron workload that is due each minute."""
    container = {"name": "main", "image": "none", "command": "true"}
    spec = {"type": "cron", "containers": [container], "job": {"schedule": "* * * * *", **spec}}
    return json.dumps({"kind": "workload", "name": "job", "gvc": "shop", "spec": spec}) + "\n"


WEB = served("web", replicas=1, command="sleep", args=["1000000"], ports=None, readinessProbe=None)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[HostSandbox]:
    """One whose daemon is down, and has missed ten times."""
    with host_sandbox(tmp_path, {"shop/job.yaml": job(), "shop/web.yaml": WEB}) as sandbox:
        log = sandbox.state / "host/here/executions/shop/job.json"
        with sandbox.daemon() as daemon:
            wait(log.exists, "the schedule has begun")
            wait(lambda: sandbox.healthy(OTHER), "the other one runs")
            assert daemon.stop() == 0
        known = json.loads(log.read_bytes())
        log.write_text(json.dumps(known | {"checked": known["checked"] - 10}))
        yield sandbox


def executions(sandbox: HostSandbox) -> list[str]:
    """The executions, as recorded."""
    return [each["name"] for each in json.loads(sandbox.recorded()[KEY].state)["status"]["jobExecutions"]]


def test_a_workload_that_git_suspends_while_the_daemon_is_down_runs_no_more(sandbox: HostSandbox) -> None:
    before = executions(sandbox)
    commit = sandbox.repo.commit({"shop/job.yaml": job(suspend=True)})
    with sandbox.daemon() as daemon:
        wait(lambda: sandbox.applied(commit), "the commit is applied")
        # What is due is decided at once after the commit, and the command is performed after that.
        assert sandbox.run("command", "workload/shop/job", "runCronWorkload").returncode == 0
        wait(lambda: len(executions(sandbox)) > len(before), "an execution on demand is recorded")
        assert daemon.stop() == 0
    assert len(executions(sandbox)) == len(before) + 1
    assert "ExecutionsMissed" not in sandbox.run("events", "workload/shop/job").stdout


def test_what_was_missed_runs_after_a_failed_read_and_healing_does_not_wait(sandbox: HostSandbox) -> None:
    before = executions(sandbox)
    [file] = (sandbox.state / "host/here/run/shop/web").rglob("record.json")
    os.kill(json.loads(file.read_bytes())["pid"], signal.SIGKILL)
    sandbox.repo.path.rename(sandbox.repo.path.with_name("away"))
    with sandbox.daemon() as daemon:
        wait(lambda: len(executions(sandbox)) > len(before), "the newest missed time runs")
        wait(lambda: [each.containers[0].restarts for each in sandbox.replicas("web").values()] == [1], "web is healed")
        wait(lambda: "ExecutionsMissed" in sandbox.run("events", "workload/shop/job").stdout, "it is reported")
        assert daemon.stop() == 0
