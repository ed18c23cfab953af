"""A workload that is renamed on this host: it serves until the one in its place is healthy."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from reconciler.engines.host.decisions.replica import ReplicaContainer
from tests.support.host_sandbox import SERVER, HostSandbox, fetch, host_sandbox, served
from tests.support.sandbox import eventually

wait = partial(eventually, patience=60.0)

GATED = f"""
import os, time
while not os.path.exists(os.environ["GATE"]) and os.environ["PLATFORM_WORKLOAD"] == "site":
    time.sleep(0.05)
{SERVER}
"""
"""As the usual server; one that is named `site` begins to serve only when the file GATE exists."""


def manifest(name: str, gate: Path) -> str:
    """The workload, which is the same under any name."""
    env = {"GATE": str(gate), "GREETING": "hello"}
    return served(name, replicas=1, args=["-u", "-c", GATED], env=env)


def serves(sandbox: HostSandbox, address: str) -> bool:
    """Whether the former workload answers, and its replica is the first one."""
    with suppress(OSError):  # the daemon may still start
        return fetch(address) == "hello" and {each.restarts for each in containers(sandbox)} == {0}
    return False


def containers(sandbox: HostSandbox) -> list[ReplicaContainer]:
    """The containers of the former workload."""
    return [each for replica in sandbox.replicas("web").values() for each in replica.containers]


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_renamed_workload_serves_until_its_successor_is_healthy(tmp_path: Path, killed: bool) -> None:
    """Also if the daemon starts again meanwhile."""
    gate = tmp_path / "gate"
    with host_sandbox(tmp_path, {"shop/web.yaml": manifest("web", gate)}) as sandbox:
        with sandbox.daemon() as daemon:
            wait(sandbox.healthy, "web is healthy")
            address = sandbox.address()
            sandbox.repo.commit({"shop/web.yaml": manifest("site", gate)})
            wait(lambda: sandbox.replicas("site"), "its successor starts")
            assert serves(sandbox, address)
            daemon.kill() if killed else daemon.stop()
        [former] = sandbox.replicas("web")
        with sandbox.daemon() as daemon:
            wait(lambda: "workload/shop/site@here" in sandbox.recorded(), "the successor is recorded")
            wait(lambda: sandbox.message("workload/shop/site@here"), "it is observed")
            wait(lambda: serves(sandbox, address), "web is served")
            # Another run, and more looks at the location, change nothing.
            sandbox.repo.commit(
                {
                    "shop/other.yaml": served(
                        "other", command="sleep", args=["1000"], ports=None, readinessProbe=None, replicas=1
                    )
                }
            )
            wait(lambda: sandbox.healthy("workload/shop/other@here"), "another workload is applied meanwhile")
            assert serves(sandbox, address)
            assert list(sandbox.replicas("web")) == [former]
            gate.touch()
            wait(lambda: sandbox.healthy("workload/shop/site@here"), "the successor is healthy")
            wait(lambda: not sandbox.replicas("web"), "web ends")
            wait(lambda: "workload/shop/web@here" not in sandbox.recorded(), "web is deleted")
            assert fetch(sandbox.address("workload/shop/site@here")) == "hello"
            assert daemon.stop() == 0


def test_a_renamed_workload_stays_for_as_long_as_its_successor_fails(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with host_sandbox(tmp_path, {"shop/web.yaml": manifest("web", gate)}) as sandbox, sandbox.daemon() as daemon:
        wait(sandbox.healthy, "web is healthy")
        address = sandbox.address()
        sandbox.repo.commit({"shop/web.yaml": manifest("site", gate)})
        wait(lambda: sandbox.replicas("site"), "its successor starts")
        # Nothing waits for it now: the former name comes back.
        sandbox.repo.commit({"shop/web.yaml": manifest("web", gate)})
        # The delete of the hour was that of web, which then was not carried out.
        digest = wait(lambda: daemon.logged("reconciled")[-1].get("approve"), "the delete waits for an approval")
        assert sandbox.run("approve", digest).returncode == 0
        wait(lambda: not sandbox.replicas("site"), "the successor ends")
        assert serves(sandbox, address)
        assert sandbox.healthy()
        assert json.loads(sandbox.recorded()["workload/shop/web@here"].body)["name"] == "web"
        assert daemon.stop() == 0
