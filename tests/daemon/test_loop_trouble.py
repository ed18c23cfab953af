"""A failing source never undoes what is applied; the failure is reported and ends with its cause."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support import processes
from tests.support.git import GitRepo, HttpsServer
from tests.support.sandbox import SHOP, STATUS, DaemonProcess, DaemonSandbox, ServiceManager, eventually, workload

BROKEN = workload("api").replace("containers", "contianers")
API = ["gvc/shop", "workload/shop/api@here", "workload/shop/api@there"]


@pytest.fixture
def sandbox(tmp_path: Path) -> DaemonSandbox:
    """A shop whose source is polled every second."""
    sandbox = DaemonSandbox(tmp_path)
    sandbox.configure(sources=[sandbox.source(interval="1s")])
    return sandbox


@pytest.fixture
def daemon(sandbox: DaemonSandbox) -> Iterator[DaemonProcess]:
    """A daemon that has applied the shop."""
    with sandbox.daemon() as running:
        eventually(
            lambda: sorted(sandbox.recorded()) == API and sandbox.status("README.md"),
            "the shop is applied and published",
        )
        yield running


def test_a_refused_revision_leaves_the_last_good_one_applied(sandbox: DaemonSandbox, daemon: DaemonProcess) -> None:
    before = sandbox.recorded()
    bad = sandbox.repo.commit({"shop/api.yaml": BROKEN, "shop/web.yaml": workload("web")})
    eventually(lambda: "InvalidRevision" in sandbox.status("reconciler.yaml"), "the branch reports it")
    assert sandbox.recorded() == before
    assert sandbox.condition("Ready") == "false InvalidRevision"
    assert "shop/api.yaml:4:3" in sandbox.status("reconciler.yaml")
    page = sandbox.status("README.md")
    assert re.search(rf"\n- \*\*InvalidRevision\*\* `{bad[:12]}` \(.+\) is refused: .*shop/api\.yaml:4:3", page), page
    [run] = daemon.logged("reconciled", outcome="refused")[:1]
    assert run["revision"] == f"main@sha1:{bad}"
    with sandbox.records() as records:
        assert {event.key for event in records.events.list() if event.reason == "InvalidRevision"} != set()
    good = sandbox.repo.commit({"shop/api.yaml": workload("api", 7001)})
    eventually(lambda: good in sandbox.status("shop/workload/web.yaml"), "the next good one is applied whole")
    eventually(lambda: "InvalidRevision" not in sandbox.status("README.md"), "all is well again")


def test_a_branch_that_goes_back_to_the_last_good_revision_is_well_again(
    sandbox: DaemonSandbox, daemon: DaemonProcess
) -> None:
    good = sandbox.repo.git("rev-parse", "main")
    sandbox.repo.commit({"shop/api.yaml": BROKEN})
    eventually(lambda: sandbox.condition("Ready") == "false InvalidRevision", "it is refused")
    sandbox.repo.git("update-ref", "refs/heads/main", good)
    eventually(lambda: sandbox.condition("Ready") == "true Applied", "the condition reports it")
    eventually(lambda: "InvalidRevision" not in sandbox.status("README.md"), "the branch reports it")


def test_a_daemon_that_begins_with_a_refused_revision_reads_it_once(sandbox: DaemonSandbox) -> None:
    sandbox.repo.commit({"shop/api.yaml": BROKEN})
    with ServiceManager(sandbox.path) as systemd, sandbox.daemon(**systemd.environ) as daemon:
        eventually(lambda: daemon.logged("reconciled", outcome="refused"), "it is refused")
        eventually(lambda: systemd.notifications().count("STATUS=main: reading (poll)") >= 2, "it is read again")
        good = sandbox.repo.commit(SHOP)
        eventually(lambda: sandbox.applied(good), "the next good one is applied")
        assert len(daemon.logged("reconciled", outcome="refused")) == 1


def test_a_branch_that_is_gone_deletes_nothing(sandbox: DaemonSandbox, daemon: DaemonProcess) -> None:
    before = sandbox.recorded()
    sandbox.repo.git("update-ref", "refs/heads/kept", "main")
    sandbox.repo.git("update-ref", "-d", "refs/heads/main")
    eventually(lambda: sandbox.condition("SourceReachable") == "false SourceNotFound", "the condition reports it")
    eventually(lambda: "SourceNotFound" in sandbox.status("README.md"), "the branch reports it")
    assert sandbox.recorded() == before
    sandbox.repo.git("update-ref", "refs/heads/main", "kept")
    eventually(lambda: sandbox.condition("SourceReachable") == "true Fetched", "it is found again")
    eventually(lambda: "SourceNotFound" not in sandbox.status("README.md"), "the branch reports it")
    assert sandbox.recorded() == before


@pytest.mark.parametrize("bare", [True, False])
def test_a_repository_that_is_moved_away_deletes_nothing(tmp_path: Path, bare: bool) -> None:
    sandbox = DaemonSandbox(tmp_path, bare=bare)
    sandbox.configure(sources=[sandbox.source(interval="1s")])
    away = sandbox.path / "away.git"
    with sandbox.daemon() as daemon:
        eventually(
            lambda: sorted(sandbox.recorded()) == API and sandbox.status("README.md"),
            "the shop is applied and published",
        )
        before = sandbox.recorded()
        sandbox.repo.path.rename(away)
        eventually(lambda: sandbox.condition("SourceReachable").startswith("false Source"), "the condition reports it")
        eventually(lambda: daemon.logged("status", pushed=False), "status finds no place to be written to")
        assert sandbox.recorded() == before
        commit = GitRepo(away).commit({"shop/web.yaml": workload("web")})
        away.rename(sandbox.repo.path)
        eventually(lambda: sandbox.applied(commit), "it goes on when the repository is back")
        eventually(lambda: commit in sandbox.status("shop/workload/web.yaml"), "and reports")
        assert daemon.stop() == 0


def test_a_repository_that_is_replaced_by_a_clone_is_followed(sandbox: DaemonSandbox, daemon: DaemonProcess) -> None:
    clone = sandbox.repo.clone_bare(sandbox.path / "clone.git")
    shutil.rmtree(sandbox.repo.path)
    clone.path.rename(sandbox.repo.path)
    commit = GitRepo(sandbox.repo.path).commit({"shop/web.yaml": workload("web")})
    eventually(lambda: sandbox.applied(commit), "what is committed to the new one is applied")
    eventually(lambda: commit in sandbox.status("shop/workload/web.yaml"), "and reported there")
    assert daemon.stop() == 0


def test_an_empty_tree_deletes_nothing(sandbox: DaemonSandbox, daemon: DaemonProcess) -> None:
    before = sandbox.recorded()
    sandbox.repo.commit({"README.md": "moved elsewhere"}, whole=True)
    eventually(lambda: sandbox.condition("SourceReachable") == "false SourceEmpty", "the condition reports it")
    assert sandbox.recorded() == before


@pytest.mark.parametrize("allowed", [False, True])
def test_rewritten_history_is_followed_only_where_that_is_allowed(tmp_path: Path, allowed: bool) -> None:
    sandbox = DaemonSandbox(tmp_path)
    sandbox.configure(sources=[sandbox.source(interval="1s", allowRewrite=allowed)])
    with sandbox.daemon():
        eventually(lambda: sorted(sandbox.recorded()) == API, "the shop is applied")
        old = sandbox.repo.git("rev-parse", "main")
        new = sandbox.repo.commit(SHOP | {"shop/web.yaml": workload("web")}, parent="")
        if allowed:
            eventually(lambda: sandbox.applied(new), "it is followed")
            return
        eventually(lambda: sandbox.condition("SourceReachable") == "false SourceRewritten", "the condition reports it")
        assert sorted(sandbox.recorded()) == API
        sandbox.repo.git("update-ref", "refs/heads/main", old)
        good = sandbox.repo.commit({"shop/cart.yaml": workload("cart")})
        eventually(lambda: sandbox.applied(good), "the old history goes on")


def approved_by(sandbox: DaemonSandbox, by: str, commit: str) -> CompletedProcess[str]:
    """Approve a commit as a user of this host, or as a principal."""
    return processes.reconciler("approve", commit[:12], environ={**sandbox.environ, "SUDO_USER": by})


@pytest.mark.parametrize("four_eyes", [False, True])
def test_one_rewrite_of_history_is_followed_if_it_is_approved(tmp_path: Path, four_eyes: bool) -> None:
    sandbox = DaemonSandbox(tmp_path, approvalFourEyes=four_eyes)
    sandbox.configure(sources=[sandbox.source(interval="1s")])
    with sandbox.daemon():
        eventually(lambda: sorted(sandbox.recorded()) == API, "the shop is applied")
        new = sandbox.repo.commit(SHOP | {"shop/web.yaml": workload("web")}, parent="")
        eventually(lambda: sandbox.condition("SourceReachable") == "false SourceRewritten", "the condition reports it")
        assert f"reconciler approve {new[:12]}" in sandbox.condition_message("SourceReachable")
        assert sandbox.run("approve", "0" * 12).returncode == 1
        author = sandbox.repo.git("log", "-1", "--format=%ae", new)
        if four_eyes:
            refused = approved_by(sandbox, f"user/{author}", new)
            assert (refused.returncode, "another person approves it" in refused.stderr) == (1, True), refused
        done = approved_by(sandbox, "ann", new)
        assert f"accepted the rewritten history of main, from {new[:12]} on, as ann" in done.stdout, done
        eventually(lambda: sandbox.applied(new), "it is followed")
        again = sandbox.repo.commit(SHOP, parent="")
        eventually(lambda: sandbox.condition("SourceReachable") == "false SourceRewritten", "another one is not")
        assert again[:12] in sandbox.condition_message("SourceReachable")


def test_a_resource_in_two_sources_is_a_finding_in_the_second(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    second = GitRepo.create(tmp_path / "second.git", {"api.yaml": workload("api", 7002, "gvc: shop\n")})
    sandbox.configure(sources=[sandbox.source(interval="1s"), sandbox.source("second", interval="1s")])
    with sandbox.daemon():
        eventually(lambda: sandbox.condition("Ready", "second") == "false InvalidRevision", "the second is refused")
        assert sorted(sandbox.recorded()) == API
        assert {record.source for record in sandbox.recorded().values()} == {"main"}
        eventually(lambda: "workload/shop/api" in sandbox.status("reconciler.yaml", second), "it names the resource")
        assert "main" in sandbox.condition_message("Ready", "second")
        sandbox.repo.commit({"shop/api.yaml": None, "shop/web.yaml": workload("web")})
        second.commit({"more.yaml": workload("more", 7003, "gvc: shop\n")})
        eventually(
            lambda: {record.source for key, record in sandbox.recorded().items() if "shop/api" in key} == {"second"},
            "what the first gives up the second may have",
        )
        eventually(lambda: "workload/shop/more@here" in sandbox.recorded(), "with all else it brings")


def test_on_invalid_skip_applies_the_rest(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path, onInvalid="skip")
    with sandbox.daemon():
        eventually(lambda: sorted(sandbox.recorded()) == API, "the shop is applied")
        commit = sandbox.repo.commit({"shop/api.yaml": BROKEN, "shop/web.yaml": workload("web")})
        eventually(lambda: commit in sandbox.status("shop/workload/web.yaml"), "the rest is applied")
        recorded = sandbox.recorded()
        assert recorded["workload/shop/api@here"].version == 1
        eventually(lambda: "shop/api.yaml:" in sandbox.status("README.md"), "the branch names what is left out")
        assert sandbox.condition("Ready") == "false InvalidFiles"
        good = sandbox.repo.commit({"shop/api.yaml": workload("api", 7001)})
        eventually(lambda: good in sandbox.status("shop/workload/api.yaml"), "what was skipped comes later")
        eventually(lambda: sandbox.condition("Ready") == "true Applied", "all is well again")
    with sandbox.records() as records:
        first, *later = [event.message for event in records.events.list() if event.reason == "InvalidFiles"]
        assert first.startswith(f"{commit[:12]} (")
        assert later
        assert all(message.startswith("shop/api.yaml:") for message in later)
        over = [event.message for event in records.events.list("source/main") if event.reason == "Recovered"]
        assert [message.partition(": files")[0] for message in over] == ["over: InvalidFiles"]


TOKEN = "s3cret-t0ken"


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[tuple[DaemonSandbox, HttpsServer, dict[str, str]]]:
    """A shop behind https, and what a daemon must know to reach it."""
    sandbox = DaemonSandbox(tmp_path / "host")
    (tmp_path / "served").mkdir()
    sandbox.repo.path.rename(tmp_path / "served" / "main.git")
    sandbox.repo = GitRepo(tmp_path / "served" / "main.git")
    sandbox.repo.git("config", "http.receivepack", "true")
    (tmp_path / "token").write_text(TOKEN)
    with HttpsServer(tmp_path / "served", tmp_path, TOKEN) as server:
        source = sandbox.source(url=server.url("main.git"), interval="1s", timeout="2s")
        sandbox.configure(sources=[source | {"credentials": {"username": "ada", "tokenFile": str(tmp_path / "token")}}])
        yield sandbox, server, {"GIT_SSL_CAINFO": str(server.certificate), "no_proxy": "127.0.0.1"}


def test_a_remote_is_followed_from_push_to_pushed_status(
    remote: tuple[DaemonSandbox, HttpsServer, dict[str, str]],
) -> None:
    sandbox, server, environ = remote
    with sandbox.daemon(**environ) as daemon:
        eventually(lambda: "health: Recorded" in sandbox.status("shop/workload/api.yaml"), "status is pushed")
        assert sorted(sandbox.recorded()) == API
        server.trouble = "cut"
        commit = sandbox.repo.commit({"shop/web.yaml": workload("web")})
        eventually(lambda: sandbox.condition("SourceReachable") == "false SourceUnreachable", "the network is gone")
        assert sorted(sandbox.recorded()) == API
        server.trouble = ""
        eventually(lambda: sandbox.applied(commit), "it goes on when the network is back")
        eventually(lambda: commit in sandbox.status("shop/workload/web.yaml"), "and reports")
        assert sandbox.condition("SourceReachable") == "true Fetched"
        assert daemon.stop() == 0
        assert TOKEN not in daemon.log_file.read_text()


def test_a_push_that_fails_is_a_condition_and_never_a_failed_run(
    remote: tuple[DaemonSandbox, HttpsServer, dict[str, str]],
) -> None:
    sandbox, _, environ = remote
    sandbox.repo.git("config", "http.receivepack", "false")
    with sandbox.daemon(**environ) as daemon:
        eventually(lambda: sandbox.condition("StatusPushed").startswith("false "), "the condition reports it")
        eventually(lambda: sandbox.condition("Ready") == "true Applied", "the run is well")
        sandbox.repo.git("config", "http.receivepack", "true")
        eventually(
            lambda: "health: Recorded" in sandbox.status("shop/workload/api.yaml"), "it is pushed when it can be"
        )
        eventually(lambda: sandbox.condition("StatusPushed") == "true Pushed", "and the condition reports it")
        assert daemon.logged("reconciled", outcome="failed") == []
        assert STATUS in sandbox.repo.git("for-each-ref", "--format=%(refname)")
