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

from tests.support.host_sandbox import HostSite, host_site, served
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
def site(tmp_path: Path) -> Iterator[HostSite]:
    """One whose daemon is down, and has missed ten times."""
    with host_site(tmp_path, {"shop/job.yaml": job(), "shop/web.yaml": WEB}) as site:
        log = site.state / "host/here/executions/shop/job.json"
        with site.daemon() as daemon:
            wait(log.exists, "the schedule has begun")
            wait(lambda: site.healthy(OTHER), "the other one runs")
            assert daemon.stop() == 0
        known = json.loads(log.read_bytes())
        log.write_text(json.dumps(known | {"checked": known["checked"] - 10}))
        yield site


def executions(site: HostSite) -> list[str]:
    """The executions, as recorded."""
    return [each["name"] for each in json.loads(site.recorded()[KEY].state)["status"]["jobExecutions"]]


def test_a_workload_that_git_suspends_while_the_daemon_is_down_runs_no_more(site: HostSite) -> None:
    before = executions(site)
    commit = site.repo.commit({"shop/job.yaml": job(suspend=True)})
    with site.daemon() as daemon:
        wait(lambda: site.applied(commit), "the commit is applied")
        # What is due is decided at once after the commit, and the command is performed after that.
        assert site.run("command", "workload/shop/job", "runCronWorkload").returncode == 0
        wait(lambda: len(executions(site)) > len(before), "an execution on demand is recorded")
        assert daemon.stop() == 0
    assert len(executions(site)) == len(before) + 1
    assert "ExecutionsMissed" not in site.run("events", "workload/shop/job").stdout


def test_what_was_missed_runs_after_a_failed_read_and_healing_does_not_wait(site: HostSite) -> None:
    before = executions(site)
    [file] = (site.state / "host/here/run/shop/web").rglob("record.json")
    os.kill(json.loads(file.read_bytes())["pid"], signal.SIGKILL)
    site.repo.path.rename(site.repo.path.with_name("away"))
    with site.daemon() as daemon:
        wait(lambda: len(executions(site)) > len(before), "the newest missed time runs")
        wait(lambda: [each.containers[0].restarts for each in site.replicas("web").values()] == [1], "web is healed")
        wait(lambda: "ExecutionsMissed" in site.run("events", "workload/shop/job").stdout, "it is reported")
        assert daemon.stop() == 0
