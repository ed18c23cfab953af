"""What the volumes on this host are, and what a backend does for them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from reconciler.engines.host.volumes.layout import LastCommand, VolumeFiles, VolumeRecord, VolumeState
from reconciler.engines.volumes import Snapshot
from reconciler.model.key import Key


class BackendName(StrEnum):
    """How a volume is stored; a volume keeps its backend for as long as it exists."""

    DIRECTORY = "directory"
    IMAGE_EXT4 = "image-ext4"
    IMAGE_XFS = "image-xfs"
    BTRFS = "btrfs"


class VolumeSpec(NamedTuple):
    """The manifest's wishes for a new volume; ``capacity`` is in GB, ``file_system`` is ext4 or xfs."""

    capacity: float
    file_system: str = "ext4"


class StoredSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """A complete snapshot: ``capacity`` of its volume in GB, ``size`` in bytes on the disk, times as ISO 8601, UTC.

    ``expires`` is empty for a permanent one. ``checksum`` covers all data.
    """

    name: str
    created: str
    capacity: float
    size: int
    checksum: str
    expires: str = ""
    tags: dict[str, str] = {}

    def describe(self) -> Snapshot:
        """The snapshot as every engine shows it."""
        return Snapshot(self.name, self.created, self.capacity, self.expires, self.tags)


class StoredVolume(msgspec.Struct, frozen=True):
    """A volume on the disk. ``holder`` is what it is attached to, empty if it is detached.

    ``enforced``: the capacity is a limit. ``freezes``: a snapshot can be taken while the volume is attached. ``lost``:
    it is attached, but its mount vanished or its file system failed; to attach it again mounts it. ``unfinished`` is a
    command that replaces the data and is not done; until then no replica gets the volume. ``grows_detached``: it grows
    only while it is detached.

    ``damage`` says which file of the volume cannot be read, and what to do: until then it is used for nothing, and all
    else is unknown. ``damaged_snapshots`` has the same for each snapshot that cannot be read.
    """

    index: int
    backend: str
    file_system: str
    capacity: float
    state: VolumeState
    snapshots: tuple[StoredSnapshot, ...] = ()
    holder: str = ""
    enforced: bool = False
    freezes: bool = False
    lost: bool = False
    unfinished: LastCommand | None = None
    grows_detached: bool = False
    damage: str = ""
    damaged_snapshots: tuple[str, ...] = ()


class DeletedVolume(msgspec.Struct, frozen=True):
    """The final snapshot of a volume whose volume set is deleted; ``name`` is unique within ``volumeset``."""

    volumeset: Key
    index: int
    name: str
    snapshot: StoredSnapshot


class VolumeBackend(Protocol):
    """One way to store volumes. Every method blocks; it raises OSError or EngineError and then has changed nothing.

    The data of a volume, and each copy of them, is one file or one directory. The store prevents two operations on one
    volume at a time.
    """

    enforced: bool
    freezes: bool

    @property
    def grows_detached(self) -> bool:
        """Whether a volume can grow only while it is detached."""

    def storage(self, files: VolumeFiles) -> Path:
        """The path of the volume's data, whether it exists or not."""

    def file_system(self, fs_type: str) -> str:
        """The file system of a new volume for which a manifest wants ``fs_type``; empty for that of the host."""

    def create(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Create an empty volume."""

    def attach(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Make the data available at ``files.path``, with the recorded capacity. Does nothing if they are."""

    def detach(self, files: VolumeFiles) -> None:
        """Undo ``attach``. Does nothing if the volume is not attached; raises EngineError if it is in use."""

    def is_attached(self, files: VolumeFiles) -> bool:
        """Whether the data are available at ``files.path``."""

    def has_failed(self, files: VolumeFiles) -> bool:
        """Whether the data are attached, but their file system has stopped itself after an error of the disk."""

    def is_in_use(self, files: VolumeFiles) -> bool:
        """Whether anything, in any mount namespace, may use the data of a locked volume."""

    def needs_detach(self, files: VolumeFiles) -> bool:
        """Whether the volume can grow only while it is detached, and is not."""

    def grow(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Give the volume the recorded, larger capacity, unless it ``needs_detach``."""

    def prepare(self, files: VolumeFiles, target: Path) -> None:
        """Copy the data of an attached volume ahead to ``target``, which does not exist, if ``copy`` could take long.

        Raises EngineError FreezeTimeout if ``copy`` would stop its writes for too long all the same; ``target`` then
        shortens a copy of the detached volume.
        """

    def copy(self, files: VolumeFiles, target: Path) -> None:
        """Copy the data as they are at one moment to ``target``, which is what ``prepare`` made or does not exist."""

    def clone(self, stored: Path, target: Path) -> None:
        """Copy the copy ``stored`` to ``target``, which does not exist."""

    def replace(self, files: VolumeFiles, source: Path) -> None:
        """Replace the data of a detached volume with a copy of ``source``, at once or not at all."""

    def adopt(self, stored: Path) -> None:
        """Make of a copy that another program wrote one that ``replace`` takes."""

    def remove(self, stored: Path) -> None:
        """Remove the data of a detached volume, or a copy, if it exists."""

    def digest(self, stored: Path) -> str:
        """A checksum of all data of a detached volume or of a copy."""

    def size(self, stored: Path) -> int:
        """Bytes of the disk that ``stored`` takes."""

    def copy_size(self, stored: Path) -> int:
        """Bytes of the disk that one more copy of ``stored`` needs."""

    def usage(self, files: VolumeFiles) -> int:
        """Bytes that the files in the volume take."""

    def trim(self, files: VolumeFiles) -> None:
        """Give blocks of deleted files back to the disk, if the volume is attached."""

    def recover(self, files: VolumeFiles, record: VolumeRecord, locked: bool) -> tuple[str, ...]:
        """Finish or undo what a crash interrupted; return what an operator must know."""
