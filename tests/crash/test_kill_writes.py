"""Kills the API between the commit of a change, its push and its answer: a repeated request writes it once."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from reconciler.daemon.api_process import SOCKET
from tests.api.conftest import FILES
from tests.api.test_writers import push_until
from tests.support.api import ORG
from tests.support.git import HttpsServer
from tests.support.sandbox import DaemonProcess, DaemonSandbox, eventually

WORKLOADS = f"{ORG}/gvc/shop/workload"
TOKEN = "token-of-the-forge"
BODY = {"spec": {"type": "standard", "containers": [{"name": "main", "image": "//image/x:1"}]}}
WAIT = 'touch "$GIT_DIR/reached"\nwhile [ ! -e "$GIT_DIR/go" ]; do sleep 0.02; done\n'
"""A hook that waits for the test. Before the ref is updated it is ``pre-receive``, after that ``post-receive``."""


class SourceHarness(NamedTuple):
    """A sandbox whose source is at a server, and its daemon."""

    sandbox: DaemonSandbox
    running: DaemonProcess

    def create(self, name: str) -> httpx2.Response | None:
        """The response to a request with a key that creates a workload; None if the API ends before it."""
        try:
            with httpx2.Client(
                transport=httpx2.HTTPTransport(uds=str(self.sandbox.state / SOCKET)), timeout=60
            ) as client:
                headers = {"Idempotency-Key": name}
                return client.post(f"http://api{WORKLOADS}", json={"name": name, **BODY}, headers=headers)
        except httpx2.TransportError:
            return None

    def kill_api(self) -> None:
        """Kill the process of the API."""
        pid = self.running.process.pid
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            if b"reconciler.api" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)

    def created(self, name: str) -> int:
        """How many commits create a workload."""
        return self.sandbox.repo.git("log", "--format=%s", "main").splitlines().count(f"Create workload/shop/{name}")

    def hook(self, name: str, script: str) -> None:
        """Let the remote run ``script``, "" for nothing; what it waits for is not there yet."""
        for mark in ("reached", "go"):
            (self.sandbox.repo.path / mark).unlink(missing_ok=True)
        path = self.sandbox.repo.path / "hooks" / name
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    def repeated(self, name: str) -> httpx2.Response:
        """The response to the request once a process of the API answers it, however often it is refused before."""
        return eventually(lambda: answer if (answer := self.create(name)) and answer.status_code < 300 else None)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceHarness]:
    """A daemon with the API, and a remote source."""
    path = tmp_path_factory.mktemp("kill")
    with HttpsServer(path / "site", path, TOKEN) as server:
        (path / "token").write_text(TOKEN)
        source = {
            "name": "main",
            "url": server.url("main.git"),
            "branch": "main",
            "status": {"push": False},
            "interval": "2s",
            "timeout": "15s",
            "credentials": {"tokenFile": str(path / "token")},
        }
        sandbox = DaemonSandbox(path / "site", FILES, sources=[source], api={})
        with sandbox.daemon(GIT_SSL_CAINFO=str(server.certificate)) as running:
            eventually(lambda: "gvc/shop" in sandbox.recorded())
            yield SourceHarness(sandbox, running)


def _in_background(served: SourceHarness, name: str) -> tuple[threading.Thread, list[httpx2.Response | None]]:
    answers: list[httpx2.Response | None] = []
    asking = threading.Thread(target=lambda: answers.append(served.create(name)))
    asking.start()
    return asking, answers


@pytest.mark.parametrize("hook", ["pre-receive", "post-receive"])
def test_a_killed_change_is_written_once(api: SourceHarness, hook: str) -> None:
    """The push goes on without the API, and ends while the request is repeated."""
    api.hook(hook, WAIT)
    asking, answers = _in_background(api, hook)
    eventually(lambda: (api.sandbox.repo.path / "reached").exists())
    api.kill_api()
    asking.join()
    assert answers == [None]
    repeating, _ = _in_background(api, hook)
    (api.sandbox.repo.path / "go").touch()
    repeating.join()
    answer = api.repeated(hook)
    assert api.created(hook) == 1
    assert api.repeated(hook).text == answer.text
    (api.sandbox.repo.path / "hooks" / hook).unlink()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [False, True])
def test_fifty_writers_for_a_minute_lose_nothing(api: SourceHarness, tmp_path: Path, kills: bool) -> None:
    """A person pushes as well, and the API is killed now and then; a writer without an answer repeats the request."""
    ended, accepted, codes = threading.Event(), list[str](), Counter[int]()
    tag = "killed" if kills else "steady"

    def write(number: int) -> None:
        for count in itertools.count():
            name, code = f"{tag}-{number}-{count}", 0
            while code not in (200, 201):
                if ended.is_set():
                    return
                answer = api.create(name)
                code = 0 if answer is None else answer.status_code
                codes[code] += 1
                ended.wait(0.1 if answer is None else 0)
            accepted.append(name)

    notes: list[str] = []
    writers = [threading.Thread(target=write, args=(number,)) for number in range(50)]
    person = threading.Thread(
        target=lambda: notes.extend(push_until(ended, api.sandbox.repo, tmp_path / tag, pause=0.5))
    )
    for thread in (*writers, person):
        thread.start()
    for _ in range(4):
        ended.wait(random.uniform(12, 18))
        if kills:
            api.kill_api()
    ended.set()
    for thread in (*writers, person):
        thread.join()
    subjects = Counter(api.sandbox.repo.git("log", "--format=%s", "main").splitlines())
    assert {name: subjects[f"Create workload/shop/{name}"] for name in accepted} == dict.fromkeys(accepted, 1)
    files = {*api.sandbox.repo.git("ls-tree", "-r", "--name-only", "main").split()}
    assert {f"shop/workload/{name}.yaml" for name in accepted} <= files
    assert {*notes} <= files
    assert [subject for subject, count in subjects.items() if count > 1] == []
    api.sandbox.repo.git("fsck", "--strict", "--no-dangling")
    eventually(lambda: api.sandbox.applied(api.sandbox.repo.git("rev-parse", "main")), patience=120)
    print(f"{tag}: {len(accepted)} accepted, {len(notes)} pushes, {codes}")
    assert codes.keys() <= {0, 200, 201, 409, 503}
