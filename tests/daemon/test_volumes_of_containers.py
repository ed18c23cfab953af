"""Volumes that are mounted images, in real containers: writable, snapshotted while in use, and restored."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.host.volumes.space import Reserve
from reconciler.engines.host.volumes.store import VolumeStore
from tests.support.clock import FakeClock
from tests.support.host_sandbox import host_sandbox
from tests.support.podman import IMAGE, podman_service
from tests.support.programs import only_root
from tests.support.sandbox import eventually

pytestmark = [pytest.mark.slow, only_root("only root mounts images")]

DATA = "volumeset/shop/data"
wait = partial(eventually, patience=90.0)


def test_a_container_gets_its_mounted_volume_back_as_it_was(tmp_path: Path) -> None:
    spec = {"initialCapacity": 10, "performanceClass": "general-purpose-ssd"}
    script = "trap 'exit 0' TERM; while true; do date >> /data/log; sync; sleep 0.1; done"
    container = {
        "name": "main",
        "image": IMAGE,
        "command": "/bin/sh",
        "args": ["-c", script],
        "volumes": [{"uri": "platform://volumeset/data", "path": "/data"}],
    }
    workload = {
        "kind": "workload",
        "name": "db",
        "gvc": "shop",
        "spec": {"type": "stateful", "containers": [container]},
    }
    volumeset = {"kind": "volumeset", "name": "data", "gvc": "shop", "spec": spec}
    files = {"shop/db.yaml": json.dumps(workload), "shop/data.yaml": json.dumps(volumeset)}
    settings: dict[str, Any] = {
        "locations": {"here": {"engine": "host", "runtime": "podman"}},
        "host": {"volumes": "image-ext4", "diskReserve": 0},
    }
    with podman_service() as service:
        settings["podman"] = {"socket": str(service.socket)}
        with host_sandbox(tmp_path, files, **settings) as sandbox, sandbox.daemon():
            log = sandbox.state / "host/here/volumes/shop/data/0/log"

            def size() -> int:
                return log.stat().st_size if log.exists() else 0

            def command(name: str) -> None:
                done = sandbox.run("command", DATA, name, "volumeIndex=0", "snapshotName=one", "--yes")
                assert done.returncode == 0, done

            wait(lambda: size() > 0, "the container writes")
            assert log.parent.is_mount()
            owners = [
                Path(f"/proc/{container['Pid']}/uid_map").read_text().split() for container in service.containers()
            ]
            assert [ids[0] for ids in owners if int(ids[1]) > 0] == ["0", "0"], "the sandbox, and root of the container"
            assert log.stat().st_uid == 0, "as the container sees it"
            command("createVolumeSnapshot")
            before = size()
            wait(lambda: size() > before + 200, "it writes on, since the snapshot needs no stop")
            [replica] = sandbox.replicas("db").values()
            command("restoreVolume")
            wait(
                lambda: [replica.created for replica in sandbox.replicas("db").values()] > [replica.created],
                "it starts again",
            )
            wait(lambda: size() > 0, "it writes again")
            assert sandbox.run("snapshots", DATA).stdout.count("pre-restore-") == 1
    # Its containers have ended with the service.
    store = VolumeStore(tmp_path / "state/host/here", "image-ext4", FakeClock(), Reserve(0, 0))
    store.open()
    for volume, holder in store.holders().items():
        store.detach(volume, holder)
