"""Requests of operators to a running daemon: it obeys at once, and ends a timed one by itself."""

from __future__ import annotations

from pathlib import Path

from tests.support.sandbox import Site, eventually, workload


def quiet(path: Path) -> Site:
    """A site whose source is not polled for an hour."""
    site = Site(path)
    site.configure(sources=[site.source(interval="1h")])
    return site


def test_a_suspended_source_waits_and_goes_on_by_itself_when_its_time_is_over(tmp_path: Path) -> None:
    site = quiet(tmp_path)
    with site.daemon():
        eventually(lambda: "workload/shop/api@here" in site.recorded(), "the first commit is applied")
        assert site.run("suspend", "main", "--until", "2s", "--reason", "a freeze").returncode == 0
        eventually(lambda: site.condition("Suspended") == "true Suspended", "the daemon has obeyed")
        assert "a freeze" in site.condition_message("Suspended")
        commit = site.repo.commit({"shop/web.yaml": workload("web")})
        assert site.run("sync").returncode == 0
        assert not site.applied(commit)
        eventually(lambda: site.applied(commit), "the suspension is over")
        eventually(lambda: site.condition("Suspended") == "", "and no longer reported")


def test_a_rollback_is_done_at_once_and_lasts_until_resume(tmp_path: Path) -> None:
    site = quiet(tmp_path)
    first = site.repo.git("rev-parse", "main")
    with site.daemon():
        eventually(lambda: "workload/shop/api@here" in site.recorded(), "the first commit is applied")
        commit = site.repo.commit({"shop/web.yaml": workload("web")})
        site.run("sync")
        eventually(lambda: site.applied(commit), "the second commit is applied")
        assert site.run("rollback", "main", first).returncode == 0
        eventually(lambda: "workload/shop/web@here" not in site.recorded(), "the first commit is back")
        eventually(lambda: site.applied(first), "and published")
        newer = site.repo.commit({"shop/web.yaml": workload("web", 9000)})
        site.run("sync")
        assert site.run("apply").returncode == 0
        assert site.applied(first)
        assert site.run("resume", "main").returncode == 0
        eventually(lambda: site.applied(newer), "it follows the branch again")


def test_the_daemon_carries_out_a_saved_plan_or_reports_what_moved(tmp_path: Path) -> None:
    site = quiet(tmp_path)
    site.configure(approval="always")
    plan = str(tmp_path / "plan.json")
    with site.daemon():
        eventually(lambda: "ApprovalRequired" in site.condition("Ready"), "the first commit waits")
        assert site.run("plan", "--out", plan).returncode == 0
        site.repo.commit({"shop/web.yaml": workload("web")})
        moved = site.run("apply", "--plan", plan).stdout
        assert "the plan is not the one that was saved: now also: create workload/shop/web@here; " in moved
        site.run("plan", "--out", plan)
        waiting = site.run("apply", "--plan", plan).stdout
        assert "main: waiting at" in waiting
        digest = waiting.split()[-1]
        assert site.run("approve", digest).returncode == 0
        eventually(lambda: "workload/shop/web@here" in site.recorded(), "what was approved is done")
