"""The daemon as a process: commits wake it, signals end it, commands send it requests."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pygit2

from reconciler.daemon.file_watch import STEP_SECONDS
from reconciler.daemon.lock import find_lock_holder
from tests.support.git import File, GitRepo
from tests.support.sandbox import GVC, SHOP, DaemonSandbox, ServiceManager, eventually, workload


def test_a_commit_is_applied_and_reported_on_the_status_branch(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    with sandbox.daemon(fresh=True) as daemon:
        eventually(lambda: "workload/shop/api@here" in sandbox.recorded(), "the first commit is applied")
        assert sorted(sandbox.recorded()) == ["gvc/shop", "workload/shop/api@here", "workload/shop/api@there"]
        commit = sandbox.repo.commit({"shop/api.yaml": workload("api", 8081), "shop/web.yaml": workload("web")})
        eventually(lambda: commit in sandbox.status("shop/workload/web.yaml"), "the second is published")
        versions = {key: record.version for key, record in sandbox.recorded().items()}
        assert (versions["workload/shop/api@here"], versions["workload/shop/web@there"]) == (2, 1)
        eventually(lambda: commit in sandbox.status("reconciler.yaml"), "the run is published")
        assert daemon.logged(
            "reconciled", source="main", outcome="applied", created=2, revision=f"main@sha1:{_first(sandbox)}"
        )


def test_a_moved_ref_wakes_at_once(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    sandbox.configure(sources=[sandbox.source(interval="1h")])
    ports = iter(range(7000, 7100))
    with sandbox.daemon() as daemon:
        eventually(lambda: "workload/shop/api@here" in sandbox.recorded(), "the first commit is applied")
        # A commit is noticed once the kernel watches; no event reports when that is.
        commits: list[str] = []
        while not any(_soon(lambda: sandbox.applied(commits[-1])) for _ in commits[-1:]):
            commits.append(sandbox.repo.commit({"shop/api.yaml": workload("api", next(ports))}))
        eventually(
            lambda: daemon.logged("reconciled", reason="ref", revision=f"main@sha1:{commits[-1]}"), "a run for the ref"
        )


def test_a_daemon_at_rest_sleeps(tmp_path: Path) -> None:
    """Its event loop wakes once or twice a second, and only the watch of files wakes besides: once a step."""
    sandbox = DaemonSandbox(tmp_path)
    sandbox.configure(sources=[sandbox.source(interval="1h")])
    with sandbox.daemon(fresh=True) as daemon:
        eventually(lambda: "workload/shop/api@here" in sandbox.recorded(), "the first commit is applied")
        eventually(lambda: _sleeps(daemon.process.pid, 2.0), "it sleeps")


def _sleeps(pid: int, seconds: float) -> bool:
    """Whether the threads of a process wake seldom in so many ``seconds``."""
    before = _switches(pid)
    time.sleep(seconds)
    woken = {thread: count - before.get(thread, 0) for thread, count in _switches(pid).items()}
    steps = seconds / STEP_SECONDS
    return woken[pid] < 20 and sum(woken.values()) < steps + 30


def _switches(pid: int) -> dict[int, int]:
    """How often each thread of a process was woken."""
    texts = {int(task.name): (task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()}
    return {thread: int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for thread, text in texts.items()}


def test_a_burst_of_commits_becomes_few_runs_that_end_at_the_newest(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    with sandbox.daemon() as daemon:
        eventually(lambda: "workload/shop/api@here" in sandbox.recorded(), "the first commit is applied")
        parent = sandbox.repo.git("rev-parse", "main")
        commits = [parent := sandbox.repo.commit(_port(n), branch="work", parent=parent) for n in range(7000, 7020)]
        main = pygit2.Repository(str(sandbox.repo.path)).branches.local["main"]
        for commit in commits:
            main.set_target(commit)
        eventually(lambda: sandbox.applied(commits[-1]), "the newest is applied")
        eventually(lambda: commits[-1] in sandbox.status("shop/workload/api.yaml"), "the newest is published")
        assert len(daemon.logged("reconciled")) <= 6
        assert sandbox.recorded()["workload/shop/api@here"].version <= 6


def test_sighup_starts_a_run_at_once(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    sandbox.configure(sources=[sandbox.source(interval="1h")])
    with sandbox.daemon() as daemon:
        eventually(lambda: daemon.logged("reconciled", reason="start"), "the first run")
        sandbox.repo.commit({"shop/web.yaml": workload("web")})
        daemon.signal(signal.SIGHUP)
        eventually(lambda: "workload/shop/web@here" in sandbox.recorded(), "it is applied")
        eventually(
            lambda: [one for one in daemon.logged("reconciled") if "SIGHUP" in one["reason"]], "a run for the signal"
        )


def test_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    sandbox.configure(sources=[sandbox.source(status={"interval": "1h"})])
    with ServiceManager(tmp_path) as systemd, sandbox.daemon(fresh=True, **systemd.environ) as daemon:
        eventually(lambda: "READY=1" in systemd.notifications(), "it is ready")
        eventually(lambda: "shop" in sandbox.status("_org/gvc/shop.yaml"), "the first status, which waits for nothing")
        commit = sandbox.repo.commit({"shop/api.yaml": workload("api", 8081)})
        eventually(lambda: sandbox.applied(commit), "the second commit is applied")
        assert commit not in sandbox.status("reconciler.yaml")
        assert find_lock_holder(sandbox.state) is not None
        assert daemon.stop() == 0
        assert "STOPPING=1" in systemd.notifications()
        assert daemon.log()[-1]["event"] == "stopped"
        assert find_lock_holder(sandbox.state) is None
        assert commit in sandbox.status("reconciler.yaml")
        assert not (sandbox.state / "wake.sock").exists()


def test_the_service_manager_gets_status_and_watchdog_messages(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    environ = {"WATCHDOG_USEC": "300000"}
    with ServiceManager(tmp_path) as systemd, sandbox.daemon(**systemd.environ, **environ):
        eventually(
            lambda: any(line.startswith("STATUS=main: applied main@") for line in systemd.notifications()), "a status"
        )
        before = systemd.notifications().count("WATCHDOG=1")
        eventually(
            lambda: systemd.notifications().count("WATCHDOG=1") >= before + 5, "it is fed while nothing is to be done"
        )


def test_a_second_daemon_names_the_holder_of_the_state_directory(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    with sandbox.daemon() as daemon:
        second = sandbox.run("run")
        assert second.returncode == 1
        assert f"in use by pid {daemon.process.pid} " in second.stderr
        assert "Traceback" not in second.stderr
        assert daemon.process.poll() is None


def test_apply_is_done_by_the_daemon_that_runs(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    sandbox.configure(sources=[sandbox.source(interval="1h")])
    with sandbox.daemon() as daemon:
        eventually(lambda: daemon.logged("reconciled", reason="start"), "the first run")
        commit = sandbox.repo.commit({"shop/web.yaml": workload("web")})
        asked = sandbox.run("apply")
        assert (asked.returncode, asked.stderr) == (0, "")
        # Where the run that it asks for comes before the one for the ref, its warnings are printed first.
        assert (
            f"main: applied at main@sha1:{commit[:12]} (Change, Ada): 1 created" in asked.stdout
            or "unchanged" in asked.stdout
        )
        assert commit in sandbox.status("shop/workload/web.yaml")
        sandbox.repo.commit({"shop/web.yaml": workload("web").replace("type: standard", "type: standrad")})
        refused = sandbox.run("apply")
        assert refused.returncode == 1
        assert "shop/web.yaml:4:9: error: " in refused.stdout
        assert "\n     4 |   type: standrad\n       |         ^^^^^^^^\n" in refused.stdout
        assert "main: refused" in refused.stdout


def test_approve_lets_deletes_go_while_a_daemon_runs(tmp_path: Path) -> None:
    names = [f"w{number}" for number in range(8)]
    sandbox = DaemonSandbox(tmp_path, SHOP | {f"shop/{name}.yaml": workload(name) for name in names})
    with sandbox.daemon() as daemon:
        eventually(lambda: "workload/shop/w7@there" in sandbox.recorded(), "all is applied")
        commit = sandbox.repo.commit({f"shop/{name}.yaml": None for name in names[:5]})
        [waiting] = eventually(lambda: daemon.logged("reconciled", outcome="waiting")[:1], "deletes wait")
        assert waiting["revision"] == f"main@sha1:{commit}"
        assert "workload/shop/w0@here" in sandbox.recorded()
        eventually(lambda: "ApprovalRequired" in sandbox.status("reconciler.yaml"), "the branch reports it")
        approved = sandbox.run("approve", waiting["approve"])
        assert (approved.returncode, approved.stderr) == (0, "")
        assert "the daemon continues with it" in approved.stdout
        eventually(lambda: "workload/shop/w0@here" not in sandbox.recorded(), "they go")
        assert sorted(key for key in sandbox.recorded() if key.endswith("@here")) == [
            "workload/shop/api@here",
            "workload/shop/w5@here",
            "workload/shop/w6@here",
            "workload/shop/w7@here",
        ]
        eventually(lambda: not sandbox.status("shop/workload/w0.yaml"), "their files go too")
        eventually(lambda: sandbox.condition("Ready") == "true Applied", "all is well again")


def test_a_restart_finds_nothing_to_do(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    with sandbox.daemon() as daemon:
        eventually(lambda: "Applied" in sandbox.status("reconciler.yaml"), "all is applied and published")
        assert daemon.stop() == 0
    before = sandbox.recorded(), sandbox.repo.git("rev-parse", "reconciler/status")
    with sandbox.daemon() as daemon:
        eventually(lambda: daemon.logged("reconciled", reason="start", outcome="unchanged"), "it polls")
        assert daemon.stop() == 0
    assert (sandbox.recorded(), sandbox.repo.git("rev-parse", "reconciler/status")) == before


def test_settings_with_a_fault_end_it_before_it_begins(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path, locations={"here": {"engine": "record"}})
    done = sandbox.run("run")
    assert done.returncode == 2
    assert "settings.yaml:1:" in done.stderr
    assert not sandbox.state.exists()


def test_nothing_that_it_started_outlives_it(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(
        tmp_path, SHOP | {f"shop/w{number:03d}.yaml": workload(f"w{number:03d}") for number in range(450)}
    )
    with sandbox.daemon() as daemon:
        eventually(lambda: daemon.logged("reconciled", reason="start"), "the first run, which uses processes to decode")
        children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text()
        assert children == ""
        assert daemon.stop() == 0
    left = subprocess.run(["pgrep", "-f", str(sandbox.settings_file)], capture_output=True, check=False)
    assert left.stdout == b""


def _port(number: int) -> dict[str, File]:
    return {"shop/api.yaml": workload("api", number)}


def _first(sandbox: DaemonSandbox) -> str:
    return sandbox.repo.git("rev-list", "--max-parents=0", "main")


def _soon(question: Callable[[], bool]) -> bool:
    try:
        eventually(question, patience=1.0)
    except AssertionError:
        return False
    return True


def test_a_change_by_another_source_is_followed_without_a_poll(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path, {"shop/gvc.yaml": GVC.replace(", //location/there", "")})
    GitRepo.create(tmp_path / "more.git", {"api.yaml": workload("api", more="gvc: shop\n")})
    sandbox.configure(sources=[sandbox.source("more", interval="1h"), sandbox.source()])
    with sandbox.daemon():
        eventually(lambda: "workload/shop/api@here" in sandbox.recorded(), "what was refused before its GVC was there")
        sandbox.repo.commit({"shop/gvc.yaml": GVC})
        eventually(lambda: "workload/shop/api@there" in sandbox.recorded(), "it follows its GVC")
