"""Many writers to one branch, and a person who pushes there: every accepted change is in the history once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reconciler.api.service import GIT_THREADS
from reconciler.changes import write
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.git import GitRepo

WORKLOADS = f"{ORG}/gvc/shop/workload"
WEB = f"{WORKLOADS}/web"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox of its own, whose Git is written."""
    with api_sandbox(tmp_path, FILES) as made:
        yield made


def push_until(ended: threading.Event, repo: GitRepo, clone: Path, pause: float = 0.0) -> list[str]:
    """Commit in a clone and push, as a person does, until ``ended``; the files that were accepted.

    ``pause`` is seconds between two pushes.
    """
    repo.git("clone", "--quiet", str(repo.path), str(clone))
    person, accepted, number = GitRepo(clone), list[str](), 0
    while not (ended.is_set() and accepted):
        number += 1
        name = f"{clone.name}/{number}.txt"
        (clone / clone.name).mkdir(exist_ok=True)
        (clone / name).write_text("by a person")
        person.git("add", name)
        person.git("commit", "--quiet", "-m", name)
        try:
            person.git("pull", "--quiet", "--rebase")
            person.git("push", "--quiet")
            accepted.append(name)
        except RuntimeError:  # a change came between: the next push has this note too
            continue
        ended.wait(pause)
    return accepted


def request_ids(repo: GitRepo) -> Counter[str]:
    """How many commits of the branch have the trailer of each request."""
    return Counter(repo.git("log", "--format=%(trailers:key=Request-Id,valueonly)", "main").split())


def check_accepted(repo: GitRepo, answers: list[httpx2.Response]) -> None:
    """Each accepted change is one commit, each refused one is none, and Git finds no fault in the repository."""
    ids = request_ids(repo)
    accepted = {answer.headers["X-Request-Id"]: 1 for answer in answers if answer.status_code in (200, 201, 202)}
    assert ids == accepted
    repo.git("fsck", "--strict", "--no-dangling")


@pytest.mark.parametrize("writers", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_many_writers_and_a_person_lose_nothing(sandbox: ApiSandbox, tmp_path: Path, writers: int) -> None:
    body = {"spec": {"type": "standard", "containers": [{"name": "main", "image": "//image/x:1"}]}}
    requests: list[tuple[str, str, Any]] = []
    for number in range(writers):
        if number % 5:
            requests.append(("PATCH", WEB, {"tags": {f"n{number}": "x"}}))
        else:
            requests.append(("POST", WORKLOADS, {"name": f"new{number}", **body}))
    ended, notes = threading.Event(), list[str]()
    person = threading.Thread(target=lambda: notes.extend(push_until(ended, sandbox.repo, tmp_path / "clone")))
    person.start()
    try:
        answers = sandbox.client().request_all(requests)
    finally:
        ended.set()
        person.join()
    assert Counter(answer.status_code for answer in answers) == {200: writers * 4 // 5, 201: writers // 5}, [
        each.text for each in answers
    ]
    check_accepted(sandbox.repo, answers)
    files = sandbox.repo.git("ls-tree", "-r", "--name-only", "main").split()
    assert {f"shop/workload/new{number}.yaml" for number in range(0, writers, 5)} <= {*files}
    assert {*notes} & {*files} == {*notes} != set()
    text = sandbox.repo.git("show", "main:shop/web.yaml")
    assert [number for number in range(writers) if number % 5 and f"n{number}: x" not in text] == []
    assert sandbox.run("validate").returncode == 0


def test_a_repetition_waits_for_the_request_in_progress(sandbox: ApiSandbox) -> None:
    body = {"name": "new", "spec": {"type": "standard", "containers": [{"name": "main", "image": "//image/x:1"}]}}
    answers = sandbox.client().request_all([("POST", WORKLOADS, body)] * 5, {"Idempotency-Key": "4713"})
    assert [answer.status_code for answer in answers] == [201] * 5
    assert len({answer.text for answer in answers}) == 1
    assert sum(request_ids(sandbox.repo).values()) == 1


def test_a_branch_that_stays_locked_is_named(sandbox: ApiSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "PAUSE", 0.001)
    before = sandbox.repo.git("rev-parse", "main")
    lock = sandbox.repo.path / "refs" / "heads" / "main.lock"
    lock.touch()
    answer = sandbox.client().request("PATCH", WEB, json={"tags": {"a": "1"}})
    assert (answer.status_code, f"is locked: {lock} exists" in answer.text) == (409, True), answer.text
    lock.unlink()
    assert sandbox.repo.git("rev-parse", "main") == before
    assert sandbox.client().request("PATCH", WEB, json={"tags": {"a": "1"}}).status_code == 200


def test_reads_do_not_wait_for_slow_remotes(sandbox: ApiSandbox) -> None:
    ended = threading.Event()
    waiting = [sandbox.api.git_threads.submit(ended.wait) for _ in range(GIT_THREADS)]
    try:
        assert len(sandbox.client().get(WORKLOADS)["items"]) == 2
        assert sandbox.client().get(f"{ORG}/secret/db/-reveal")["data"]
    finally:
        ended.set()
    assert [each.result() for each in waiting] == [True] * GIT_THREADS
