"""An approval survives a run that is cut short, and covers nothing else."""

from __future__ import annotations

from pathlib import Path

from tests.crash.harness import PHASES, CrashHarness, Kill, assert_same
from tests.support.sandbox import eventually


def approved(path: Path) -> CrashHarness:
    """A sandbox where many deletes have just been approved."""
    harness = CrashHarness.create(path)
    harness.sandbox.configure(prune={"count": 2, "percent": 100})
    harness.sandbox.repo.commit(PHASES[0])
    harness.finish()
    harness.sandbox.repo.commit(PHASES[2])
    with harness.daemon() as daemon:
        [run] = eventually(lambda: daemon.logged("reconciled", outcome="waiting"), "deletes wait")
        assert daemon.stop() == 0
    assert harness.sandbox.run("approve", run["approve"]).returncode == 0
    return harness


def test_approved_deletes_go_on_after_a_crash(tmp_path: Path) -> None:
    peace, harness = approved(tmp_path / "peace"), approved(tmp_path / "crash")
    expected = peace.finish()
    assert len(expected.records) < 220
    for point in ("perform:30", "committed:4", "performed:12"):
        harness.let_die(Kill(point))
        harness.check()
    assert set(harness.points) == {"perform", "committed", "performed"}
    assert_same([harness.finish()], [expected])
    with harness.sandbox.records() as records:
        assert records.approvals.valid(0.0) == frozenset()


def test_an_approval_is_good_for_one_time(tmp_path: Path) -> None:
    harness = approved(tmp_path)
    harness.let_die(Kill("perform:30"))
    harness.finish()
    first = {path: text for path, text in PHASES[0].items() if path in PHASES[2]}
    harness.sandbox.repo.commit(first)
    harness.finish()
    before = harness.records().keys()
    harness.sandbox.repo.commit(PHASES[2])
    with harness.daemon() as daemon:
        eventually(lambda: daemon.logged("reconciled", outcome="waiting"), "the same deletes wait again")
        assert daemon.stop() == 0
    assert harness.sandbox.recorded().keys() == before
