"""Failures of programs and of the host are reported, retried and contained."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
from functools import partial
from pathlib import Path

import pytest

from tests.support.host_sandbox import SERVER, HostSandbox, host_sandbox, served, shared_folder
from tests.support.programs import adjacent_ports, only_root, small_disk
from tests.support.sandbox import eventually

wait = partial(eventually, patience=60.0)
GOOD = served("good", replicas=1, env={"GREETING": "well"})
PLAIN = {"ports": None, "readinessProbe": None}


def reasons(sandbox: HostSandbox, key: str = "workload/shop/web") -> set[str]:
    """Reasons of the events of a workload."""
    result = sandbox.run("events", key, "-o", "json")
    return {json.loads(line)["reason"] for line in result.stdout.splitlines()}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"command": "no-such-program", "args": []}, "ProgramNotFound"),
        ({"command": "/etc/passwd", "args": []}, "/etc/passwd"),
        ({"command": "python3", "args": ["-c", "raise SystemExit(3)"], **PLAIN}, "ended with 3"),
        pytest.param({"command": "python3", "args": ["-c", "pass"], **PLAIN}, "ended with 0", marks=pytest.mark.slow),
        pytest.param({"workingDir": "/no/such/directory"}, "/no/such/directory", marks=pytest.mark.slow),
    ],
    ids=["missing binary", "no rights", "exit at once", "exit without a fault", "missing directory"],
)
def test_a_failed_start_is_reported_and_hurts_nothing_else(
    tmp_path: Path, wrong: dict[str, object], message: str
) -> None:
    files = {"shop/good.yaml": GOOD, "shop/web.yaml": served(replicas=1, **wrong)}
    with host_sandbox(tmp_path, files) as sandbox, sandbox.daemon() as daemon:
        wait(lambda: message in sandbox.message(), f"it reports {message}")
        wait(partial(sandbox.healthy, "workload/shop/good@here"))
        wait(lambda: sandbox.recorded()["workload/shop/web@here"].health == "Unhealthy")
        assert {"StartFailed", "ContainerEnded"} & reasons(sandbox)
        assert not [line for line in daemon.log() if "Traceback" in str(line)]
        sandbox.repo.commit({"shop/web.yaml": served(replicas=1, env={"GREETING": "mended"})})
        wait(lambda: sandbox.healthy() and sandbox.greetings("web") == {"mended"})


def test_a_program_that_listens_on_another_port_leads_to_a_message_with_both(tmp_path: Path) -> None:
    other = SERVER.replace('int(os.environ["PORT"])', "0")
    probe = {"httpGet": {"path": "/healthz"}, "periodSeconds": 1, "failureThreshold": 1}
    web = served(replicas=1, args=["-u", "-c", other], readinessProbe=probe)
    with host_sandbox(tmp_path, {"shop/web.yaml": web}) as sandbox, sandbox.daemon():
        named = r"nothing listens on \d+ \(PORT\); the program listens on \d+"
        wait(lambda: re.search(named, sandbox.run("get", "workload", "web").stdout), "it has begun to listen")
        described = sandbox.run("describe", "workload/shop/web").stdout
    assert re.search(rf"Not well\n  Loading +.*: the readiness probe failed: {named}\n", described), described


def test_people_see_what_a_program_wrote_last_before_it_ended(tmp_path: Path) -> None:
    crash = served(replicas=1, args=["-c", "print('begin', flush=True); import nosuch"], **PLAIN)
    with host_sandbox(tmp_path, {"shop/web.yaml": crash}) as sandbox, sandbox.daemon():
        block = "\n\nLast lines of their logs\n  workload/shop/web  ModuleNotFoundError: No module named 'nosuch'\n\n"
        wait(lambda: block in sandbox.run("status").stdout, "the last line stands behind the reason")
        assert "nosuch" not in sandbox.run("status", "-o", "json").stdout, "the records have no line of a log"
        described = sandbox.run("describe", "workload/shop/web").stdout
        assert (
            "\n  Last line  ModuleNotFoundError: No module named 'nosuch'\n  Log        its last lines: " in described
        )
        assert "Error: No module" not in sandbox.run("describe", "workload/shop/web", "-o", "json").stdout

        def points_at_status() -> bool:
            waited = sandbox.run("apply", "--wait", "--timeout", "1s")
            assert waited.returncode == 1
            return "what they wrote last: reconciler status\n" in waited.stderr

        wait(points_at_status, "who waits in vain reads where the lines are")


@pytest.mark.slow
def test_a_crash_of_the_new_version_is_not_hidden_by_the_port_of_the_former_one(tmp_path: Path) -> None:
    other = SERVER.replace('int(os.environ["PORT"])', "0")
    former = served(replicas=1, args=["-u", "-c", other], readinessProbe=None)
    with host_sandbox(tmp_path, {"shop/web.yaml": former}) as sandbox, sandbox.daemon():
        wait(lambda: "nothing listens on" in sandbox.message(), "its time to listen is over")
        crash = served(replicas=1, args=["-c", "raise SystemExit(3)"], readinessProbe=None)
        sandbox.repo.commit({"shop/web.yaml": crash})
        wait(lambda: "ended with 3" in sandbox.message(), "the new version is what counts")
        assert "nothing listens" not in sandbox.message()


def test_a_port_that_is_taken_meanwhile_is_exchanged(tmp_path: Path) -> None:
    with host_sandbox(tmp_path, {"shop/web.yaml": served(replicas=1, env={"GREETING": "hello"})}) as sandbox:
        with sandbox.daemon():
            wait(sandbox.healthy)
        (address,) = sandbox.ready("web")
        sandbox.end()
        with socket.socket() as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            thief.bind(("0.0.0.0", int(address.rpartition(":")[2])))
            thief.listen()
            with sandbox.daemon():
                wait(lambda: sandbox.ready("web") not in ([], [address]) and sandbox.greetings("web") == {"hello"})


def test_a_dead_replica_is_restarted_where_no_port_is_left_for_more(tmp_path: Path) -> None:
    first = adjacent_ports(2)
    few = {"firstPort": first, "lastPort": first + 1}
    with host_sandbox(tmp_path, {"shop/web.yaml": served()}, host=few) as sandbox, sandbox.daemon():
        wait(sandbox.healthy)
        sandbox.repo.commit({"shop/web.yaml": served(replicas=4)})
        wait(lambda: "NoFreePort" in sandbox.message(), "there is no port for more")
        victim = min(sandbox.programs())
        os.kill(victim, signal.SIGKILL)
        wait(lambda: any(each.containers[0].restarts for each in sandbox.replicas("web").values()), "it is restarted")
        wait(lambda: len(sandbox.ready("web")) == 2 and len(sandbox.programs()) == 2, "and serves again")
        assert "NoFreePort" in sandbox.message()
        assert len(sandbox.replicas("web")) == 2
        sandbox.repo.commit({"shop/web.yaml": served(replicas=2)})
        wait(lambda: sandbox.healthy() and not sandbox.message(), "nothing is wrong with what is wanted now")


def test_one_that_ignores_sigterm_is_killed_in_the_end(tmp_path: Path) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER
    files = {"shop/web.yaml": served(args=["-c", deaf]), "shop/good.yaml": GOOD}
    with host_sandbox(tmp_path, files) as sandbox, sandbox.daemon():
        wait(sandbox.healthy)
        sandbox.repo.commit({"shop/web.yaml": None})
        wait(lambda: "workload/shop/web@here" not in sandbox.recorded())
        assert len(sandbox.programs()) == 1
        assert sandbox.greetings("good") == {"well"}


def test_children_that_outlive_their_parent_go_with_the_replica(tmp_path: Path) -> None:
    fork = "import subprocess; subprocess.Popen(['setsid', 'sleep', '987'], start_new_session=True)\n" + SERVER
    files = {"shop/web.yaml": served(replicas=1, args=["-c", fork]), "shop/good.yaml": GOOD}
    with host_sandbox(tmp_path, files) as sandbox, sandbox.daemon():
        wait(sandbox.healthy)
        wait(lambda: any("sleep 987" in command for command in sandbox.programs().values()))
        sandbox.repo.commit({"shop/web.yaml": None})
        wait(lambda: "workload/shop/web@here" not in sandbox.recorded())
        assert not any("sleep 987" in command for command in sandbox.programs().values())


def test_a_workload_that_cannot_be_taken_up_goes_on(tmp_path: Path) -> None:
    with host_sandbox(tmp_path, {"shop/web.yaml": served(env={"GREETING": "well"})}) as sandbox:
        with sandbox.daemon() as daemon:
            wait(sandbox.healthy)
            daemon.kill()
        before, token = sandbox.programs(), sandbox.state / "host" / "here" / "tokens" / "shop" / "web"
        content = token.read_bytes()
        token.unlink()
        token.mkdir()
        with sandbox.daemon():
            wait(lambda: {"WorkloadError", "StateWriteFailed"} <= reasons(sandbox))
            assert sandbox.greetings("web") == {"well"}
            token.rmdir()
            token.write_bytes(content)
            wait(lambda: "DriftHealed" in reasons(sandbox))
            wait(sandbox.healthy)
            assert sandbox.programs() == before


def test_a_failing_liveness_probe_restarts_the_replica(tmp_path: Path) -> None:
    sick = SERVER.replace('os.environ.get("BROKEN")', "time.monotonic() > BORN + 0.5").replace(
        "def answer", "BORN = time.monotonic()\ndef answer"
    )
    probe = {"httpGet": {"path": "/healthz"}, "periodSeconds": 1, "failureThreshold": 2}
    web = served(replicas=1, args=["-c", sick], livenessProbe=probe, readinessProbe=None)
    with host_sandbox(tmp_path, {"shop/web.yaml": web}) as sandbox, sandbox.daemon():
        wait(lambda: any(each.containers[0].restarts for each in sandbox.replicas("web").values()))
        (replica,) = sandbox.replicas("web").values()
        assert replica.containers[0].last is not None
        assert replica.containers[0].last.reason == "LivenessFailed"


def test_hooks_run_and_report_failures(tmp_path: Path) -> None:
    mark = shared_folder(tmp_path) / "stopped"
    hooks = {
        "postStart": {"exec": {"command": ["false"]}},
        "preStop": {"exec": {"command": ["sh", "-c", f"echo bye > {mark}; exit 4"]}},
    }
    endless = {"preStop": {"exec": {"command": ["sleep", "1000"]}}}
    files = {
        "shop/web.yaml": served(replicas=1, lifecycle=hooks),
        "shop/slow.yaml": served("slow", replicas=1, lifecycle=endless),
        "shop/good.yaml": GOOD,
    }
    slow = {"terminationScale": 0.06}  # a hook has 5.4 s in place of 90
    with host_sandbox(tmp_path / "site", files, prune={"percent": 100}, host=slow) as sandbox, sandbox.daemon():
        wait(lambda: sandbox.ready("web") and sandbox.ready("slow"))
        wait(lambda: "postStart" in sandbox.run("get", "workload", "web", "-o", "json").stdout)
        sandbox.repo.commit({"shop/web.yaml": None, "shop/slow.yaml": None})
        wait(mark.exists)
        wait(lambda: not {"workload/shop/web@here", "workload/shop/slow@here"} & sandbox.recorded().keys())
        assert "PreStopFailed" in reasons(sandbox)
        events = sandbox.run("events", "workload/shop/slow").stdout
        assert "the preStop hook of main did not end within 5.4 s" in events


def fill(filler: Path) -> None:
    """Write until there is no room left."""
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * 65536):
            pass


@only_root("mounts a file system of its own")
def test_a_full_disk_stops_nothing_that_runs(tmp_path: Path) -> None:
    web = served(replicas=1, env={"GREETING": "one"})
    disk = small_disk(tmp_path / "small", "size=6m")
    with disk as small, host_sandbox(tmp_path / "site", {"shop/web.yaml": web}) as sandbox:
        sandbox.configure(state=str(small / "state"))
        sandbox.state = small / "state"
        with sandbox.daemon():
            wait(sandbox.healthy)
            filler = small / "filler"
            fill(filler)
            sandbox.repo.commit({"shop/web.yaml": served(replicas=1, env={"GREETING": "two"})})
            wait(lambda: sandbox.greetings("web") == {"one"})
            filler.unlink()
            wait(lambda: sandbox.greetings("web") == {"two"} and sandbox.healthy())
        sandbox.end()


def test_a_stopped_daemon_leaves_its_replicas(tmp_path: Path) -> None:
    with host_sandbox(tmp_path, {"shop/web.yaml": served(env={"GREETING": "hello"})}) as sandbox:
        with sandbox.daemon() as daemon:
            wait(sandbox.healthy)
            before = sandbox.programs()
            daemon.signal(signal.SIGTERM)
            assert daemon.process.wait(60) == 0
        assert sandbox.programs() == before
        assert sandbox.greetings("web") == {"hello"}
