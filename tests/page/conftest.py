"""One daemon with its page, and one Chromium, for all tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.notifications.receiver import Receiver
from tests.page.site import PICTURES, Site
from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.processes import free_ports
from tests.support.sandbox import eventually
from tests.support.waiting import serving

ACCESS = """kind: serviceaccount
name: viewer
---
kind: serviceaccount
name: operator
---
kind: policy
name: operators-edit
targetKind: workload
target: all
bindings: [{permissions: [edit, exec, readLogs, connect], principalLinks: [//serviceaccount/operator]}]
---
kind: policy
name: operators-run-commands-on-volumes
targetKind: volumeset
target: all
bindings: [{permissions: [edit, exec], principalLinks: [//serviceaccount/operator]}]
---
kind: secret
name: db
type: dictionary
data: {password: hunter2-hunter2}
---
kind: group
name: viewers
memberLinks: [//serviceaccount/viewer, //serviceaccount/operator]
"""
DATA = """kind: volumeset
name: data
gvc: shop
spec: {fileSystemType: ext4, initialCapacity: 10, performanceClass: general-purpose-ssd}
"""
FAILING = """import sys
print("INFO loads the report", flush=True)
print("level=warning msg='the report is old'", flush=True)
def read_report():
    raise ValueError("<script>alert(1)</script> is no report")
read_report()
"""
FLOOD = "for i in 1 2 3 4 5 6; do seq -f 'line %g' $((i * 400 - 399)) $((i * 400)); sleep 0.6; done"
"""2,400 lines, not so many at once that a page leaves some out."""
HOSTILE = "Make the greeting <script>alert(1)</script> \u202egnp.exe\u202c shorter"
"""The message of a commit, which is hostile to a page."""


def make_job(name: str, **more: Any) -> str:
    """A cron workload."""
    plain: dict[str, Any] = {"type": "cron", "ports": None, "readinessProbe": None, "defaultOptions": {}}
    return served(name, job={"schedule": "30 4 * * 1"}, **plain, **more)


TEAMS = tuple(f"team-{number:02}" for number in range(12))
"""Groups in a file each, so that a difference has more files than one page shows."""
NEWER_REPORT = make_job("report", args=["-c", FAILING], env={"SHOP": "shop"})
"""The second version of the report."""


def make_store(name: str, volume_set: str) -> str:
    """A stateful workload with a volume."""
    volumes = [{"uri": f"platform://volumeset/{volume_set}", "path": "/data"}]
    return served(name, replicas=1, type="stateful", volumes=volumes)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A Chromium that runs until the end: Debian's."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed: tests/setup-debian.sh page")
    from playwright.sync_api import sync_playwright

    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    with sync_playwright() as playwright:
        # The tests may run as root, where Chromium has no sandbox.
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


def make_settings(path: Path, receiver: Receiver) -> dict[str, Any]:
    """Settings with an API, and messages to ``receiver``."""
    url, secret = path / "url", path / "secret"
    url.write_text(receiver.url)
    secret.write_text("s" * 32)
    return {
        "api": {"address": f"127.0.0.1:{free_ports(1)[0]}"},
        "notifications": {
            "channels": {"ops": {"webhook": {"urlFile": str(url), "secretFile": str(secret)}}},
            "rules": [{"name": "all", "channels": ["ops"], "states": ["success", "failure", "recovery"]}],
        },
    }


class RunningSandbox(NamedTuple):
    """A sandbox and the process of its daemon."""

    sandbox: HostSandbox
    pid: int


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    """A daemon with a workload that is well, two that are not, and the deletion of a volume that waits for approval."""
    files = {
        "access.yaml": ACCESS,
        "shop/web.yaml": served("web", env={"GREETING": "hello"}),
        "shop/broken.yaml": served("broken", replicas=1, env={"BROKEN": "yes"}),
        "shop/crash.yaml": served("crash", replicas=1, command="sh", args=["-c", "echo no such database; exit 3"]),
        "shop/data.yaml": DATA,
        "shop/media.yaml": DATA.replace("name: data", "name: media"),
        "shop/store.yaml": make_store("store", "media"),
        # Its volume is for tests that destroy it.
        "shop/spare.yaml": DATA.replace("name: data", "name: spare"),
        "shop/keeper.yaml": make_store("keeper", "spare"),
        # Its program prints lines of each level, and fails with a stack trace.
        "shop/report.yaml": make_job("report", args=["-c", FAILING]),
        "shop/flood.yaml": make_job("flood", command="sh", args=["-c", FLOOD]),
    }
    path = tmp_path_factory.mktemp("page")
    receiver = Receiver()
    with (
        serving(receiver),
        host_sandbox(path, files, **make_settings(path, receiver)) as sandbox,
        sandbox.daemon() as daemon,
    ):
        eventually(sandbox.healthy, "web is healthy")
        sandbox.repo.commit({"shop/web.yaml": served("web", env={"GREETING": "hi"})}, HOSTILE)
        volume = ("command", "volumeset/shop/media", "createVolumeSnapshot", "location=here", "volumeIndex=0")
        eventually(lambda: sandbox.run(*volume, "snapshotName=before-the-sale").returncode == 0, "it is asked for")
        run = sandbox.run("command", "workload/shop/report", "runCronWorkload", "location=here")
        assert run.returncode == 0, run.stderr
        eventually(lambda: "before-the-sale" in sandbox.run("snapshots").stdout, "the snapshot is there")
        eventually(lambda: "Failure" in sandbox.run("describe", "workload/shop/report").stdout, "the report failed")
        sandbox.repo.commit({"shop/report.yaml": NEWER_REPORT}, "Name the shop to the report")
        sandbox.repo.commit({f"teams/{name}.yaml": f"kind: group\nname: {name}\n" for name in TEAMS}, "Add the teams")
        sandbox.repo.commit({"shop/data.yaml": None}, "Delete the data of the shop")
        eventually(lambda: "reconciler approve" in sandbox.run("status").stdout, "the deletion waits")
        eventually(lambda: receiver.requests, "a message is sent")
        yield RunningSandbox(sandbox, daemon.process.pid)


@pytest.fixture(scope="session")
def site(running: RunningSandbox, browser: Any) -> Site:
    """The page of the daemon; the browser ends first, since its event loop is in the way of the end of the sandbox."""
    return Site(browser, running.sandbox, running.pid)
