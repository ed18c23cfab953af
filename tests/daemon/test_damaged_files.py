"""Files of the state directory that are damaged: each is one damaged thing, and everything else is looked after."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import pytest

from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.sandbox import eventually

wait = partial(eventually, patience=60.0)

WITNESS = "workload/shop/witness@here"
DATA = "volumeset/shop/data@here"
DATABASE = "workload/shop/db@here"

KINDS = {
    "daemon.json": "made anew: the daemon has its identity on status branches from its machine and directory",
    "clock.json": "made anew: nothing expires for an hour",
    "host/here/dataplane/ports.json": "made anew: the ports of services are the same again while they are free",
    "host/here/endpoints/shop/*.json": "made anew: the ready replicas of a workload",
    "host/here/executions/shop/*.json": "the executions of a cron workload are forgotten",
    "host/here/logs/shop/*/*/*/*.rlog": "lines of the log of a container",
    "host/here/replicas/shop/*/*.json": "made anew from the labels of the containers of a replica",
    "host/here/run/shop/*/*/*/code": "how a container ended",
    "host/here/run/shop/*/*/*/output": "the newest lines of a container",
    "host/here/run/shop/*/*/*/record.json": "made anew from the labels of the process of a container",
    "host/here/snapshot-schedules.json": "made anew: schedules of snapshots begin now",
    "host/here/templates/shop/*/*.json": "an execution of an older version cannot start its containers again",
    "host/here/tokens/shop/*": "made anew: replicas of the workload are replaced",
    "host/here/usage/shop/*.json": "the recommendations for a workload begin anew",
    "host/here/usage-history/shop/*": "made anew: what a workload used before is forgotten",
    "host/here/volume-trims.json": "made anew: unused blocks are given back a week later",
    "host/here/replaced-volumesets.json": "no volume set can be replaced",
    "host/here/volumes/shop/*/*.d/command.json": "VolumeDamaged",
    "host/here/volumes/shop/*/*.d/lock": "VolumeDamaged",
    "host/here/volumes/shop/*/*.d/release.json": "made anew: a snapshot may precede a version twice",
    "host/here/volumes/shop/*/*.d/snapshots/*/snapshot.json": "VolumeDamaged",
    "host/here/volumes/shop/*/*.d/volume.json": "VolumeDamaged",
    "lock": "made anew: the name of the daemon that has the lock, which the kernel keeps",
    "reserve": "made anew: room for deletes on a full disk",
}
"""Kind of file → what is damaged with it; a volume says so in a condition."""
WHOLE = ("records.sqlite", "records.sqlite-shm", "records.sqlite-wal", "wake.sock", "api.sock")
"""The records, which docs/operations.md is about, and the sockets of the daemon."""
IMAGE = 1 << 30
"""Bytes of an image of a volume; all other files are smaller."""
UNFINISHED = (".new", ".part")
"""What a daemon that is killed leaves of a file that it writes."""


def garble(path: Path) -> None:
    path.write_bytes(b"\x00garbage")


def empty(path: Path) -> None:
    path.write_bytes(b"")


WAYS: dict[str, Callable[[Path], None]] = {"garbled": garble, "empty": empty, "removed": Path.unlink}

ONE_WAY = ["garbled", *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS if way != "garbled")]
"""For daemons that are expensive to start; the long form tries all."""


WITNESSES = served("witness", command="sleep", args=["1000000"], ports=None, readinessProbe=None)


def database() -> str:
    """A stateful workload, and its volumes."""
    space = {"initialCapacity": 10, "performanceClass": "general-purpose-ssd"}
    volume = {"uri": "platform://volumeset/data", "path": "/data"}
    documents = [
        json.loads(served("db", replicas=1, volumes=[volume])),
        {"kind": "volumeset", "name": "data", "gvc": "shop", "spec": space},
    ]
    documents[0]["spec"]["type"] = "stateful"
    return "---\n".join(json.dumps(each) + "\n" for each in documents)


def job() -> str:
    """A cron workload that is due on 29 February only."""
    container = {"name": "main", "image": "none", "command": "echo", "args": ["done"]}
    spec = {"type": "cron", "containers": [container], "job": {"schedule": "0 0 29 2 *"}}
    return json.dumps({"kind": "workload", "name": "job", "gvc": "shop", "spec": spec}) + "\n"


@contextmanager
def used_sandbox(path: Path) -> Iterator[HostSandbox]:
    """A sandbox with a file of each kind that such workloads have, and a witness that has none of the damaged ones."""
    files = {"shop/db.yaml": database(), "shop/job.yaml": job(), "shop/witness.yaml": WITNESSES}
    with host_sandbox(path, files, drift={"interval": "1s"}) as sandbox:
        yield sandbox


def use(sandbox: HostSandbox) -> None:
    """Have the files written that come with use."""
    wait(lambda: sandbox.healthy(WITNESS) and sandbox.healthy(DATABASE), "all is healthy")
    for words in (
        ("workload/shop/job", "runCronWorkload"),
        ("volumeset/shop/data", "createVolumeSnapshot", "volumeIndex=0", "snapshotName=one"),
    ):
        done = sandbox.run("command", *words, "--yes")
        assert done.returncode == 0, done
    wait(lambda: any((sandbox.state / "host/here/logs/shop/job").rglob("*.rlog")), "the output is stored")
    wait(lambda: sandbox.healthy(DATABASE), "it is healthy again")


def kinds(sandbox: HostSandbox, patterns: Collection[str] = KINDS) -> dict[str, list[Path]]:
    """The files but those of the witness, by their kinds; a file of no kind has none yet: give it one."""
    files: dict[str, list[Path]] = {}
    for path in sorted(each for each in sandbox.state.rglob("*") if each.is_file() or each.is_socket()):
        name = str(path.relative_to(sandbox.state))
        if name in WHOLE or "/volumes/shop/data/0/" in name or path.suffix in UNFINISHED:
            continue
        matching = [kind for kind in patterns if fnmatch(name, kind)]
        assert len(matching) == 1, f"classify {name}"
        if "witness" not in name:
            files.setdefault(matching[0], []).append(path)
    return files


def damage(sandbox: HostSandbox, way: str, of: Collection[str], known: Collection[str] = KINDS) -> dict[Path, bytes]:
    """Damage the files of kinds; what they were, images left out. A socket can only be removed."""
    found = [path for kind, paths in kinds(sandbox, known).items() if kind in of for path in paths]
    before = {path: path.read_bytes() for path in found if path.is_file() and path.stat().st_size < IMAGE}
    for path in found:
        WAYS[way if path.is_file() else "removed"](path)
    return before


def is_witness_healed(sandbox: HostSandbox) -> bool:
    """Whether a killed replica of the witness runs again; the one that was killed least, since others back off."""
    name = min(sandbox.replicas("witness").values(), key=lambda each: (each.containers[0].restarts, each.name)).name
    restarts = sandbox.replicas("witness")[name].containers[0].restarts
    [file] = (sandbox.state / "host/here/run/shop/witness" / name).rglob("record.json")
    os.kill(json.loads(file.read_bytes())["pid"], signal.SIGKILL)

    def runs_again() -> bool:
        replica = sandbox.replicas("witness").get(name)
        return replica is not None and replica.containers[0].restarts == restarts + 1 and replica.ready

    wait(runs_again, f"{name} runs again")
    wait(lambda: sandbox.healthy(WITNESS), "the witness is healthy")
    return True


def all_healthy(sandbox: HostSandbox) -> bool:
    """Whether everything is, with the volume that is used."""
    found = sandbox.recorded()
    return {str(each.health) for each in found.values()} == {"Healthy"} and lifecycle(sandbox) == "bound"


def conditions(sandbox: HostSandbox, key: str) -> dict[str, str]:
    """The conditions that the engine reports of a resource: type → message."""
    status = json.loads(sandbox.recorded()[key].state).get("status", {})
    return {each["type"]: each["message"] for each in status.get("conditions", [])}


def lifecycle(sandbox: HostSandbox) -> str:
    """The state of the volume."""
    [volume] = json.loads(sandbox.recorded()[DATA].state)["volumes"]
    return str(volume["lifecycle"])


def check(sandbox: HostSandbox, way: str) -> None:
    """Check that all but what is damaged is observed, healed and reported as it is."""
    assert is_witness_healed(sandbox)
    assert "LocationUnreachable" not in sandbox.run("events").stdout
    if way == "removed":
        return
    wait(lambda: lifecycle(sandbox) == "repairing", "the volume is damaged")
    wait(lambda: sandbox.recorded()[DATA].health == "Unhealthy", "its set says so")
    assert ": remove" in (text := conditions(sandbox, DATA)["VolumeDamaged"]) or ": restore" in text, text


@pytest.mark.parametrize("way", ONE_WAY)
def test_a_workload_is_healed_whatever_files_of_others_are_damaged(tmp_path: Path, way: str) -> None:
    with used_sandbox(tmp_path) as sandbox:
        with sandbox.daemon() as daemon:
            use(sandbox)
            damage(sandbox, way, KINDS.keys() - {"lock"})  # without it the daemon ends
            assert is_witness_healed(sandbox)
            daemon.kill()
        damage(sandbox, way, KINDS)
        with sandbox.daemon() as daemon:
            check(sandbox, way)
            assert daemon.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_one_damaged_kind_of_file_is_one_damaged_thing(tmp_path: Path, kind: str) -> None:
    with used_sandbox(tmp_path) as sandbox:
        with sandbox.daemon() as daemon:
            use(sandbox)
            daemon.kill()
        for way in WAYS:
            before = damage(sandbox, way, [kind])
            with sandbox.daemon() as daemon:
                assert is_witness_healed(sandbox)
                assert "LocationUnreachable" not in sandbox.run("events").stdout
                if KINDS[kind] == "VolumeDamaged" and way != "removed":
                    wait(lambda: "VolumeDamaged" in conditions(sandbox, DATA), "the volume set says so")
                else:
                    good = partial(all_healthy, sandbox)
                    wait(good, "all is healthy")
                daemon.kill()
            if KINDS[kind] == "VolumeDamaged" and way != "removed":
                for path, content in before.items():
                    path.write_bytes(content)
