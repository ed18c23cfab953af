"""Changes in a remote source: a remote that refuses, is slow or gone, and requests that are repeated after that."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from reconciler.changes import write
from reconciler.changes.outbox import PUSH_SECONDS, release_events
from reconciler.changes.write import TRIES
from reconciler.reasons import Reason
from reconciler.records.store import FILE, Records
from reconciler.records.tables.events import WaitingEvents
from tests.api.conftest import FILES
from tests.api.test_writers import check_accepted, push_until
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.git import HttpsServer
from tests.support.sandbox import eventually

WEB = f"{ORG}/gvc/shop/workload/web"
TOKEN = "token-of-the-forge"
WAIT = 'touch "$GIT_DIR/waiting"; while [ ! -e "$GIT_DIR/go" ]; do sleep 0.02; done\n'
"""Part of a hook: it waits for the test."""
PUSHED_BEFORE = """
unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
echo >> "$GIT_DIR/pushes"
[ "$(wc -l < "$GIT_DIR/pushes")" -gt {pushes} ] && exit 0
git update-ref refs/heads/main "$(git -c user.name=p -c user.email=p@x commit-tree -p main -m p 'main^{{tree}}')"
"""
"""A hook: somebody pushes before each of the first pushes."""


class Forge(NamedTuple):
    """A sandbox whose source is a remote, and the server of that."""

    sandbox: ApiSandbox
    server: HttpsServer

    def send(self, tags: dict[str, str], key: str = "") -> tuple[int, Any]:
        """Status and body of a request that adds ``tags`` to a workload."""
        headers = {"Idempotency-Key": key} if key else {}
        answer = self.sandbox.client().request("PATCH", WEB, json={"tags": tags}, headers=headers)
        assert TOKEN not in answer.text
        return answer.status_code, answer.json()

    def tips(self) -> list[str]:
        """The commits of the branch at the remote, newest first."""
        return self.sandbox.repo.git("rev-list", "main").split()

    def written(self, change_id: str) -> int:
        """How many commits have the trailer of a request."""
        return self.sandbox.repo.git("log", "--format=%(trailers:key=Request-Id)", "main").count(change_id)

    def hook(self, name: str, script: str) -> None:
        """Let the remote run ``script``; "" for nothing any more."""
        path = self.sandbox.repo.path / "hooks" / name
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    def marked(self, name: str) -> bool:
        """Whether a hook made its mark."""
        return (self.sandbox.repo.path / name).exists()

    def mark(self, name: str) -> None:
        """Let hooks go on that wait for the mark ``name``."""
        (self.sandbox.repo.path / name).touch()


@contextmanager
def remote_sandbox(path: Path, **settings: Any) -> Iterator[Forge]:
    """A sandbox whose source is at a server."""
    with HttpsServer(path / "site", path, TOKEN) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_SSL_CAINFO", str(server.certificate))
        (path / "token").write_text(TOKEN)
        source = {
            "name": "main",
            "url": server.url("main.git"),
            "branch": "main",
            "status": {"push": False},
            "credentials": {"tokenFile": str(path / "token")},
            "timeout": "8s",
        }
        with api_sandbox(path / "site", FILES, sources=[source], **settings) as sandbox:
            yield Forge(sandbox, server)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    """A sandbox with a remote source, for all tests that leave the server working."""
    with remote_sandbox(tmp_path_factory.mktemp("forge")) as made:
        yield made


@pytest.fixture
def forge(shared: Forge) -> Forge:
    """The same, without hooks and trouble."""
    shared.hook("pre-receive", "exit 0\n")
    shared.server.trouble = ""
    return shared


def test_a_refusal_has_the_words_of_the_remote_and_is_not_made_up_for_later(forge: Forge) -> None:
    before = forge.tips()
    forge.hook("pre-receive", "echo 'GH006: Protected branch update failed for main.' >&2\nexit 1\n")
    code, answer = forge.send({"a": "1"}, "first")
    assert code == 409
    assert "pre-receive hook declined" in answer["message"]
    assert "GH006: Protected branch update failed for main." in answer["message"]
    assert forge.tips() == before
    forge.hook("pre-receive", "exit 0\n")
    assert forge.send({"b": "2"})[0] == 200
    assert forge.tips()[1:] == before
    assert "a:" not in forge.sandbox.repo.git("show", "main:shop/web.yaml")
    assert forge.send({"a": "1"}, "first")[0] == 200, "a refused request can be repeated"
    assert forge.tips()[2:] == before


def test_a_change_is_made_again_on_newer_commits_ten_times_at_most(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "PAUSE", 0.001)
    before = forge.tips()
    forge.hook("pre-receive", PUSHED_BEFORE.format(pushes=100))
    code, answer = forge.send({"again": "1"})
    assert (code, "nothing was changed after 10 attempts" in answer["message"]) == (409, True), answer
    assert forge.written(answer["id"]) == 0
    assert forge.tips()[TRIES:] == before
    forge.hook("pre-receive", PUSHED_BEFORE.format(pushes=TRIES + 3))
    code, answer = forge.send({"again": "1"})
    assert (code, answer["change"]["commit"]) == (200, forge.tips()[0])
    assert len(forge.tips()) == len(before) + TRIES + 3 + 1


def test_a_slow_remote_that_takes_a_commit_late_has_it_once(forge: Forge) -> None:
    before = forge.tips()
    forge.hook("pre-receive", WAIT)
    code, answer = forge.send({"late": "1"}, "late")
    assert (code, "did not answer within 8 s" in answer["message"]) == (503, True), answer
    assert "repeat the request with its Idempotency-Key" in answer["message"]
    change_id = answer["id"]
    assert forge.send({"late": "1"}, "late")[0] == 503
    assert (forge.tips(), forge.marked("waiting")) == (before, True)
    forge.mark("go")
    eventually(lambda: forge.tips()[1:] == before)
    code, answer = forge.send({"late": "1"}, "late")
    assert (code, answer["change"]["commit"]) == (200, forge.tips()[0])
    assert forge.written(change_id) == 1
    assert forge.tips()[1:] == before


def test_a_change_has_its_event_once_also_if_its_request_ended_before(tmp_path: Path) -> None:
    with remote_sandbox(tmp_path) as forge:
        sandbox = forge.sandbox

        def released() -> list[str]:
            release_events(sandbox.api.settings, sandbox.api.writers, sandbox.clock)
            events = sandbox.api.reader.records.events.list("workload/shop/web")
            return [each.message for each in events if each.reason == Reason.CHANGE_COMMITTED]

        forge.hook("pre-receive", WAIT)
        assert forge.send({"cut": "1"})[0] == 503
        assert released() == [], "it is not in Git yet"
        before = forge.tips()
        forge.mark("go")
        eventually(lambda: forge.tips()[1:] == before)
        message = f"user/root: updated in main by the commit {forge.tips()[0][:12]}"
        assert (released(), released()) == ([message], [message])
        # A change that no remote took by then was never made.
        never = WaitingEvents("0" * 16, "main", "0" * 40, sandbox.clock.now(), ())
        with closing(Records.open(sandbox.state / FILE)) as records:
            records.outbox.add(never)
            released()
            assert records.outbox.all() == [never]
            sandbox.clock.suspend(PUSH_SECONDS + 1)
            released()
            assert records.outbox.is_empty()


def test_a_change_that_never_reached_git_has_no_event(forge: Forge) -> None:
    waiting = forge.sandbox.api.reader.records.outbox.all()
    forge.hook("pre-receive", "echo no >&2; exit 1\n")
    assert forge.send({"refused": "1"})[0] == 409
    assert forge.sandbox.api.reader.records.outbox.all() == waiting


def test_a_lost_answer_to_a_push_is_no_failure(forge: Forge) -> None:
    forge.server.trouble = "lose"
    code, answer = forge.send({"lost": "1"})
    assert (code, answer["change"]["commit"]) == (200, forge.tips()[0])


def test_a_review_is_one_branch_with_the_link_of_the_forge_which_may_be_gone(tmp_path: Path) -> None:
    with remote_sandbox(tmp_path, api={"writes": "branch"}) as forge:
        forge.hook("post-receive", "echo 'Create a pull request: https://forge.example.com/new?b=1' >&2\n")
        code, answer = forge.send({"a": "1"}, "review")
        assert (code, answer["change"]["review"]) == (200, "https://forge.example.com/new?b=1")
        # The state after a crash between the push and the answer.
        forge.sandbox.api.store._db.write("UPDATE answers SET status = NULL, body = NULL")
        again = forge.send({"a": "1"}, "review")[1]["change"]
        assert (again["commit"], again["branch"]) == (answer["change"]["commit"], answer["change"]["branch"])
        assert len(forge.sandbox.repo.git("for-each-ref", "refs/heads/reconciler/").splitlines()) == 1
        assert len(forge.tips()) == 1
        forge.server.server_close()
        code, answer = forge.send({"b": "2"})
        assert (code, "127.0.0.1" in answer["message"]) == (503, True), "a remote that is gone is named"
        assert len(forge.tips()) == 1


def write_for(forge: Forge, seconds: float, writers: int) -> tuple[list[httpx2.Response], list[float]]:
    """The answers to writers of one workload, each with one request at a time, and how long each took."""
    answers, times = list[httpx2.Response](), list[float]()
    ended = time.monotonic() + seconds

    async def write(client: httpx2.AsyncClient, number: int) -> None:
        for count in itertools.count():
            began = time.monotonic()
            if began > ended:
                return
            answers.append(await client.request("PATCH", WEB, json={"tags": {f"w{number}": str(count)}}))
            times.append(time.monotonic() - began)

    async def write_all() -> None:
        transport = forge.sandbox.client().transport
        async with httpx2.AsyncClient(transport=transport, base_url="http://api", timeout=None) as client:
            await asyncio.gather(*(write(client, number) for number in range(writers)))

    asyncio.run(write_all())
    return answers, sorted(times)


@pytest.mark.slow
def test_twenty_writers_share_pushes(tmp_path: Path) -> None:
    with remote_sandbox(tmp_path) as forge:
        forge.hook("post-receive", 'echo >> "$GIT_DIR/pushed"\n')
        answers, _ = write_for(forge, 3, writers=20)
        assert {answer.status_code for answer in answers} == {200}
        check_accepted(forge.sandbox.repo, answers)
        assert 3 * len((forge.sandbox.repo.path / "pushed").read_text().splitlines()) <= len(answers)


@pytest.mark.slow
def test_twenty_writers_and_a_person_for_a_minute_lose_nothing(tmp_path: Path) -> None:
    with remote_sandbox(tmp_path) as forge:
        ended, notes = threading.Event(), list[str]()
        repo, clone = forge.sandbox.repo, tmp_path / "clone"
        person = threading.Thread(target=lambda: notes.extend(push_until(ended, repo, clone, pause=1.0)))
        person.start()
        try:
            answers, times = write_for(forge, 60, writers=20)
        finally:
            ended.set()
            person.join()
        assert {answer.status_code for answer in answers} == {200}
        check_accepted(repo, answers)
        assert {*notes} <= {*repo.git("ls-tree", "-r", "--name-only", "main").split()}
        median = statistics.median(times)
        print(f"{len(answers)} changes, {len(notes)} pushes by a person, p50 {median:.2f} s, p99 {times[-2]:.2f} s")
