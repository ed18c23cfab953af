"""A store of volumes on a disk of this machine, and what is in them."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.volumes.protocol import StoredVolume, VolumeId, VolumeSpec
from reconciler.engines.host.volumes.space import Reserve
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.model.key import Key
from tests.support.clock import FakeClock

SET = Key.parse("volumeset/shop/data")
VOLUME = VolumeId(SET, 0)
ONE, OTHER = "workload/shop/db replica db-0", "workload/shop/db2 replica db2-0"
OURS = Owner()
NO_RESERVE = Reserve(0, 0)


class Disk:
    """A store with one ``setting``; its volumes are as small as their file systems allow."""

    def __init__(self, root: Path, setting: str, capacity: float, reserve: Reserve = NO_RESERVE) -> None:
        self.root = root
        self.setting = setting
        self.clock = FakeClock()
        self.reserve = reserve
        self.capacity = capacity
        self.spec = VolumeSpec(capacity)
        self.reports: tuple[str, ...] = ()
        self.store = self.reopen()

    def reopen(self) -> VolumeStore:
        """What a new daemon finds."""
        self.store = VolumeStore(self.root, self.setting, self.clock, self.reserve)
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
