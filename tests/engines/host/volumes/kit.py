"""A store of volumes on a disk of this machine, and what is in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest

from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.volumes.freeze import LIMIT
from reconciler.engines.host.volumes.protocol import StoredVolume, VolumeSpec
from reconciler.engines.host.volumes.space import Reserve
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.volumes import VolumeId
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from tests.support.clock import FakeClock
from tests.support.programs import only_root

SET = Key.parse("volumeset/shop/data")
VOLUME = VolumeId(SET, 0)
ONE, OTHER = "workload/shop/db replica db-0", "workload/shop/db2 replica db2-0"
OURS = Owner()
NO_RESERVE = Reserve(0, 0)
CAPACITIES = {"directory": 10, "image-ext4": 8 / 1024, "image-xfs": 304 / 1024, "btrfs": 64 / 1024, "auto": 10}
"""Backend → GB of a small volume; no XFS is smaller."""
_ROOT = only_root("only root mounts images")
EXT4, XFS = (pytest.param(f"image-{name}", marks=_ROOT) for name in ("ext4", "xfs"))
IMAGES = (EXT4, pytest.param("image-xfs", marks=(_ROOT, pytest.mark.slow)))
"""An XFS takes ten times as long to make: what is true of all images is tried with it by the slow suites."""
BTRFS = pytest.param("btrfs", marks=_ROOT)
ALL = ("directory", *IMAGES, BTRFS)
"""For the parameters of fixtures."""


class Disk:
    """A store with one ``setting``; its volumes are as small as their file systems allow."""

    def __init__(self, root: Path, setting: str, reserve: Reserve = NO_RESERVE, freeze_limit: float = LIMIT) -> None:
        self.root = root
        self.setting = setting
        self.clock = FakeClock()
        self.reserve = reserve
        self.freeze_limit = freeze_limit
        self.capacity = CAPACITIES[setting]
        self.spec = VolumeSpec(self.capacity)
        self.reports: tuple[str, ...] = ()
        self.store = self.reopen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for line in reversed(self.mounts()):
            subprocess.run(["umount", "-l", line], check=True)

    def mounts(self) -> list[str]:
        """The mount points below the root."""
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return [point for point in points if point.startswith(f"{self.root}/")]

    def leftovers(self) -> list[str]:
        """Mounts, and images with a loop device."""
        loops = []
        for path in Path("/sys/block").glob("loop*/loop/backing_file"):
            with suppress(OSError):  # a device of another test ends meanwhile
                loops.append(path.read_text().strip())
        return self.mounts() + [path for path in loops if path.startswith(f"{self.root}/")]

    def reopen(self) -> VolumeStore:
        """What a new daemon finds."""
        self.store = VolumeStore(self.root, self.setting, self.clock, self.reserve, self.freeze_limit)
        self.reports = self.store.open()
        return self.store

    def attach(self, holder: str = ONE, volume: VolumeId = VOLUME) -> Path:
        """Attach a volume."""
        return self.store.attach(volume, self.spec, holder, OURS)

    def fill(self, **files: str) -> None:
        """Write files into the detached volume."""
        path = self.attach()
        for name, content in files.items():
            (path / name).write_text(content)
        self.store.detach(VOLUME, ONE)

    def content(self) -> dict[str, str]:
        """The files of the detached volume."""
        path = self.attach()
        try:
            return {each.name: each.read_text() for each in path.iterdir()}
        finally:
            self.store.detach(VOLUME, ONE)

    def snapshot(self, name: str, volume: VolumeId = VOLUME) -> None:
        """Take a permanent snapshot."""
        self.store.take_snapshot(volume, name, "", {})

    @property
    def volume(self) -> StoredVolume:
        """The only volume."""
        (volume,) = self.store.list(SET)
        return volume

    def names(self) -> list[str]:
        """The names of its snapshots."""
        return [each.name for each in self.volume.snapshots]

    def tree(self) -> list[str]:
        """All paths below the root but the content of volumes."""
        return sorted(
            os.path.relpath(os.path.join(folder, name), self.root)
            for folder, folders, files in os.walk(self.root)
            for name in (*folders, *files)
        )


@contextmanager
def mounted_disk(path: Path, file_system: str, *options: str, size: int = 400 << 20) -> Iterator[Path]:
    """A new file system of the host with ``size`` bytes, mounted at ``path``."""
    image = path.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run([f"mkfs.{file_system}", "-q", *options, image], check=True)
    path.mkdir()
    subprocess.run(["mount", "-o", "loop", image, path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)
        image.unlink()


@contextmanager
def disk_with(setting: str, path: Path) -> Iterator[Disk]:
    """A store with one backend, on a disk that has it."""
    with ExitStack() as stack:
        place = stack.enter_context(mounted_disk(path / "btrfs", "btrfs")) if setting == "btrfs" else path
        disk = stack.enter_context(Disk(place / "root", setting))
        yield disk
        for holder in (ONE, OTHER):
            disk.store.detach(VOLUME, holder)
        assert disk.leftovers() == []


def refused(caught: pytest.ExceptionInfo[EngineError], reason: Reason, *words: str) -> None:
    """Check the reason of an error, and words of its message."""
    assert caught.value.reason is reason
    assert all(word in str(caught.value) for word in words), str(caught.value)
