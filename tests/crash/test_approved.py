"""An approval survives a run that is cut short, and covers nothing else."""

from __future__ import annotations

from pathlib import Path

from tests.crash.harness import PHASES, CrashSite, Kill, assert_same
from tests.support.sandbox import eventually


def approved(path: Path) -> CrashSite:
    """A site where many deletes have just been approved."""
    site = CrashSite.create(path)
    site.site.configure(prune={"count": 2, "percent": 100})
    site.site.repo.commit(PHASES[0])
    site.finish()
    site.site.repo.commit(PHASES[2])
    with site.daemon() as daemon:
        [run] = eventually(lambda: daemon.logged("reconciled", outcome="waiting"), "deletes wait")
        assert daemon.stop() == 0
    assert site.site.run("approve", run["approve"]).returncode == 0
    return site


def test_approved_deletes_go_on_after_a_crash(tmp_path: Path) -> None:
    peace, site = approved(tmp_path / "peace"), approved(tmp_path / "crash")
    expected = peace.finish()
    assert len(expected.records) < 220
    for point in ("perform:30", "committed:4", "performed:12"):
        site.let_die(Kill(point))
        site.check()
    assert set(site.points) == {"perform", "committed", "performed"}
    assert_same([site.finish()], [expected])
    with site.site.records() as records:
        assert records.approvals.valid(0.0) == frozenset()


def test_an_approval_is_good_for_one_time(tmp_path: Path) -> None:
    site = approved(tmp_path)
    site.let_die(Kill("perform:30"))
    site.finish()
    first = {path: text for path, text in PHASES[0].items() if path in PHASES[2]}
    site.site.repo.commit(first)
    site.finish()
    before = site.records().keys()
    site.site.repo.commit(PHASES[2])
    with site.daemon() as daemon:
        eventually(lambda: daemon.logged("reconciled", outcome="waiting"), "the same deletes wait again")
        assert daemon.stop() == 0
    assert site.site.recorded().keys() == before
