"""A source that leaves the settings: what it owned stays, through a restart and through a reload, until it is taken."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.git import GitRepo
from tests.support.sandbox import Site, eventually, workload

SIDE = "workload/shop/side@here"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A shop, and another source with a workload in it."""
    site = Site(tmp_path)
    GitRepo.create(tmp_path / "side.git", {"shop/side.yaml": workload("side", more="gvc: shop\n")})
    site.configure(sources=[site.source(), site.source("side")])
    return site


def _change(site: Site) -> None:
    """One more commit of the source that stays, applied."""
    commit = site.repo.commit({"shop/api.yaml": workload("api", 8081)})
    eventually(lambda: site.applied(commit), "the source that stays goes on")


def test_resources_stay_when_the_daemon_starts_without_their_source(site: Site) -> None:
    with site.daemon() as daemon:
        eventually(lambda: SIDE in site.recorded(), "both are applied")
        daemon.stop()
    site.configure(sources=[site.source()])
    with site.daemon() as daemon:
        _change(site)
        assert SIDE in site.recorded()
        assert not daemon.logged("reconciled", source="side")


@pytest.mark.parametrize("words", [["--all-of", "side"], ["workload/shop/side"]], ids=["all", "one"])
def test_resources_of_a_source_that_leaves_the_settings_stay_until_adopted(site: Site, words: list[str]) -> None:
    with site.daemon() as daemon:
        eventually(lambda: SIDE in site.recorded(), "both are applied")
        site.configure(sources=[site.source()])
        daemon.signal(signal.SIGHUP)
        eventually(lambda: daemon.logged("settings", loaded=True), "the settings are taken")
        _change(site)
        assert SIDE in site.recorded()
        result = site.run("adopt", *words, "--source", "main")
        assert result.returncode == 0, result.stderr
        eventually(lambda: SIDE not in site.recorded(), "its new owner has it not in Git")
        eventually(lambda: not site.status("shop/workload/side.yaml"), "its status goes with it")
