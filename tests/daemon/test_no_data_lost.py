"""A program that counts on its volume while all happens to it that may: no acknowledged record is lost."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from reconciler.engines.host.volumes.space import Reserve
from reconciler.engines.host.volumes.store import VolumeStore
from tests.engines.host.volumes.kit import BTRFS, EXT4, XFS, mounted_disk
from tests.support.clock import FakeClock
from tests.support.host_sandbox import HostSandbox, host_sandbox, shared_folder
from tests.support.sandbox import eventually

DATA = "volumeset/shop/data"
VOLUMESET = (
    "kind: volumeset\nname: data\ngvc: shop\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
)
COUNTER = """
import os, time, zlib
log = open(os.environ["RECONCILER_VOLUMES"] + "/data/log", "a+")
log.seek(0)
number = sum(1 for _ in log)
acknowledged = open(os.environ["ACKNOWLEDGED"], "a")
while True:
    number += 1
    print(number, zlib.crc32(str(number).encode()), file=log, flush=True)
    os.fsync(log.fileno())
    print(number, file=acknowledged, flush=True)
    time.sleep(0.02)
"""
"""Writes numbered records with checksums, and acknowledges each after it is on the disk."""

ROUNDS = 100
"""The rounds of the long form on each backend."""

wait = partial(eventually, patience=60.0)


class Counter:
    """A sandbox with a program that counts, and what is known of its records."""

    def __init__(self, sandbox: HostSandbox, acknowledged: Path) -> None:
        self.sandbox = sandbox
        self.acknowledged = acknowledged
        self.owner = "db"
        self.version = 1
        self.size = 10
        self.snapshots = 0
        self.commit()

    def commit(self) -> None:
        """Apply the program in its version, and a workload that does without the volume."""
        variables = {"ACKNOWLEDGED": str(self.acknowledged), "VERSION": str(self.version)}
        container = {
            "name": "main",
            "image": "none",
            "command": "python3",
            "args": ["-c", COUNTER],
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "volumes": [{"uri": "platform://volumeset/data", "path": "/data"}],
        }
        idle = {"name": "main", "image": "none", "command": "sleep", "args": ["1000"]}
        other = "other" if self.owner == "db" else "db"
        files = {
            f"shop/{name}.yaml": json.dumps(
                {"kind": "workload", "name": name, "gvc": "shop", "spec": {"type": "stateful", "containers": [each]}}
            )
            for name, each in ((self.owner, container), (other, idle))
        }
        self.sandbox.repo.commit(files)

    def last(self) -> int:
        """The last acknowledged number."""
        lines = self.acknowledged.read_text().split() if self.acknowledged.exists() else []
        return int(lines[-1]) if lines else 0

    def records(self) -> list[tuple[int, int]]:
        """The records on the volume."""
        lines = (self.sandbox.state / "host/here/volumes/shop/data/0/log").read_text().splitlines()
        return [(int(number), int(checksum)) for number, checksum in (line.split() for line in lines)]

    def check(self, least: int) -> None:
        """Check that each number up to ``least``, and to the last one, is there once, in order and intact."""
        found = self.records()
        assert found == [(number, zlib.crc32(str(number).encode())) for number in range(1, len(found) + 1)]
        assert len(found) >= least

    def counts_on(self) -> None:
        """Wait for new records, and check that none is lost."""
        before = self.last()
        wait(lambda: self.last() > before + 2, "it counts on")
        self.check(before)

    def command(self, name: str, *fields: str) -> None:
        """Perform a command on the volume."""
        done = self.sandbox.run("command", DATA, name, "volumeIndex=0", *fields, "--yes")
        assert done.returncode == 0, done

    def roll(self) -> None:
        """Replace the replica with one of a new version."""
        before = self.running()
        self.version += 1
        self.commit()
        wait(lambda: len(self.running()) == 1 and self.running() > before, "it is replaced")

    def running(self) -> list[int]:
        """The versions of the replicas that run."""
        return [each.version for each in self.sandbox.replicas(self.owner).values()]

    def move(self) -> None:
        """Give the volume to another workload."""
        self.owner = "other" if self.owner == "db" else "db"
        self.commit()
        wait(lambda: f"workload/shop/{self.owner} " in self.lock(), "it moves")

    def lock(self) -> str:
        """Who holds the volume; empty between two of them."""
        with suppress(FileNotFoundError):
            return (self.sandbox.state / "host/here/volumes/shop/data/0.d/lock").read_text()
        return ""

    def expand(self) -> None:
        """Expand the volume."""
        self.size += 1
        self.command("expandVolume", f"newStorageCapacity={self.size}")

    def restore(self) -> None:
        """Take a snapshot, and go back to it: what was acknowledged before it is there."""
        self.snapshots += 1
        name, before = f"snapshot-{self.snapshots}", self.last()
        self.command("createVolumeSnapshot", f"snapshotName={name}")
        wait(lambda: self.last() > before + 3, "more is counted")
        self.command("restoreVolume", f"snapshotName={name}")
        size = self.acknowledged.stat().st_size
        wait(lambda: self.acknowledged.stat().st_size > size, "it counts on")
        self.check(before)


@contextmanager
def counting(path: Path, volumes: str) -> Iterator[Counter]:
    """A sandbox whose program counts; nothing stays mounted."""
    with ExitStack() as stack:
        place = stack.enter_context(mounted_disk(path / "disk", "btrfs")) if volumes == "btrfs" else path
        host = {"volumes": volumes, "diskReserve": 0}
        with host_sandbox(place / "site", {"shop/data.yaml": VOLUMESET}, host=host) as sandbox:
            yield Counter(sandbox, shared_folder(path) / "acknowledged")
        store = VolumeStore(sandbox.state / "host/here", volumes, FakeClock(), Reserve(0, 0))
        store.open()
        for volume, holder in store.holders().items():
            store.detach(volume, holder)


def go_through(path: Path, volumes: str, order: str) -> None:
    """One round for each letter: the daemon is Killed, or the program Rolled, Moved, Expanded or restored (Back)."""
    with counting(path, volumes) as counter:
        rounds = {"R": counter.roll, "M": counter.move, "E": counter.expand, "B": counter.restore}
        for part in order.split("K"):
            with counter.sandbox.daemon() as daemon:
                counter.counts_on()
                for letter in part:
                    rounds[letter]()
                    counter.counts_on()
                daemon.kill()


@pytest.mark.parametrize("volumes", ["directory", XFS])
def test_no_acknowledged_record_is_lost(tmp_path: Path, volumes: str) -> None:
    go_through(tmp_path, volumes, "RKMEB")


@pytest.mark.slow
@pytest.mark.parametrize("volumes", ["directory", EXT4, XFS, BTRFS])
def test_no_acknowledged_record_is_lost_in_many_rounds(tmp_path: Path, volumes: str) -> None:
    go_through(tmp_path, volumes, "".join(random.Random(7).choices("RKMEB", k=ROUNDS)))
