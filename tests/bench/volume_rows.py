"""Rows about volumes that are images: how long a replica waits for one, and how long a snapshot stops its writes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median

import pytest

from reconciler.clock import SystemClock
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.volumes.protocol import VolumeSpec
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.volumes import VolumeId
from reconciler.errors import EngineError
from tests.bench.measure import Failed
from tests.bench.table import Row
from tests.bench.workspace import Workspace
from tests.engines.host.volumes.kit import NO_RESERVE, ONE, SET, mounted_disk

CAPACITY = 10.0
DATA = 1 << 30
DISK = 30 << 30
"""Bytes of the XFS below the images, a sparse file."""
CHUNK = 1 << 20


def volumes(workspace: Workspace) -> Iterator[Row]:
    """Images of 10 GB with 1 GB of data: on the disk as it is, and on an XFS, where copies share blocks."""
    if os.geteuid():
        raise Failed("only root mounts images")
    with ExitStack() as stack:
        try:
            shared = stack.enter_context(mounted_disk(workspace.scratch / "shared", "xfs", size=DISK))
        except (OSError, pytest.skip.Exception) as error:
            raise Failed(str(error)) from None
        for place, root in (("the disk as it is", workspace.scratch / "plain"), ("an XFS", shared / "root")):
            for setting in ("image-ext4", "image-xfs"):
                yield from _rows(workspace, root / setting, setting, f"{setting} on {place}")


def _rows(workspace: Workspace, root: Path, setting: str, name: str) -> Iterator[Row]:
    root.mkdir(parents=True)
    store = VolumeStore(root, setting, SystemClock(), NO_RESERVE)
    store.open()
    samples = workspace.often(5)
    spec = VolumeSpec(CAPACITY)
    volumes = [VolumeId(SET, number) for number in range(samples)]

    def attach(volume: VolumeId) -> Path:
        return store.attach(volume, spec, ONE, Owner())

    created = [_timed(attach, volume) for volume in volumes]
    for volume in volumes:
        store.detach(volume, ONE)
    attached = [_timed(attach, volume) for volume in volumes]
    grown = [_timed(lambda volume: store.grow(volume, CAPACITY + 1), volume_id) for volume_id in volumes]
    yield Row(f"{name}: create", median(created), 0.1)
    yield Row("  attach", median(attached), 0.1)
    yield Row("  grow in use", median(grown), 0.1)
    path = attach(volumes[0])
    with (path / "records").open("wb") as file:
        for _ in range(DATA // CHUNK):
            file.write(os.urandom(CHUNK))
        os.fsync(file.fileno())
    stopped = [_stopped(store, volumes[0], path, f"s{number}") for number in range(samples)]
    yield Row("  a snapshot stops writes, at most", max(stopped), 1, note=_taken(store, volumes[0]))
    for volume in volumes:
        store.detach(volume, ONE)
    store.drop(SET, keep_final_snapshot=False)


def _timed(work: Callable[[VolumeId], object], volume: VolumeId) -> float:
    began = time.monotonic()
    work(volume)
    return time.monotonic() - began


def _stopped(store: VolumeStore, volume: VolumeId, path: Path, name: str) -> float:
    """The longest time that a program which writes all the time could not, during a snapshot, in seconds."""
    done, gaps = threading.Event(), [0.0]

    def write() -> None:
        with (path / "writes").open("ab", buffering=0) as file:
            last = time.monotonic()
            while not done.is_set():
                file.write(b"x")
                now = time.monotonic()
                gaps.append(now - last)
                last = now
                time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with suppress(EngineError):  # given up: writes were stopped all the same
            store.take_snapshot(volume, name, "", {})
    finally:
        done.set()
        writer.join()
    return max(gaps)


def _taken(store: VolumeStore, volume: VolumeId) -> str:
    found = next(each for each in store.list(SET) if each.index == volume.index)
    return f"{len(found.snapshots)} snapshots taken"
