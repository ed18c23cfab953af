"""`reconciler apply --wait` where workloads really run: what it waits for, what it shows meanwhile, and its timeout."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.sandbox import eventually
from tests.support.terminal import terminal

API = "workload/shop/api@here"
SOON = ["-c", "while :; do sleep 0.1; done"]


def gated(gate: Path) -> str:
    """A workload that is not ready before the file ``gate`` is there."""
    probe = {"exec": {"command": ["test", "-e", str(gate)]}, "periodSeconds": 1, "failureThreshold": 1}
    made = served("api", command="/bin/sh", args=SOON, ports=None, readinessProbe=probe)
    return made.replace('"image": "none"', '"image": "none:1"')


def shown(sandbox: HostSandbox, name: str = "api") -> Any:
    """A workload as JSON shows it."""
    return json.loads(sandbox.run("get", "workload", name, "-o", "json").stdout)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[HostSandbox]:
    """A workload of two replicas that wait for the file ``gate``; nothing is applied yet."""
    with host_sandbox(tmp_path / "site", {"shop/api.yaml": gated(tmp_path / "gate")}) as sandbox:
        yield sandbox


ALONE = "there is no daemon to probe, restart or scale them: reconciler run"


def test_without_a_daemon_it_ends_when_all_is_healthy_and_watched_by_nothing(
    sandbox: HostSandbox, tmp_path: Path
) -> None:
    (tmp_path / "gate").touch()
    result = sandbox.run("apply", "--wait", "--timeout", "60")
    assert (result.returncode, result.stderr) == (0, f"warning: 2 of 2 replicas run; {ALONE}\n")
    [line] = result.stdout.splitlines()
    assert (line.split(" at ")[0], line.split(": ")[-1]) == ("main: applied", "2 created")
    assert sandbox.healthy(API)
    conditions = {each["type"]: each for each in shown(sandbox)["conditions"]}
    assert conditions["Ready"]["status"]
    assert conditions["NotEnforced"]["message"].startswith("at here: ")
    assert "NotEnforced" in sandbox.run("describe", "workload/shop/api").stdout
    assert "type: NotEnforced\n    status: true\n" in sandbox.status("shop/workload/api.yaml")


def test_in_vain_it_names_what_is_not_healthy_and_why(sandbox: HostSandbox) -> None:
    broken = served("bad", replicas=1, command="/bin/sh", args=["-c", "exit 3"], ports=None, readinessProbe=None)
    sandbox.repo.commit({"shop/bad.yaml": broken})

    def complain() -> subprocess.CompletedProcess[str] | None:
        """What it says once both were tried: on a busy machine that is later than its patience."""
        done = sandbox.run("apply", "--wait", "--timeout", "3")
        return done if "exit code 1" in done.stderr and "ended with 3" in done.stderr else None

    result = eventually(complain, "both have failed")
    assert result is not None
    assert result.returncode == 1
    alone, first, api, bad, more = result.stderr.splitlines()
    assert alone.startswith("warning: ")
    assert first == "error: not everything is healthy after 3 s:"
    assert api.startswith(f"  {API}  2 of 2 replicas updated, 0 available; api-")
    assert api.endswith(": main: the readiness probe failed: exit code 1")
    assert bad.startswith("  workload/shop/bad@here  1 of 1 replicas updated, 0 available; bad-")
    assert bad.endswith(": main: ended with 3 (Error)")
    assert more == "  what they wrote last: reconciler status"
    message = bad.replace("  workload/shop/bad@here  ", "not healthy at here: ")
    assert shown(sandbox, "bad")["conditions"][0]["message"] == message
    assert message in sandbox.status("shop/workload/bad.yaml"), "the last round is in the status"


@pytest.mark.parametrize("with_daemon", [False, True])
def test_a_terminal_shows_how_far_it_is_until_it_is_over(
    sandbox: HostSandbox, tmp_path: Path, with_daemon: bool
) -> None:
    with sandbox.daemon() if with_daemon else nullcontext():
        eventually(lambda: API in sandbox.recorded() or not with_daemon, "it is applied")
        command = [*sandbox.command, "apply", "--wait", "--timeout", "60"]
        with terminal(command, sandbox.environ, 200) as live:
            shown = live.until(lambda screen: "0 available; api-" in screen, "how far the workload is")
            assert shown.startswith(f"{API}  2 of 2 replicas updated, 0 available; ")
            assert len(shown.splitlines()) == 1
            (tmp_path / "gate").touch()
            left = live.ended().splitlines()
            assert live.process.returncode == 0, left
            assert len(left) == 1, "what it showed is gone"
            assert left[0].startswith("main: unchanged at " if with_daemon else "main: applied at ")
            assert live.written.count("\x1b[?25l") == live.written.count("\x1b[?25h") == 1
        assert sandbox.healthy(API)


@pytest.mark.slow
def test_without_a_terminal_a_line_comes_each_ten_seconds(sandbox: HostSandbox) -> None:
    result = sandbox.run("apply", "--wait", "--timeout", "12")
    [line] = [line for line in result.stderr.splitlines() if line.startswith("waiting: ")]
    assert line.startswith(f"waiting: {API}  2 of 2 replicas updated, 0 available; ")


def test_waiting_for_long_makes_few_runs(sandbox: HostSandbox) -> None:
    with sandbox.daemon() as daemon:
        eventually(lambda: API in sandbox.recorded(), "it is applied")
        assert sandbox.run("apply", "--wait", "--timeout", "5").returncode == 1
        assert 2 <= len(daemon.logged("reconciled", reason="apply")) < 20


def test_without_a_daemon_a_run_starts_what_it_has_made(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"command": "sleep", "args": ["100000"], "ports": None, "readinessProbe": None}
    files = {f"shop/{name}.yaml": served(name, **plain) for name in ("ant", "bee", "cat")}
    with host_sandbox(tmp_path / "site", files) as sandbox:
        done = sandbox.run("apply")
        assert (done.returncode, done.stderr) == (0, f"warning: 6 of 6 replicas run; {ALONE}\n")
        eventually(lambda: len(sandbox.programs()) == 6, "the wrapper of each replica has started its program")
        sandbox.repo.commit({"shop/db.yaml": served("db", replicas=3, type="stateful", **plain)})
        done = sandbox.run("apply")
        others = "there is no daemon to start the others, or to probe, restart or scale them: reconciler run"
        assert (done.returncode, done.stderr) == (1, f"warning: 7 of 9 replicas run; {others}\n")
        done = sandbox.run("apply", "--wait", "--timeout", "60")
        assert (done.returncode, done.stderr) == (0, f"warning: 9 of 9 replicas run; {ALONE}\n")
        eventually(lambda: len(sandbox.programs()) == 9, "the wrapper of each replica has started its program")


BY = r"\(Change, Ada\)"
DONE = "(?:the daemon|an earlier `apply`)"


def dependent(name: str, on: str) -> str:
    """A workload that is made only once ``on`` is healthy."""
    body = json.loads(served(name, command="/bin/sh", args=SOON, ports=None, readinessProbe=None))
    return json.dumps(body | {"tags": {"reconciler/depends-on": f"workload/{on}"}})


def test_all_that_was_done_for_a_commit_is_summed_up_over_several_runs(sandbox: HostSandbox, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    commit = sandbox.repo.commit({"shop/web.yaml": dependent("web", "api"), "shop/last.yaml": dependent("last", "web")})
    result = sandbox.run("apply", "--wait", "--timeout", "60")
    done = f"main: applied at main@sha1:{commit[:12]} (Change, Ada): 4 created\n"
    assert (result.returncode, result.stdout) == (0, done)


def test_apply_sums_up_what_the_daemon_did_for_the_commit(sandbox: HostSandbox, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    with sandbox.daemon():
        eventually(lambda: sandbox.healthy(API), "the first commit is applied")
        (tmp_path / "gate").unlink()
        newer = gated(tmp_path / "gate").replace("none:1", "none:2")
        files = {"shop/api.yaml": newer, "shop/web.yaml": dependent("web", "api"), "shop/z.yaml": dependent("z", "web")}
        commit = sandbox.repo.commit(files)
        eventually(lambda: sandbox.applied(commit), "the daemon has begun with it")
        (tmp_path / "gate").touch()
        counts = "2 created, 1 updated"
        result = sandbox.run("apply", "--wait", "--timeout", "60")
        assert (result.returncode, result.stderr) == (0, "")
        assert re.fullmatch(
            rf"main: (applied at main@sha1:{commit[:12]} {BY}: {counts}|"
            rf"unchanged at main@sha1:{commit[:12]} {BY}: nothing to do; {DONE} applied it at \S+Z: {counts})\n",
            result.stdout,
        ), result.stdout
        result = sandbox.run("apply")
        again = rf"main: unchanged at .*: nothing to do; {DONE} applied it at \S+Z: {counts}\n"
        assert re.fullmatch(again, result.stdout)


def test_it_waits_for_a_delete_as_for_the_rest(tmp_path: Path) -> None:
    slow = served(
        "slow",
        replicas=1,
        command="/bin/sh",
        ports=None,
        readinessProbe=None,
        args=["-c", "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done"],
    )
    with host_sandbox(tmp_path / "site", {"shop/slow.yaml": slow}) as sandbox:
        assert sandbox.run("apply", "--wait", "--timeout", "60").returncode == 0
        assert sandbox.programs()
        sandbox.repo.commit({"shop/slow.yaml": None})
        result = sandbox.run("apply", "--wait", "--timeout", "60")
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.endswith(": 1 deleted\n")
        assert not sandbox.programs()
        assert "workload/shop/slow@here" not in sandbox.recorded()
