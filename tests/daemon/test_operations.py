"""Requests of operators to a running daemon: it obeys at once, and ends a timed one by itself."""

from __future__ import annotations

from pathlib import Path

from tests.support.sandbox import DaemonSandbox, eventually, workload


def quiet(path: Path) -> DaemonSandbox:
    """A sandbox whose source is not polled for an hour."""
    sandbox = DaemonSandbox(path)
    sandbox.configure(sources=[sandbox.source(interval="1h")])
    return sandbox


def test_a_suspended_source_waits_and_goes_on_by_itself_when_its_time_is_over(tmp_path: Path) -> None:
    sandbox = quiet(tmp_path)
    with sandbox.daemon():
        eventually(lambda: "workload/shop/api@here" in sandbox.recorded(), "the first commit is applied")
        assert sandbox.run("suspend", "main", "--until", "2s", "--reason", "a freeze").returncode == 0
        eventually(lambda: sandbox.condition("Suspended") == "true Suspended", "the daemon has obeyed")
        assert "a freeze" in sandbox.condition_message("Suspended")
        commit = sandbox.repo.commit({"shop/web.yaml": workload("web")})
        assert sandbox.run("sync").returncode == 0
        assert not sandbox.applied(commit)
        eventually(lambda: sandbox.applied(commit), "the suspension is over")
        eventually(lambda: sandbox.condition("Suspended") == "", "and no longer reported")


def test_a_rollback_is_done_at_once_and_lasts_until_resume(tmp_path: Path) -> None:
    sandbox = quiet(tmp_path)
    first = sandbox.repo.git("rev-parse", "main")
    with sandbox.daemon():
        eventually(lambda: "workload/shop/api@here" in sandbox.recorded(), "the first commit is applied")
        commit = sandbox.repo.commit({"shop/web.yaml": workload("web")})
        sandbox.run("sync")
        eventually(lambda: sandbox.applied(commit), "the second commit is applied")
        assert sandbox.run("rollback", "main", first).returncode == 0
        eventually(lambda: "workload/shop/web@here" not in sandbox.recorded(), "the first commit is back")
        eventually(lambda: sandbox.applied(first), "and published")
        newer = sandbox.repo.commit({"shop/web.yaml": workload("web", 9000)})
        sandbox.run("sync")
        assert sandbox.run("apply").returncode == 0
        assert sandbox.applied(first)
        assert sandbox.run("resume", "main").returncode == 0
        eventually(lambda: sandbox.applied(newer), "it follows the branch again")


def test_the_daemon_carries_out_a_saved_plan_or_reports_what_moved(tmp_path: Path) -> None:
    sandbox = quiet(tmp_path)
    sandbox.configure(approval="always")
    plan = str(tmp_path / "plan.json")
    with sandbox.daemon():
        eventually(lambda: "ApprovalRequired" in sandbox.condition("Ready"), "the first commit waits")
        assert sandbox.run("plan", "--out", plan).returncode == 0
        sandbox.repo.commit({"shop/web.yaml": workload("web")})
        moved = sandbox.run("apply", "--plan", plan).stdout
        assert "the plan is not the one that was saved: now also: create workload/shop/web@here; " in moved
        sandbox.run("plan", "--out", plan)
        waiting = sandbox.run("apply", "--plan", plan).stdout
        assert "main: waiting at" in waiting
        digest = waiting.split()[-1]
        assert sandbox.run("approve", digest).returncode == 0
        eventually(lambda: "workload/shop/web@here" in sandbox.recorded(), "what was approved is done")
