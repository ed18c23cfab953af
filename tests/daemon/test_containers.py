"""A daemon with real containers, while everything around it is killed: nothing is doubled, lost or left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_workload_tokens import CLIENT, NAMED, PLAIN, POLICY, ask, refusal, token_of
from tests.support.certificates import issue
from tests.support.host_sandbox import HostSandbox, fetch, host_sandbox, served
from tests.support.podman import IMAGE, PodmanService, groups_of, podman_service, python_image
from tests.support.processes import free_ports
from tests.support.sandbox import eventually

pytestmark = pytest.mark.slow

wait = partial(eventually, patience=120.0)
SERVE = "trap 'exit 0' TERM; httpd -f -p 8080 -h /etc & wait"
NAMES = ("steady", "web")
REPLICAS = 2


@pytest.fixture
def service() -> Iterator[PodmanService]:
    with podman_service() as service:
        yield service


@pytest.fixture
def sandbox(tmp_path: Path, service: PodmanService) -> Iterator[HostSandbox]:
    places = {"here": {"engine": "host", "runtime": "podman"}}
    files = {f"shop/{name}.yaml": manifest(name) for name in NAMES}
    settings: dict[str, Any] = {"podman": {"socket": str(service.socket)}, "prune": {"percent": 100}}
    with host_sandbox(tmp_path, files, locations=places, **settings) as sandbox:
        yield sandbox


def manifest(name: str, version: int = 1) -> str:
    """A workload that serves; each version restarts all its replicas."""
    readiness = {"httpGet": {"path": "/passwd"}, "periodSeconds": 1}
    plain = served(
        name,
        replicas=REPLICAS,
        command="/bin/sh",
        args=["-c", SERVE],
        readinessProbe=readiness,
        env={"VERSION": str(version)},
    )
    return plain.replace('"image": "none"', f'"image": "{IMAGE}"')


def is_at_rest(sandbox: HostSandbox, service: PodmanService, version: int) -> bool:
    """Whether just the wanted replicas run, all of them ready, and Podman has no other container."""
    record = sandbox.recorded().get("workload/shop/web@here")
    replicas = [replica for name in NAMES for replica in sandbox.replicas(name).values()]
    if (
        record is None
        or record.version != version
        or not all(sandbox.healthy(f"workload/shop/{name}@here") for name in NAMES)
    ):
        return False
    available = {replica.name for replica in replicas if replica.ready and replica.ending is None}
    running = Counter(
        container["Labels"]["io.gitops-reconciler.replica"] for container in service.containers() if container["Labels"]
    )
    states = {container["State"] for container in service.containers()}
    return (
        len(replicas) == len(available) == 2 * REPLICAS
        and running == dict.fromkeys(available, 2)
        and states == {"running"}
    )


def containers_of(service: PodmanService, name: str) -> set[str]:
    """The IDs of the containers of a workload."""
    key = "io.gitops-reconciler.workload"
    return {each["Id"] for each in service.containers() if (each["Labels"] or {}).get(key) == name}


def test_whatever_is_killed_during_rollouts_nothing_is_doubled_restarted_or_left(
    sandbox: HostSandbox, service: PodmanService
) -> None:
    rng, version = random.Random(7), 1
    with sandbox.daemon() as daemon:
        wait(partial(is_at_rest, sandbox, service, version), "the first version runs")
        steady = containers_of(service, "steady")
        for _ in range(20):
            version += 1
            sandbox.repo.commit({"shop/web.yaml": manifest("web", version)})
            time.sleep(rng.uniform(0.0, 2.0))  # any moment of the rollout
            service.restart()
            wait(partial(is_at_rest, sandbox, service, version), f"version {version} runs")
            assert containers_of(service, "steady") == steady
        assert [each.containers[0].restarts for each in sandbox.replicas("steady").values()] == [0] * REPLICAS
        daemon.kill()
    owners = {each["Labels"]["io.gitops-reconciler.owner"] for each in service.containers()}
    for _ in range(5):
        version += 1
        sandbox.repo.commit({"shop/web.yaml": manifest("web", version)})
        with sandbox.daemon() as daemon:
            time.sleep(rng.uniform(0.0, 2.0))
            daemon.kill()
        with sandbox.daemon():
            wait(partial(is_at_rest, sandbox, service, version), f"version {version} runs after the daemon died")
            assert containers_of(service, "steady") == steady
    with sandbox.daemon():
        for process in service.monitors()[:2]:
            os.kill(process, signal.SIGKILL)
        wait(partial(is_at_rest, sandbox, service, version), "what lost its monitor runs again")
    service.reboot()
    with sandbox.daemon():
        wait(partial(is_at_rest, sandbox, service, version), "everything runs again after a restart of the machine")
        assert not containers_of(service, "steady") & steady
        sandbox.repo.commit({f"shop/{name}.yaml": None for name in NAMES})
        wait(lambda: service.containers() == [], "all containers are gone")
        wait(lambda: not any(sandbox.replicas(name) for name in NAMES), "all replicas are gone")
    assert not [*(sandbox.state / "host" / "here" / "podman").glob("*/*/*")]
    assert service.oci_states() == []
    assert [group for owner in owners for group in groups_of(owner) if [*group.glob("libpod-*")]] == []


def test_a_location_moves_to_containers_and_back_without_a_gap(tmp_path: Path, service: PodmanService) -> None:
    readiness = {"httpGet": {"path": "/passwd"}, "periodSeconds": 1}
    # Debian's busybox is at the same path on this host, where it is told its port, and in the image.
    script = "trap 'exit 0' TERM; /bin/busybox httpd -f -p $PORT -h /etc & wait"
    web = served(replicas=REPLICAS, command="/bin/sh", args=["-c", script], readinessProbe=readiness)
    files = {"shop/web.yaml": web.replace('"image": "none"', f'"image": "{IMAGE}"')}
    settings: dict[str, Any] = {"podman": {"socket": str(service.socket)}, "prune": {"percent": 100}}
    with host_sandbox(tmp_path, files, **settings) as sandbox:
        seen: set[str] = set()

        def runs(in_containers: bool) -> bool:
            # An address may go between the look and the request, but never all of them.
            assert any(answers(address) for address in sandbox.ready("web")) or not seen
            replicas = sandbox.replicas("web")
            rest = bool(sandbox.programs()) if in_containers else bool(service.containers())
            found = len(replicas) == REPLICAS and all(each.ready for each in replicas.values()) and sandbox.healthy()
            return found and not rest and not seen & replicas.keys()

        for runtime in ("process", "podman", "process"):
            sandbox.configure(locations={"here": {"engine": "host", "runtime": runtime}})
            former = {"process": "podman", "podman": "process"}[runtime]
            planned = f"Rolls out at here: workload/shop/web: its runtime changes from {former} to {runtime}\n"
            assert (planned in sandbox.run("plan").stdout) is bool(seen)
            with sandbox.daemon():
                wait(partial(runs, runtime == "podman"), f"all replicas run by {runtime}")
                seen |= sandbox.replicas("web").keys()
                if runtime == "podman":
                    assert len(service.containers()) == 2 * REPLICAS
        assert service.networks() == []


def test_metrics_of_containers_are_scraped_at_an_undeclared_port(tmp_path: Path, service: PodmanService) -> None:
    script = "trap 'exit 0' TERM; cd $(mktemp -d); echo hits 3 > metrics; httpd -f -p 9464 & wait"
    manifest = json.loads(served(command="/bin/sh", args=["-c", script], ports=None, readinessProbe=None))
    [container] = manifest["spec"]["containers"]
    container |= {"image": IMAGE, "metrics": {"port": 9464}}
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    settings: dict[str, Any] = {
        "podman": {"socket": str(service.socket)},
        "prune": {"percent": 100},
        "host": {"metrics": {"address": address}},
    }
    settings["locations"] = {"here": {"engine": "host", "runtime": "podman"}}
    with host_sandbox(tmp_path, {"shop/web.yaml": json.dumps(manifest)}, **settings) as sandbox, sandbox.daemon():
        wait(lambda: scraped(address) == {*sandbox.replicas("web")} and len(scraped(address)) == REPLICAS)
        sandbox.repo.commit({"shop/web.yaml": None})
        wait(lambda: not service.containers())


def scraped(address: str) -> set[str]:
    """The replicas whose metrics are on the page."""
    try:
        page = fetch(address, "/metrics")
    except OSError:
        return set()
    return {line.partition('replica="')[2].partition('"')[0] for line in page.splitlines() if line.startswith("hits{")}


def answers(address: str) -> bool:
    """Whether a replica serves."""
    with contextlib.suppress(OSError):
        return "root" in fetch(address, "/passwd")
    return False


ASKING_IMAGE = "localhost/reconciler-test-python:1"
ASKS = CLIENT.replace('"127.0.0.1"', '""')
"""Asks the API for the path of each request; it believes any certificate."""


def test_a_token_is_valid_in_the_containers_of_its_workload_alone(tmp_path: Path, service: PodmanService) -> None:
    [port], issued = free_ports(1), issue("localhost")
    (tmp_path / "api.crt").write_bytes(issued.chain_pem)
    (tmp_path / "api.key").write_bytes(issued.key_pem)
    tls = {"certificate": str(tmp_path / "api.crt"), "key": str(tmp_path / "api.key")}
    places = {"here": {"engine": "host", "runtime": "podman"}}
    api = {"address": f"0.0.0.0:{port}", "tls": tls, "url": f"https://{own_address()}:{port}"}
    files = {"shop/named.yaml": asking("named"), "shop/plain.yaml": asking("plain"), "shop/reader.yaml": POLICY}
    service.load(python_image(ASKING_IMAGE))
    podman = {"socket": str(service.socket)}
    with host_sandbox(tmp_path, files, locations=places, podman=podman, api=api) as sandbox, sandbox.daemon():
        for name in ("named", "plain"):
            wait(partial(sandbox.healthy, f"workload/shop/{name}@here"), f"{name} serves")
        assert [ask(sandbox, "named", path) for path in (PLAIN, NAMED, "/org/acme")] == [200, 403, 200]
        assert [ask(sandbox, "plain", path) for path in (PLAIN, "/org/acme")] == [403, 200]
        assert ask(sandbox, "plain", PLAIN, token_of(sandbox, "named")) == 403
        assert refusal(sandbox, token_of(sandbox, "named")) == 403


def own_address() -> str:
    """An address of this host that its containers reach: the one with which it would go elsewhere."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no network")
        return str(probe.getsockname()[0])


def asking(name: str) -> str:
    """A workload that asks the API; ``named`` has an identity."""
    more = {"identityLink": "//identity/reader"} if name == "named" else {}
    firewall = {"external": {"outboundAllowCIDR": ["0.0.0.0/0"]}}
    prepare = "import ssl; ssl._create_default_https_context = ssl._create_unverified_context"
    plain = served(name, replicas=1, args=["-c", prepare + ASKS], firewallConfig=firewall, **more)
    return plain.replace('"image": "none"', f'"image": "{ASKING_IMAGE}"')
