"""A failing source never undoes what is applied; the failure is reported and ends with its cause."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support import processes
from tests.support.git import GitRepo, HttpsServer
from tests.support.sandbox import SHOP, STATUS, Running, ServiceManager, Site, eventually, workload

BROKEN = workload("api").replace("containers", "contianers")
API = ["gvc/shop", "workload/shop/api@here", "workload/shop/api@there"]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A shop whose source is polled every second."""
    site = Site(tmp_path)
    site.configure(sources=[site.source(interval="1s")])
    return site


@pytest.fixture
def daemon(site: Site) -> Iterator[Running]:
    """A daemon that has applied the shop."""
    with site.daemon() as running:
        eventually(
            lambda: sorted(site.recorded()) == API and site.status("README.md"), "the shop is applied and published"
        )
        yield running


def test_a_refused_revision_leaves_the_last_good_one_applied(site: Site, daemon: Running) -> None:
    before = site.recorded()
    bad = site.repo.commit({"shop/api.yaml": BROKEN, "shop/web.yaml": workload("web")})
    eventually(lambda: "InvalidRevision" in site.status("reconciler.yaml"), "the branch reports it")
    assert site.recorded() == before
    assert site.condition("Ready") == "false InvalidRevision"
    assert "shop/api.yaml:4:3" in site.status("reconciler.yaml")
    assert "shop/api.yaml:4:3" in site.status("README.md")
    [run] = daemon.logged("reconciled", outcome="refused")[:1]
    assert run["revision"] == f"main@sha1:{bad}"
    with site.records() as records:
        assert {event.key for event in records.events.list() if event.reason == "InvalidRevision"} != set()
    good = site.repo.commit({"shop/api.yaml": workload("api", 7001)})
    eventually(lambda: good in site.status("shop/workload/web.yaml"), "the next good one is applied whole")
    eventually(lambda: "InvalidRevision" not in site.status("README.md"), "all is well again")


def test_a_branch_that_goes_back_to_the_last_good_revision_is_well_again(site: Site, daemon: Running) -> None:
    good = site.repo.git("rev-parse", "main")
    site.repo.commit({"shop/api.yaml": BROKEN})
    eventually(lambda: site.condition("Ready") == "false InvalidRevision", "it is refused")
    site.repo.git("update-ref", "refs/heads/main", good)
    eventually(lambda: site.condition("Ready") == "true Applied", "the condition reports it")
    eventually(lambda: "InvalidRevision" not in site.status("README.md"), "the branch reports it")


def test_a_daemon_that_begins_with_a_refused_revision_reads_it_once(site: Site) -> None:
    site.repo.commit({"shop/api.yaml": BROKEN})
    with ServiceManager(site.path) as systemd, site.daemon(**systemd.environ) as daemon:
        eventually(lambda: daemon.logged("reconciled", outcome="refused"), "it is refused")
        eventually(lambda: systemd.notifications().count("STATUS=main: reading (poll)") >= 2, "it is read again")
        good = site.repo.commit(SHOP)
        eventually(lambda: site.applied(good), "the next good one is applied")
        assert len(daemon.logged("reconciled", outcome="refused")) == 1


def test_a_branch_that_is_gone_deletes_nothing(site: Site, daemon: Running) -> None:
    before = site.recorded()
    site.repo.git("update-ref", "refs/heads/kept", "main")
    site.repo.git("update-ref", "-d", "refs/heads/main")
    eventually(lambda: site.condition("SourceReachable") == "false SourceNotFound", "the condition reports it")
    eventually(lambda: "SourceNotFound" in site.status("README.md"), "the branch reports it")
    assert site.recorded() == before
    site.repo.git("update-ref", "refs/heads/main", "kept")
    eventually(lambda: site.condition("SourceReachable") == "true Fetched", "it is found again")
    eventually(lambda: "SourceNotFound" not in site.status("README.md"), "the branch reports it")
    assert site.recorded() == before


@pytest.mark.parametrize("bare", [True, False])
def test_a_repository_that_is_moved_away_deletes_nothing(tmp_path: Path, bare: bool) -> None:
    site = Site(tmp_path, bare=bare)
    site.configure(sources=[site.source(interval="1s")])
    away = site.path / "away.git"
    with site.daemon() as daemon:
        eventually(
            lambda: sorted(site.recorded()) == API and site.status("README.md"), "the shop is applied and published"
        )
        before = site.recorded()
        site.repo.path.rename(away)
        eventually(lambda: site.condition("SourceReachable").startswith("false Source"), "the condition reports it")
        eventually(lambda: daemon.logged("status", pushed=False), "status finds no place to be written to")
        assert site.recorded() == before
        commit = GitRepo(away).commit({"shop/web.yaml": workload("web")})
        away.rename(site.repo.path)
        eventually(lambda: site.applied(commit), "it goes on when the repository is back")
        eventually(lambda: commit in site.status("shop/workload/web.yaml"), "and reports")
        assert daemon.stop() == 0


def test_a_repository_that_is_replaced_by_a_clone_is_followed(site: Site, daemon: Running) -> None:
    clone = site.repo.clone_bare(site.path / "clone.git")
    shutil.rmtree(site.repo.path)
    clone.path.rename(site.repo.path)
    commit = GitRepo(site.repo.path).commit({"shop/web.yaml": workload("web")})
    eventually(lambda: site.applied(commit), "what is committed to the new one is applied")
    eventually(lambda: commit in site.status("shop/workload/web.yaml"), "and reported there")
    assert daemon.stop() == 0


def test_an_empty_tree_deletes_nothing(site: Site, daemon: Running) -> None:
    before = site.recorded()
    site.repo.commit({"README.md": "moved elsewhere"}, whole=True)
    eventually(lambda: site.condition("SourceReachable") == "false SourceEmpty", "the condition reports it")
    assert site.recorded() == before


@pytest.mark.parametrize("allowed", [False, True])
def test_rewritten_history_is_followed_only_where_that_is_allowed(tmp_path: Path, allowed: bool) -> None:
    site = Site(tmp_path)
    site.configure(sources=[site.source(interval="1s", allowRewrite=allowed)])
    with site.daemon():
        eventually(lambda: sorted(site.recorded()) == API, "the shop is applied")
        old = site.repo.git("rev-parse", "main")
        new = site.repo.commit(SHOP | {"shop/web.yaml": workload("web")}, parent="")
        if allowed:
            eventually(lambda: site.applied(new), "it is followed")
            return
        eventually(lambda: site.condition("SourceReachable") == "false SourceRewritten", "the condition reports it")
        assert sorted(site.recorded()) == API
        site.repo.git("update-ref", "refs/heads/main", old)
        good = site.repo.commit({"shop/cart.yaml": workload("cart")})
        eventually(lambda: site.applied(good), "the old history goes on")


def approved_by(site: Site, by: str, commit: str) -> CompletedProcess[str]:
    """Approve a commit as a user of this host, or as a principal."""
    return processes.reconciler("approve", commit[:12], environ={**site.environ, "SUDO_USER": by})


@pytest.mark.parametrize("four_eyes", [False, True])
def test_one_rewrite_of_history_is_followed_if_it_is_approved(tmp_path: Path, four_eyes: bool) -> None:
    site = Site(tmp_path, approvalFourEyes=four_eyes)
    site.configure(sources=[site.source(interval="1s")])
    with site.daemon():
        eventually(lambda: sorted(site.recorded()) == API, "the shop is applied")
        new = site.repo.commit(SHOP | {"shop/web.yaml": workload("web")}, parent="")
        eventually(lambda: site.condition("SourceReachable") == "false SourceRewritten", "the condition reports it")
        assert f"reconciler approve {new[:12]}" in site.condition_message("SourceReachable")
        assert site.run("approve", "0" * 12).returncode == 1
        author = site.repo.git("log", "-1", "--format=%ae", new)
        if four_eyes:
            refused = approved_by(site, f"user/{author}", new)
            assert (refused.returncode, "another person approves it" in refused.stderr) == (1, True), refused
        done = approved_by(site, "ann", new)
        assert f"accepted the rewritten history of main, from {new[:12]} on, as ann" in done.stdout, done
        eventually(lambda: site.applied(new), "it is followed")
        again = site.repo.commit(SHOP, parent="")
        eventually(lambda: site.condition("SourceReachable") == "false SourceRewritten", "another one is not")
        assert again[:12] in site.condition_message("SourceReachable")


def test_a_resource_in_two_sources_is_a_finding_in_the_second(tmp_path: Path) -> None:
    site = Site(tmp_path)
    second = GitRepo.create(tmp_path / "second.git", {"api.yaml": workload("api", 7002, "gvc: shop\n")})
    site.configure(sources=[site.source(interval="1s"), site.source("second", interval="1s")])
    with site.daemon():
        eventually(lambda: site.condition("Ready", "second") == "false InvalidRevision", "the second is refused")
        assert sorted(site.recorded()) == API
        assert {record.source for record in site.recorded().values()} == {"main"}
        eventually(lambda: "workload/shop/api" in site.status("reconciler.yaml", second), "it names the resource")
        assert "main" in site.condition_message("Ready", "second")
        site.repo.commit({"shop/api.yaml": None, "shop/web.yaml": workload("web")})
        second.commit({"more.yaml": workload("more", 7003, "gvc: shop\n")})
        eventually(
            lambda: {record.source for key, record in site.recorded().items() if "shop/api" in key} == {"second"},
            "what the first gives up the second may have",
        )
        eventually(lambda: "workload/shop/more@here" in site.recorded(), "with all else it brings")


def test_on_invalid_skip_applies_the_rest(tmp_path: Path) -> None:
    site = Site(tmp_path, onInvalid="skip")
    with site.daemon():
        eventually(lambda: sorted(site.recorded()) == API, "the shop is applied")
        commit = site.repo.commit({"shop/api.yaml": BROKEN, "shop/web.yaml": workload("web")})
        eventually(lambda: commit in site.status("shop/workload/web.yaml"), "the rest is applied")
        recorded = site.recorded()
        assert recorded["workload/shop/api@here"].version == 1
        eventually(lambda: "shop/api.yaml:" in site.status("README.md"), "the branch names what is left out")
        assert site.condition("Ready") == "false InvalidFiles"
        good = site.repo.commit({"shop/api.yaml": workload("api", 7001)})
        eventually(lambda: good in site.status("shop/workload/api.yaml"), "what was skipped comes later")
        eventually(lambda: site.condition("Ready") == "true Applied", "all is well again")
    with site.records() as records:
        first, *later = [event.message for event in records.events.list() if event.reason == "InvalidFiles"]
        assert first.startswith(f"{commit[:12]} (")
        assert later
        assert all(message.startswith("shop/api.yaml:") for message in later)
        over = [event.message for event in records.events.list("source/main") if event.reason == "Recovered"]
        assert [message.partition(": files")[0] for message in over] == ["over: InvalidFiles"]


TOKEN = "s3cret-t0ken"


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[tuple[Site, HttpsServer, dict[str, str]]]:
    """A shop behind https, and what a daemon must know to reach it."""
    site = Site(tmp_path / "host")
    (tmp_path / "served").mkdir()
    site.repo.path.rename(tmp_path / "served" / "main.git")
    site.repo = GitRepo(tmp_path / "served" / "main.git")
    site.repo.git("config", "http.receivepack", "true")
    (tmp_path / "token").write_text(TOKEN)
    with HttpsServer(tmp_path / "served", tmp_path, TOKEN) as server:
        source = site.source(url=server.url("main.git"), interval="1s", timeout="2s")
        site.configure(sources=[source | {"credentials": {"username": "ada", "tokenFile": str(tmp_path / "token")}}])
        yield site, server, {"GIT_SSL_CAINFO": str(server.certificate), "no_proxy": "127.0.0.1"}


def test_a_remote_is_followed_from_push_to_pushed_status(remote: tuple[Site, HttpsServer, dict[str, str]]) -> None:
    site, server, environ = remote
    with site.daemon(**environ) as daemon:
        eventually(lambda: "health: Recorded" in site.status("shop/workload/api.yaml"), "status is pushed")
        assert sorted(site.recorded()) == API
        server.trouble = "cut"
        commit = site.repo.commit({"shop/web.yaml": workload("web")})
        eventually(lambda: site.condition("SourceReachable") == "false SourceUnreachable", "the network is gone")
        assert sorted(site.recorded()) == API
        server.trouble = ""
        eventually(lambda: site.applied(commit), "it goes on when the network is back")
        eventually(lambda: commit in site.status("shop/workload/web.yaml"), "and reports")
        assert site.condition("SourceReachable") == "true Fetched"
        assert daemon.stop() == 0
        assert TOKEN not in daemon.log_file.read_text()


def test_a_push_that_fails_is_a_condition_and_never_a_failed_run(
    remote: tuple[Site, HttpsServer, dict[str, str]],
) -> None:
    site, _, environ = remote
    site.repo.git("config", "http.receivepack", "false")
    with site.daemon(**environ) as daemon:
        eventually(lambda: site.condition("StatusPushed").startswith("false "), "the condition reports it")
        eventually(lambda: site.condition("Ready") == "true Applied", "the run is well")
        site.repo.git("config", "http.receivepack", "true")
        eventually(lambda: "health: Recorded" in site.status("shop/workload/api.yaml"), "it is pushed when it can be")
        eventually(lambda: site.condition("StatusPushed") == "true Pushed", "and the condition reports it")
        assert daemon.logged("reconciled", outcome="failed") == []
        assert STATUS in site.repo.git("for-each-ref", "--format=%(refname)")
