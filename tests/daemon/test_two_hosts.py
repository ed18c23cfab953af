"""Two daemons on one repository, each with its own state directory: both work, and no status is overwritten."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.support.git import GitRepo
from tests.support.sandbox import SHOP, DaemonSandbox, eventually, workload

LOCATIONS = "".join(f"---\nkind: location\nname: {place}\nprovider: byok\n" for place in ("here", "there"))


def host(path: Path, repo: GitRepo, location: str, branch: str = "") -> DaemonSandbox:
    """A host that serves one of the locations."""
    sandbox = DaemonSandbox(path)
    sandbox.repo = repo
    branch = branch or f"reconciler/status-{location}"
    source = sandbox.source(url=str(repo.path), interval="1s", status={"interval": "100ms", "branch": branch})
    sandbox.configure(sources=[source], locations={location: {"engine": "recorded"}})
    return sandbox


def status_file(sandbox: DaemonSandbox, location: str, path: str) -> str:
    """A file of the host's status branch; "" where it is not there."""
    try:
        return sandbox.repo.git("show", f"reconciler/status-{location}:{path}")
    except RuntimeError:
        return ""


def is_reported(sandbox: DaemonSandbox, place: str, commit: str) -> bool:
    """Whether the host's status branch is about ``commit``."""
    return commit in status_file(sandbox, place, "reconciler.yaml")


def test_two_hosts_share_a_repository_without_conflicts(tmp_path: Path) -> None:
    shared = DaemonSandbox(tmp_path / "shared", {**SHOP, "_org/locations.yaml": LOCATIONS}).repo
    here, there = host(tmp_path / "one", shared, "here"), host(tmp_path / "two", shared, "there")
    with here.daemon() as one, there.daemon() as two:
        for files in ({}, {"shop/web.yaml": workload("web")}):
            commit = shared.commit(files) if files else shared.git("rev-parse", "main")
            for sandbox, place in ((here, "here"), (there, "there")):
                eventually(partial(sandbox.applied, commit), f"{place} has it")
                eventually(partial(is_reported, sandbox, place, commit), f"{place} reports it")
        assert {key for key in here.recorded() if "workload" in key} == {
            "workload/shop/api@here",
            "workload/shop/web@here",
        }
        assert {key for key in there.recorded() if "workload" in key} == {
            "workload/shop/api@there",
            "workload/shop/web@there",
        }
        assert "here" in status_file(here, "here", "shop/workload/web.yaml")
        for daemon in (one, two):
            assert daemon.logged("reconciled", outcome="failed") == []
            assert not [line for line in daemon.log() if line.get("level") == "error"]


def test_a_second_host_writes_no_status_until_it_takes_the_branch(tmp_path: Path) -> None:
    shared = DaemonSandbox(tmp_path / "shared", {**SHOP, "_org/locations.yaml": LOCATIONS}).repo
    hosts = [host(tmp_path / place, shared, place, "reconciler/status-both") for place in ("here", "there")]
    here, there = hosts
    with here.daemon():
        eventually(lambda: here.condition("StatusPushed") == "true Pushed", "the first host writes its status")
        with there.daemon() as second:
            eventually(lambda: "StatusBranchTaken" in there.condition("StatusPushed"), "the second one says so")
            eventually(lambda: second.logged("status", reason="StatusBranchTaken"), "its log says so, too")
            shown = there.run("status")
            assert str(here.state) in shown.stdout
            assert "reconciler apply --take-status-branch" in shown.stdout
            commit = shared.commit({"shop/web.yaml": workload("web")})
            eventually(partial(there.applied, commit), "it applies new commits all the same")
            eventually(partial(is_reported, here, "both", commit), "and the first one reports them")
            assert str(here.state) in status_file(here, "both", "reconciler.yaml")
            assert "error" not in there.run("apply", "--take-status-branch").stderr
            eventually(lambda: there.condition("StatusPushed") == "true Pushed", "the second host has the branch")
            commit = shared.commit({"shop/more.yaml": workload("more")})
            eventually(partial(is_reported, there, "both", commit), "and reports what comes")
            eventually(lambda: "StatusBranchTaken" in here.condition("StatusPushed"), "the first one says so")
            assert str(there.state) in status_file(there, "both", "reconciler.yaml")
