"""Files of containers and of volumes in images that are damaged: each is one damaged thing, and others go on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.host.volumes.space import Reserve
from reconciler.engines.host.volumes.store import VolumeStore
from tests.daemon.test_damaged_files import DATA, DATABASE, KINDS, ONE_WAY, WAYS, WITNESS, conditions, damage, lifecycle
from tests.support.clock import FakeClock
from tests.support.host_sandbox import HostSandbox, host_sandbox
from tests.support.podman import IMAGE, PodmanService, podman_service
from tests.support.programs import only_root
from tests.support.sandbox import eventually

pytestmark = only_root("only root mounts images")

wait = partial(eventually, patience=90.0)

CONTAINER_KINDS = {
    "host/here/container-endpoints/shop/*.json": "made anew: the addresses of replicas for other containers",
    "host/here/firewall.json": "made anew: the rules of containers",
    "host/here/images/digests/shop/*/*.json": "made anew: the digest of the image of a version",
    "host/here/images/pulled.json": "made anew: when an image was used last",
    "host/here/podman/shop/*/*/*/container.json": "made anew from the labels of a container",
    "host/here/podman/shop/*/*/*/hosts": "the names that a container resolves",
    "host/here/podman/shop/*/*/*/output": "the newest lines of a container",
    "host/here/volumes/shop/*/*.d/image": "VolumeDamaged",
    "host/here/volumes/shop/*/*.d/snapshots/*/data": "a snapshot cannot be restored",
}
"""Kind of file → what is damaged with it."""
ALL = {**KINDS, **CONTAINER_KINDS}
LOOP = "trap 'exit 0' TERM; while true; do date; sleep 0.2; done"
WRITE = "trap 'exit 0' TERM; while true; do date >> /data/log; sleep 0.2; done"


def workload(name: str, kind: str, script: str, volumes: tuple[dict[str, str], ...] = (), **more: Any) -> str:
    """The manifest of a workload whose container runs a script."""
    container = {"name": "main", "image": IMAGE, "command": "/bin/sh", "args": ["-c", script], "volumes": [*volumes]}
    options = {"autoscaling": {"minScale": 1, "maxScale": 1}} if kind == "standard" else None
    spec = {"type": kind, "containers": [container], **({"defaultOptions": options} if options else {}), **more}
    return json.dumps({"kind": "workload", "name": name, "gvc": "shop", "spec": spec}) + "\n"


class ContainerHarness:
    """A sandbox with a file of each kind that containers and volumes in images have, and a witness."""

    def __init__(self, sandbox: HostSandbox, service: PodmanService) -> None:
        self.sandbox = sandbox
        self._service = service

    def use(self) -> None:
        """Have the files written that come with use."""
        wait(lambda: self.sandbox.healthy(WITNESS) and self.sandbox.healthy(DATABASE), "all is healthy")
        for words in (
            ("workload/shop/job", "runCronWorkload"),
            ("volumeset/shop/data", "createVolumeSnapshot", "volumeIndex=0", "snapshotName=one"),
        ):
            done = self.sandbox.run("command", *words, "--yes")
            assert done.returncode == 0, done
        wait(lambda: any((self.sandbox.state / "host/here/logs/shop/job").rglob("*.rlog")), "the output is stored")
        wait(lambda: not self.sandbox.replicas("job"), "the execution is removed")
        wait(lambda: self.sandbox.healthy(DATABASE), "it is healthy again")

    def check(self) -> None:
        """Check that the witness is observed and healed."""
        [before] = self.sandbox.replicas("witness").values()
        os.kill(wait(self.find_witness, "the witness runs"), signal.SIGKILL)

        def runs_again() -> bool:
            found = list(self.sandbox.replicas("witness").values())
            return (
                len(found) == 1 and found[0].ready and found[0].containers[0].restarts > before.containers[0].restarts
            )

        wait(runs_again, "the witness runs again")
        wait(lambda: self.sandbox.healthy(WITNESS), "the witness is healthy")
        assert "LocationUnreachable" not in self.sandbox.run("events").stdout

    def find_witness(self) -> int:
        """The process of the container of the witness; 0 if it does not run."""
        running = (each for each in self._service.containers() if each["State"] == "running")
        return next(
            (each["Pid"] for each in running if "witness" in each["Names"][0] and "main" in each["Names"][0]), 0
        )


@contextmanager
def container_harness(path: Path) -> Iterator[ContainerHarness]:
    """A sandbox whose workloads run in real containers, with a volume in an image."""
    data = {
        "kind": "volumeset",
        "name": "data",
        "gvc": "shop",
        "spec": {"initialCapacity": 10, "performanceClass": "general-purpose-ssd"},
    }
    volume = {"uri": "platform://volumeset/data", "path": "/data"}
    files = {
        "shop/data.yaml": json.dumps(data),
        "shop/db.yaml": workload("db", "stateful", WRITE, (volume,)),
        "shop/job.yaml": workload("job", "cron", "echo done", job={"schedule": "0 0 29 2 *"}),
        "shop/witness.yaml": workload("witness", "standard", LOOP),
    }
    settings: dict[str, Any] = {
        "locations": {"here": {"engine": "host", "runtime": "podman"}},
        "host": {"volumes": "image-ext4", "diskReserve": 0},
        "drift": {"interval": "1s"},
    }
    with podman_service() as service:
        settings["podman"] = {"socket": str(service.socket)}
        with host_sandbox(path, files, **settings) as sandbox:
            yield ContainerHarness(sandbox, service)
    # Its containers have ended with the service.
    store = VolumeStore(path / "state/host/here", "image-ext4", FakeClock(), Reserve(0, 0))
    store.open()
    for each, holder in store.holders().items():
        store.detach(each, holder)


@pytest.mark.slow
@pytest.mark.parametrize("way", ONE_WAY)
def test_a_container_is_healed_whatever_files_of_others_are_damaged(tmp_path: Path, way: str) -> None:
    with container_harness(tmp_path) as harness:
        with harness.sandbox.daemon() as daemon:
            harness.use()
            damage(harness.sandbox, way, ALL.keys() - {"lock"}, ALL)  # without it the daemon ends
            harness.check()
            daemon.kill()
        damage(harness.sandbox, way, ALL, ALL)
        with harness.sandbox.daemon() as daemon:
            harness.check()
            if way != "removed":  # without any file there is no volume
                is_reported(harness.sandbox)
            assert daemon.stop() == 0


def is_reported(sandbox: HostSandbox) -> None:
    """Check that the damaged volume is."""
    wait(lambda: lifecycle(sandbox) == "repairing", "the volume is damaged")
    wait(lambda: sandbox.recorded()[DATA].health == "Unhealthy", "its set says so")
    text = conditions(sandbox, DATA)["VolumeDamaged"]
    assert any(way in text for way in (": remove", ": restore", ": reconciler restart")), text


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONTAINER_KINDS)
def test_one_damaged_kind_of_file_of_containers_is_one_damaged_thing(tmp_path: Path, kind: str) -> None:
    with container_harness(tmp_path) as harness:
        with harness.sandbox.daemon() as daemon:
            harness.use()
            daemon.kill()
        for way in WAYS:
            damage(harness.sandbox, way, [kind], ALL)
            with harness.sandbox.daemon() as daemon:
                harness.check()
                if CONTAINER_KINDS[kind] == "VolumeDamaged":
                    is_reported(harness.sandbox)
                    break
                wait(
                    lambda: harness.sandbox.healthy(DATABASE) and lifecycle(harness.sandbox) == "bound", "it is healthy"
                )
                daemon.kill()
