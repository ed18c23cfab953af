"""Workloads that really run: pushed, probed, rolled, killed, taken over and ended, by a daemon of its own process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from functools import partial
from pathlib import Path

import pytest

from reconciler.engines.host.decisions.timing import Timing
from tests.support.host_sandbox import SERVER, HostSandbox, fetch, host_sandbox, open_place, served
from tests.support.programs import only_root
from tests.support.sandbox import eventually

wait = partial(eventually, patience=60.0)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[HostSandbox]:
    """Two replicas that answer with a greeting."""
    with host_sandbox(tmp_path, {"shop/web.yaml": served(env={"GREETING": "hello"})}) as sandbox:
        yield sandbox


def test_a_replica_that_is_killed_is_replaced(shop: HostSandbox) -> None:
    with shop.daemon():
        wait(shop.healthy)
        before = shop.programs()
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        wait(lambda: victim not in shop.programs() and len(shop.programs()) == 2)
        wait(lambda: len(shop.ready("web")) == 2 and shop.healthy())
        assert len(before.keys() & shop.programs().keys()) == 1
        (again,) = (each.containers[0] for each in shop.replicas("web").values() if each.containers[0].restarts)
        assert again.restarts == 1
        assert again.last is not None
        assert again.started - again.last.at < Timing().backoff_base
        assert shop.greetings("web") == {"hello"}


def test_a_daemon_that_is_killed_finds_every_replica_again(shop: HostSandbox) -> None:
    with shop.daemon(fresh=True) as daemon:
        wait(shop.healthy)
        before = shop.programs()
        daemon.kill()
        assert shop.programs() == before
        assert shop.greetings("web") == {"hello"}
    with shop.daemon():
        shop.repo.commit({"shop/more.yaml": served("more", replicas=1)})
        wait(partial(shop.healthy, "workload/shop/more@here"))
        assert before.items() <= shop.programs().items()
        assert shop.healthy()


def test_a_daemon_that_is_killed_during_a_deletion_makes_nothing_anew(tmp_path: Path) -> None:
    endless = {"preStop": {"exec": {"command": ["sleep", "1000"]}}}
    files = {"shop/web.yaml": served(lifecycle=endless)}
    with host_sandbox(tmp_path, files, prune={"percent": 100}, host={"terminationScale": 0.04}) as sandbox:
        with sandbox.daemon() as daemon:
            wait(sandbox.healthy)
            before = set(sandbox.replicas("web"))
            sandbox.repo.commit({"shop/web.yaml": None})
            wait(lambda: any(each.reason == "Deleted" for each in sandbox.replicas("web").values()))
            daemon.kill()
        with sandbox.daemon():
            seen: set[str] = set()

            def is_gone() -> bool:
                seen.update(sandbox.replicas("web"))
                return "workload/shop/web@here" not in sandbox.recorded()

            wait(is_gone)
            assert seen <= before
            assert not sandbox.programs()


def test_replicas_whose_records_are_lost_serve_until_new_ones_do(shop: HostSandbox) -> None:
    with shop.daemon() as daemon:
        wait(shop.healthy)
        daemon.kill()
    before = shop.programs()
    for file in shop.state.glob("records.sqlite*"):
        file.unlink()
    with shop.daemon():
        while not (shop.healthy() and len(shop.programs()) == 2 and not before.keys() & shop.programs().keys()):
            assert shop.greetings("web") == {"hello"}
            time.sleep(0.02)


def test_replicas_whose_files_are_lost_are_adopted_as_they_are(tmp_path: Path) -> None:
    plain = served("plain", command="sleep", args=["100000"], ports=None, readinessProbe=None)
    files = {"shop/web.yaml": served(replicas=3, env={"GREETING": "hello"}), "shop/plain.yaml": plain}
    with host_sandbox(tmp_path, files) as sandbox:
        with sandbox.daemon() as daemon:
            wait(lambda: sandbox.healthy() and sandbox.healthy("workload/shop/plain@here"))
            daemon.kill()
        before, addresses = sandbox.programs(), sandbox.ready("web")
        for name in ("replicas", "run"):
            shutil.rmtree(sandbox.state / "host" / "here" / name)
        with sandbox.daemon():
            wait(
                lambda: len(sandbox.replicas("web")) == 3 and len(sandbox.replicas("plain")) == 2,
                "they are written again",
            )
            assert sandbox.run("apply", "--wait", "--timeout", "60").returncode == 0
            assert (sandbox.programs(), sandbox.ready("web")) == (before, addresses)
            assert sandbox.healthy("workload/shop/plain@here")


def test_a_rollout_of_replicas_whose_files_are_lost_keeps_the_others(tmp_path: Path) -> None:
    with host_sandbox(tmp_path, {"shop/web.yaml": served(replicas=3, env={"GREETING": "hello"})}) as sandbox:
        with sandbox.daemon() as daemon:
            wait(sandbox.healthy)
            daemon.kill()
        for name in ("replicas", "run"):
            shutil.rmtree(sandbox.state / "host" / "here" / name)
        sandbox.repo.commit({"shop/web.yaml": served(replicas=3, env={"GREETING": "new"})})
        with sandbox.daemon():
            while sandbox.greetings("web") != {"new"} or not sandbox.healthy():
                assert len(sandbox.ready("web")) >= 3
                time.sleep(0.02)


def test_a_readiness_failure_pauses_a_rollout_and_a_fix_resumes_it(shop: HostSandbox) -> None:
    with shop.daemon():
        wait(shop.healthy)
        old = set(shop.ready("web"))
        shop.repo.commit({"shop/web.yaml": served(env={"GREETING": "broken", "BROKEN": "yes"})})
        wait(lambda: "HTTP 500" in shop.message(), "the rollout reports why it does not go on")
        assert set(shop.ready("web")) == old
        assert shop.greetings("web") == {"hello"}
        assert len(shop.replicas("web")) == 3
        shop.repo.commit({"shop/web.yaml": served(env={"GREETING": "fixed"})})
        wait(lambda: shop.healthy() and shop.greetings("web") == {"fixed"})
        wait(lambda: len(shop.programs()) == 2, "the other replicas end")


def test_a_commit_is_live_once_only_replicas_with_it_answer(tmp_path: Path) -> None:
    def describe_gvc(greeting: str) -> str:
        spec = {
            "staticPlacement": {"locationLinks": ["//location/here"]},
            "env": [{"name": "GREETING", "value": greeting}],
        }
        return json.dumps({"kind": "gvc", "name": "shop", "spec": spec})

    slow = {"httpGet": {"path": "/healthz"}, "periodSeconds": 1, "initialDelaySeconds": 2}
    files = {"shop/gvc.yaml": describe_gvc("old"), "shop/web.yaml": served(inheritEnv=True, readinessProbe=slow)}
    with host_sandbox(tmp_path, files, host={"terminationScale": 1.0}) as sandbox, sandbox.daemon():
        wait(sandbox.healthy)
        commit = sandbox.repo.commit({"shop/gvc.yaml": describe_gvc("new")})
        status = sandbox.run("status", commit, "--wait")
        assert (status.returncode, sandbox.greetings("web")) == (0, {"new"}), status.stdout
        # The former ones take 45 s to end, which nobody has to wait for.
        assert sum(replica.ending is not None for replica in sandbox.replicas("web").values()) == 2


class Client(threading.Thread):
    """Asks for the addresses of a workload and then one of them, some hundred times a second."""

    def __init__(self, addresses: Callable[[], list[str]], rate: float) -> None:
        super().__init__(daemon=True)
        self.addresses = addresses
        self.pause = 1 / rate
        self.over = threading.Event()
        self.asked = 0
        self.answers: set[str] = set()
        self.lost: list[str] = []

    def run(self) -> None:
        due = time.monotonic()
        while not self.over.is_set():
            found = self.addresses()
            try:
                self.answers.add(fetch(found[self.asked % len(found)]))
            except (OSError, ZeroDivisionError) as error:
                self.lost.append(repr(error))
            self.asked += 1
            due = max(due + self.pause, time.monotonic() - 1)
            self.over.wait(max(0.0, due - time.monotonic()))


def test_a_rolling_update_loses_no_request(tmp_path: Path) -> None:
    files = {"shop/web.yaml": served(replicas=3, env={"GREETING": "old"})}
    scale = {"terminationScale": 0.06}  # a request that was sent to a replica that ends has 2.7 s
    with host_sandbox(tmp_path, files, host=scale) as sandbox, sandbox.daemon():
        wait(sandbox.healthy)
        address = sandbox.address()
        clients = [Client(lambda: sandbox.ready("web"), 125) for _ in range(2)]
        clients += [Client(lambda: [address], 125) for _ in range(2)]
        for client in clients:
            client.start()
        sandbox.repo.commit({"shop/web.yaml": served(replicas=3, env={"GREETING": "new"})})
        wait(lambda: sandbox.healthy() and sandbox.greetings("web") == {"new"} and len(sandbox.replicas("web")) == 3)
        for client in clients:
            client.over.set()
            client.join(60)
        assert [lost for client in clients for lost in client.lost] == []
        assert {"old", "new"} <= set().union(*(client.answers for client in clients[:2]))
        assert {"old", "new"} <= set().union(*(client.answers for client in clients[2:]))
        assert sandbox.address() == address
        assert f'address: "{address}"' in sandbox.status("shop/workload/web.yaml")
        assert f", served at {address}" in sandbox.run("describe", "workload/shop/web").stdout
        ended = sandbox.run("hold", "workload/shop/web", "--for", "1h")
        assert (ended.returncode, ended.stdout.splitlines()[1:]) == (0, ["in force at here"]), ended
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(fetch, address, patience=60.0)
            assert wait_for([answer], timeout=0.2).not_done
            assert sandbox.run("hold", "workload/shop/web", "--release").returncode == 0
            assert answer.result() == "new"


@pytest.mark.parametrize("number", [6, pytest.param(25, marks=pytest.mark.slow)])
def test_many_replicas_start_and_stop(tmp_path: Path, number: int) -> None:
    sleeper = {"command": "sleep", "args": ["1000"], "ports": None, "readinessProbe": None}
    files = {f"shop/{name}.yaml": served(name, replicas=number, **sleeper) for name in ("one", "two", "three", "four")}
    with host_sandbox(tmp_path, files, prune={"percent": 100}) as sandbox, sandbox.daemon():
        wait(lambda: len(sandbox.programs()) == 4 * number)
        wait(lambda: all(sandbox.healthy(f"workload/shop/{name}@here") for name in ("one", "two", "three", "four")))
        sandbox.repo.commit(dict.fromkeys(files))
        wait(lambda: not sandbox.programs())
        wait(lambda: not [key for key in sandbox.recorded() if "workload" in key])


def test_scaling_leaves_what_runs_alone_and_suspending_ends_it(shop: HostSandbox) -> None:
    with shop.daemon():
        wait(shop.healthy)
        before = shop.programs()
        shop.repo.commit({"shop/web.yaml": served(replicas=3, env={"GREETING": "hello"})})
        wait(lambda: shop.healthy() and len(shop.ready("web")) == 3)
        assert before.items() <= shop.programs().items()
        assert shop.recorded()["workload/shop/web@here"].version == 1
        suspended = json.loads(served(replicas=3, env={"GREETING": "hello"}))
        suspended["spec"]["defaultOptions"]["suspend"] = True
        shop.repo.commit({"shop/web.yaml": json.dumps(suspended)})
        wait(lambda: not shop.programs() and shop.healthy())
        assert shop.ready("web") == []


def test_a_location_that_becomes_another_engines_ends_what_ran_there(shop: HostSandbox) -> None:
    with shop.daemon() as daemon:
        wait(shop.healthy)
        shop.configure(locations={"here": {"engine": "recorded"}})
        daemon.signal(signal.SIGHUP)
        wait(lambda: not shop.programs())
        wait(lambda: shop.recorded()["workload/shop/web@here"].engine == "recorded")


def test_health_is_recorded_also_without_drift_checks(tmp_path: Path) -> None:
    files = {"shop/web.yaml": served(replicas=1)}
    with host_sandbox(tmp_path, files, drift={"interval": "0s"}) as sandbox, sandbox.daemon():
        wait(sandbox.healthy)


def test_replicas_outlive_lost_records_and_are_taken_over(shop: HostSandbox) -> None:
    with shop.daemon() as daemon:
        wait(shop.healthy)
        before = shop.programs()
        daemon.kill()
    for file in shop.state.glob("records.sqlite*"):
        file.unlink()
    with shop.daemon():
        wait(lambda: not before.keys() & shop.programs().keys() and shop.healthy())
        assert len(shop.programs()) == 2
        events = shop.run("events", "workload/shop/web").stdout
        assert "ended with" not in events


WHO = SERVER.replace('os.environ.get("GREETING", "")', "who()").replace(
    "def answer",
    "def who():\n"
    "    data = os.environ['RECONCILER_VOLUMES'] + '/data/mark'\n"
    "    open(data, 'a').write('x')\n"
    "    ready = os.environ['RECONCILER_ENDPOINTS'] + '/web.json'\n"
    "    return f'{os.getuid()} {os.stat(data).st_uid} {len(open(ready).read()) > 20} {os.path.exists(HOME)}'\n"
    "HOME = os.environ['HOME']\n"
    "def answer",
)


@only_root("only root runs programs as somebody else")
@pytest.mark.parametrize(
    ("asked", "default"),
    [({"runAsUser": 65534}, "root"), pytest.param({}, "nobody", marks=pytest.mark.slow), ({}, "65534")],
)
def test_a_workload_of_another_user_finds_what_is_its_own_and_nothing_else(asked: dict[str, int], default: str) -> None:
    volumes = [{"uri": "scratch://data", "path": "/data"}]
    web = served(replicas=1, args=["-c", WHO], volumes=volumes, securityOptions=asked)
    host = {"defaultUser": default}
    with open_place() as place, host_sandbox(place, {"shop/web.yaml": web}, host=host) as sandbox, sandbox.daemon():
        wait(sandbox.healthy)
        assert sandbox.greetings("web") == {"65534 65534 True True"}
        here = sandbox.state / "host" / "here"
        folders = [here / name for name in ("logs", "replicas", "run", "tokens", "usage")]
        closed = [sandbox.state / "records.sqlite", sandbox.state, here.parent, here, *folders]
        for path in closed:
            command = ["cat" if path.is_file() else "ls", str(path)]
            result = subprocess.run(command, user=65534, group=65534, extra_groups=[], capture_output=True, check=False)
            assert b"Permission denied" in result.stderr, path
