"""A source that leaves the settings: what it owned stays, through a restart and through a reload, until it is taken."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.git import GitRepo
from tests.support.sandbox import DaemonSandbox, eventually, workload

SIDE = "workload/shop/side@here"


@pytest.fixture
def sandbox(tmp_path: Path) -> DaemonSandbox:
    """A shop, and another source with a workload in it."""
    sandbox = DaemonSandbox(tmp_path)
    GitRepo.create(tmp_path / "side.git", {"shop/side.yaml": workload("side", more="gvc: shop\n")})
    sandbox.configure(sources=[sandbox.source(), sandbox.source("side")])
    return sandbox


def _change(sandbox: DaemonSandbox) -> None:
    """One more commit of the source that stays, applied."""
    commit = sandbox.repo.commit({"shop/api.yaml": workload("api", 8081)})
    eventually(lambda: sandbox.applied(commit), "the source that stays goes on")


def test_resources_stay_when_the_daemon_starts_without_their_source(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as daemon:
        eventually(lambda: SIDE in sandbox.recorded(), "both are applied")
        daemon.stop()
    sandbox.configure(sources=[sandbox.source()])
    with sandbox.daemon() as daemon:
        _change(sandbox)
        assert SIDE in sandbox.recorded()
        assert not daemon.logged("reconciled", source="side")


@pytest.mark.parametrize("words", [["--all-of", "side"], ["workload/shop/side"]], ids=["all", "one"])
def test_resources_of_a_source_that_leaves_the_settings_stay_until_adopted(
    sandbox: DaemonSandbox, words: list[str]
) -> None:
    with sandbox.daemon() as daemon:
        eventually(lambda: SIDE in sandbox.recorded(), "both are applied")
        sandbox.configure(sources=[sandbox.source()])
        daemon.signal(signal.SIGHUP)
        eventually(lambda: daemon.logged("settings", loaded=True), "the settings are taken")
        _change(sandbox)
        assert SIDE in sandbox.recorded()
        result = sandbox.run("adopt", *words, "--source", "main")
        assert result.returncode == 0, result.stderr
        eventually(lambda: SIDE not in sandbox.recorded(), "its new owner has it not in Git")
        eventually(lambda: not sandbox.status("shop/workload/side.yaml"), "its status goes with it")
