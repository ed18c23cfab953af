"""A daemon shows its runs on commits, and its plans on pull requests, by itself."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.notifications.forges.gitea import Gitea, find_program, push_branch, run_gitea
from tests.notifications.forges.stub_forge import TOKEN, Failure, StubForge, make_pull, run_stub
from tests.support.git import GitRepo
from tests.support.programs import skip_unless
from tests.support.sandbox import GVC, DaemonSandbox, eventually, workload

FILES = {"shop/gvc.yaml": GVC, "shop/api.yaml": workload("api")}


def configure(sandbox: DaemonSandbox, forge_url: str, token: str, **source: object) -> None:
    """Let the source ``main`` be the repository acme/shop at ``forge_url``."""
    (sandbox.path / "token").write_text(token)
    sandbox.configure(
        sources=[sandbox.source(**source)],
        notifications={"forges": {"gitea": make_forge(sandbox, forge_url)}},
        api={"url": "https://ops.example.com"},
    )


def make_forge(sandbox: DaemonSandbox, url: str, source: str = "main") -> dict[str, object]:
    """The settings of the forge at ``url``, where ``source`` is the repository acme/shop."""
    return {
        "type": "gitea", "url": url, "sources": [source], "repository": "acme/shop",
        "tokenFile": str(sandbox.path / "token"), "pullRequests": {"interval": "1s"},
    }  # fmt: skip


def states(stub: StubForge, commit: str) -> list[str]:
    """The states that a commit had, in order."""
    return [status["state"] for status in stub.statuses.get(commit, [])]


@contextmanager
def run_shown(directory: Path) -> Iterator[tuple[DaemonSandbox, StubForge, str]]:
    """A daemon in ``directory`` whose first commit is shown at a forge: its sandbox, the forge, and the commit."""
    sandbox = DaemonSandbox(directory / "host", FILES)
    with run_stub("gitea") as stub:
        configure(sandbox, stub.url, TOKEN)
        with sandbox.daemon() as daemon:
            first = sandbox.repo.git("rev-parse", "main")
            eventually(lambda: "success" in states(stub, first), "the first commit is shown")
            yield sandbox, stub, first
            assert not re.search("planted", daemon.log_file.read_text())
        assert not stub.faults


def test_a_push_ends_on_the_commit_and_on_the_pull_request(tmp_path: Path) -> None:
    with run_shown(tmp_path) as (sandbox, stub, first):
        head = sandbox.repo.commit({"shop/web.yaml": workload("web")}, branch="change", parent=first)
        stub.pulls[5] = make_pull("gitea", 5, head)
        eventually(lambda: stub.comments.get(5), "the plan is shown")
        [body] = stub.comments[5].values()
        assert "1 to create" in body
        eventually(lambda: states(stub, head) == ["success"], "the head has a status")
        merged = sandbox.repo.commit({"shop/web.yaml": workload("web")})
        stub.pulls.clear()
        stub.closed[5] = make_pull("gitea", 5, head, merged=merged)
        eventually(lambda: "after the merge" in "".join(stub.comments[5].values()), "the outcome is shown")
        eventually(lambda: "success" in states(stub, merged), "the merged commit is shown")
        assert len(stub.comments[5]) == 1


def test_a_merge_that_is_refused_shows_its_findings_and_a_link(tmp_path: Path) -> None:
    with run_shown(tmp_path) as (sandbox, stub, first):
        broken = {"shop/web.yaml": workload("web").replace("8080", "nonsense")}
        head = sandbox.repo.commit(broken, branch="change", parent=first)
        stub.pulls[5] = make_pull("gitea", 5, head)
        eventually(lambda: stub.comments.get(5), "the plan is shown")
        merged = sandbox.repo.commit(broken)
        stub.pulls.clear()
        stub.closed[5] = make_pull("gitea", 5, head, merged=merged)
        comment = lambda: "".join(stub.comments[5].values())  # noqa: E731
        eventually(lambda: "after the merge" in comment() and "`shop/web.yaml:" in comment(), "findings are shown")
        assert "](https://ops.example.com/ui/resource/source/main)" in comment()


def test_the_token_of_a_forge_can_be_tried(tmp_path: Path) -> None:
    with run_shown(tmp_path) as (sandbox, stub, _):
        tried = sandbox.run("notify", "test", "gitea")
        assert tried.returncode == 0, tried.stdout + tried.stderr
        stub.secrets = {"another token"}
        refused = sandbox.run("notify", "test", "gitea")
        assert refused.returncode == 1, refused.stdout + refused.stderr
        listed = sandbox.run("notify", "list")
        assert "the token is wrong or has ended" in refused.stdout + refused.stderr + listed.stdout
        assert TOKEN not in refused.stdout + refused.stderr + listed.stdout


def test_a_forge_that_was_down_gets_what_it_missed(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path / "host", FILES)
    with run_stub("gitea") as stub:
        configure(sandbox, stub.url, TOKEN)
        stub.refuse = lambda _request: Failure(503, {"Retry-After": "1"})
        with sandbox.daemon():
            first = sandbox.repo.git("rev-parse", "main")
            eventually(lambda: sandbox.applied(first), "the run does not wait for the forge")
            eventually(lambda: stub.requests, "the forge is asked")
            second = sandbox.repo.commit({"shop/web.yaml": workload("web")})
            eventually(lambda: sandbox.applied(second), "the next run does not wait either")
            stub.refuse = lambda _request: None
            eventually(lambda: "success" in states(stub, second), "the last commit is shown")
            eventually(lambda: states(stub, first)[-1:] == ["success"], "the first commit is shown")
        assert not stub.faults


def test_a_token_that_ends_is_replaced_while_commits_wait(tmp_path: Path) -> None:
    with run_shown(tmp_path) as (sandbox, stub, _):
        stub.secrets = {"planted-token-2"}
        second = sandbox.repo.commit({"shop/web.yaml": workload("web")})
        eventually(lambda: "has ended" in sandbox.run("notify", "list").stdout, "the token is refused")
        (sandbox.path / "token").write_text("planted-token-2")
        eventually(lambda: states(stub, second)[-1:] == ["success"], "the commit is shown with the new token")


def test_a_source_that_is_removed_ends_what_waits_on_commits_and_pull_requests(tmp_path: Path) -> None:
    with run_shown(tmp_path) as (sandbox, stub, first):
        head = sandbox.repo.commit({"shop/web.yaml": workload("web")}, branch="change", parent=first)
        stub.pulls[5] = make_pull("gitea", 5, head)
        eventually(lambda: stub.comments.get(5), "the plan is shown")
        more = sandbox.repo.commit({"shop/db.yaml": workload("db")})
        eventually(lambda: "success" in states(stub, more), "the next commit is shown")
        # So many deletes wait for an approval.
        second = sandbox.repo.commit(dict.fromkeys(("shop/api.yaml", "shop/db.yaml")))
        eventually(lambda: states(stub, second)[-1:] == ["pending"], "the commit waits")
        settings = dict(sandbox.settings)
        other = GitRepo.create(sandbox.path / "other.git", {"bank/gvc.yaml": GVC.replace("shop", "bank")})
        sandbox.configure(
            sources=[sandbox.source("other", url=str(other.path))],
            notifications={"forges": {"gitea": make_forge(sandbox, stub.url, "other")}},
        )
        removed = "the source main was removed from the settings"
        eventually(lambda: states(stub, second)[-1] == "warning", "the commit ends")
        assert stub.statuses[second][-1]["description"] == f"main: {second[:12]} is superseded: {removed}"
        eventually(lambda: "was removed from the settings" in "".join(stub.comments[5].values()), "the comment says so")
        # It comes back.
        sandbox.configure(**settings)
        eventually(lambda: states(stub, second)[-1] != "warning", "the commit goes on")
        eventually(lambda: "no plan" not in "".join(stub.comments[5].values()), "the plan is shown again")
        assert len(stub.comments[5]) == 1


def test_a_daemon_without_the_setting_imports_no_client_of_forges(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from reconciler.clock import SystemClock; import reconciler.daemon.service\n"
        "from reconciler.notifications.forges.pull_requests import PullRequestWork\n"
        "from reconciler.settings import Settings\n"
        "asyncio.run(PullRequestWork(SystemClock()).open(Settings(org='acme', sources=())))\n"
        "print([name for name in sys.modules if name.startswith('reconciler.notifications.forges.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['reconciler.notifications.forges.pull_requests']"


@pytest.mark.forge
@skip_unless(find_program() is not None, "Gitea is not built: make test-forges")
def test_a_real_gitea_shows_all_of_it(tmp_path: Path) -> None:
    with run_gitea(tmp_path / "gitea") as gitea:
        gitea.call("POST", "/orgs", {"username": "acme"})
        gitea.call("POST", "/orgs/acme/repos", {"name": "shop", "default_branch": "main"})
        repo = GitRepo.create(tmp_path / "work.git", FILES)
        own = gitea.push_url("acme/shop")
        push_branch(repo.path, own, "main")
        first = repo.git("rev-parse", "main")
        sandbox = DaemonSandbox(tmp_path / "host", {})
        configure(
            sandbox, gitea.url, gitea.ann, url=f"{gitea.url}/acme/shop.git", readOnly=True, status={"push": False}
        )
        with sandbox.daemon():
            eventually(lambda: _read_status(gitea, first) == "success", "the first commit is shown")
            head = repo.commit({"shop/web.yaml": workload("web")}, branch="change", parent=first)
            push_branch(repo.path, own, "change")
            asked = {"head": "change", "base": "main", "title": "A @everyone change"}
            number = gitea.call("POST", "/repos/acme/shop/pulls", asked)["number"]
            eventually(lambda: _read_comments(gitea, number), "the plan is shown")
            [comment] = _read_comments(gitea, number)
            assert "1 to create" in comment
            assert head[:12] in comment
            eventually(lambda: _read_status(gitea, head) == "success", "the head has a status")
            _open_pull_of_fork(gitea, repo, first)
            eventually(lambda: _read_comments(gitea, number + 1), "the plan of a fork is shown")
            [of_fork] = _read_comments(gitea, number + 1)
            assert "from a fork" in of_fork
            assert "shop/api.yaml:" in of_fork
            gitea.call("POST", f"/repos/acme/shop/pulls/{number}/merge", {"Do": "squash"})
            eventually(lambda: "after the merge" in _read_comments(gitea, number)[0], "the outcome is shown")
            assert len(_read_comments(gitea, number)) == 1
            merged = gitea.call("GET", f"/repos/acme/shop/pulls/{number}")["merge_commit_sha"]
            eventually(lambda: _read_status(gitea, merged) == "success", "the merged commit is shown")
            assert "workload/shop/web@here" in sandbox.recorded()


def _open_pull_of_fork(gitea: Gitea, repo: GitRepo, first: str) -> None:
    """A pull request of Eve's fork, with an error."""
    gitea.call("POST", "/repos/acme/shop/forks", {"name": "shop"}, token=gitea.eve)
    broken = workload("api").replace("8080", "nonsense")
    repo.commit({"shop/api.yaml": broken}, branch="evil", parent=first)
    deadline = time.monotonic() + 60
    while True:
        try:
            push_branch(repo.path, gitea.push_url("eve/shop", "eve"), "evil")
            break
        except subprocess.CalledProcessError:
            assert time.monotonic() < deadline
            time.sleep(0.5)
    asked = {"head": "eve:evil", "base": "main", "title": "Mine"}
    gitea.call("POST", "/repos/acme/shop/pulls", asked, token=gitea.eve)


def _read_status(gitea: Gitea, commit: str) -> str:
    """The last state of a commit, "" for none."""
    found = gitea.call("GET", f"/repos/acme/shop/commits/{commit}/status")
    return str(found["state"]) if found.get("statuses") else ""


def _read_comments(gitea: Gitea, number: int) -> list[str]:
    """The comments on a pull request."""
    return [str(comment["body"]) for comment in gitea.call("GET", f"/repos/acme/shop/issues/{number}/comments")]
