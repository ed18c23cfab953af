"""Two daemons on one repository, each with a state directory and a status branch of its own: both work."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.support.git import GitRepo
from tests.support.sandbox import SHOP, DaemonSandbox, eventually, workload

LOCATIONS = "".join(f"---\nkind: location\nname: {place}\nprovider: byok\n" for place in ("here", "there"))


def host(path: Path, repo: GitRepo, location: str) -> DaemonSandbox:
    """A host that serves one of the locations."""
    sandbox = DaemonSandbox(path)
    sandbox.repo = repo
    branch = f"reconciler/status-{location}"
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
