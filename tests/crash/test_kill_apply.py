"""Kills a change of several resources before any of its system calls: it is one commit or none, and one in the end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from reconciler.api.service import Api
from reconciler.settings import load_settings
from tests.api.conftest import FILES
from tests.support.api import ORG, ROOT_PEER, ApiClient, ApiSandbox, api_sandbox

APPLY = f"{ORG}/-apply"
FEW, MANY = 10, 400
"""Kills of the short and of the long form."""
NEVER = 1 << 30
CALLS = frozenset({"posix", "fcntl", "_posixsubprocess", "io", "_io", "sqlite3", "_pygit2", "pygit2"})
"""Modules whose C functions are system calls, or make some."""


class Countdown:
    """Counts such calls of this process, in all threads, and kills it before one of them."""

    def __init__(self, last: int) -> None:
        self.passed = 0
        self._last = last

    def __call__(self, _: FrameType, event: str, function: object) -> None:
        owner = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
        if event == "c_call" and owner.partition(".")[0] in CALLS:
            self.passed += 1
            if self.passed == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox whose source is written in place."""
    with api_sandbox(tmp_path, FILES) as made:
        yield made


def wanted(number: int) -> dict[str, Any]:
    """A change of its own: two resources that depend on each other, and a delete of one that is not there."""
    spec = {"type": "standard", "containers": [{"name": "main", "image": "//image/a:1"}]}
    link = f"//gvc/shop/identity/i{number}"
    return {
        "items": [
            {"kind": "workload", "name": f"w{number}", "gvc": "shop", "spec": {**spec, "identityLink": link}},
            {"kind": "identity", "name": f"i{number}", "gvc": "shop"},
        ],
        "delete": ["//gvc/shop/workload/none"],
    }


def perform(sandbox: ApiSandbox, number: int, last: int = NEVER) -> int:
    """Make a change in a process that dies before its call ``last``; its number of calls, or -1 if it died."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        api = Api(load_settings(sandbox.settings_file), sandbox.clock, lambda: True)
        countdown = Countdown(last)
        sys.setprofile(countdown)
        threading.setprofile(countdown)
        status = send(ApiClient(api, ROOT_PEER), number).status_code
        sys.setprofile(None)
        os.write(write, str(countdown.passed if status == 200 else 0).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read, "rb") as answer:
        return int(answer.read() or -1)


def send(client: ApiClient, number: int) -> Any:
    return client.request("POST", APPLY, json=wanted(number), headers={"Idempotency-Key": f"key-{number}"})


def commits(sandbox: ApiSandbox, number: int) -> int:
    """How many commits make the change."""
    subjects = sandbox.repo.git("log", "--format=%s", "main").splitlines()
    return subjects.count(f"Apply workload/shop/w{number} and 1 more")


def kill_at(sandbox: ApiSandbox, kills: int) -> None:
    assert send(sandbox.client(), NEVER).status_code == 200  # so that no child has to load modules first
    total = perform(sandbox, 0)
    assert total > 100
    assert commits(sandbox, 0) == 1
    step = max(1, total // kills)
    died = 0
    for last in range(1 + step // 2, total + 1, step):
        died += perform(sandbox, last, last) == -1
        assert commits(sandbox, last) <= 1, f"killed before call {last} of {total}"
        answer = send(sandbox.client(), last)
        assert answer.status_code == 200, (last, answer.text)
        assert commits(sandbox, last) == 1, f"repeated after call {last} of {total}"
        files = sandbox.repo.git("ls-tree", "-r", "--name-only", "main").split()
        assert {f"shop/workload/w{last}.yaml", f"shop/identity/i{last}.yaml"} <= {*files}
        assert send(sandbox.client(), last).text == answer.text
    assert died > kills // 2
    sandbox.repo.git("fsck", "--strict", "--no-dangling")
    print(f"{died} kills of {total} calls")


def test_killed_at_some_calls_it_is_one_commit_or_none(sandbox: ApiSandbox) -> None:
    kill_at(sandbox, FEW)


@pytest.mark.slow
def test_killed_at_many_calls_it_is_one_commit_or_none(sandbox: ApiSandbox) -> None:
    kill_at(sandbox, MANY)
