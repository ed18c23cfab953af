"""Volumes that are subvolumes of btrfs: quotas limit them, and snapshots share all blocks."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.engines.host.disk.directories import make_traversable
from reconciler.engines.host.disk.removal import remove
from reconciler.engines.host.volumes.layout import VolumeFiles, VolumeRecord, capacity_bytes, missing_data
from reconciler.engines.host.volumes.programs import run_program
from reconciler.engines.host.volumes.trees import digest_tree, exchange, tree_size
from reconciler.private_files import make_directory

_TOP_INODE = 256
"""The inode of the top directory of every subvolume."""


class BtrfsBackend:
    """The backend ``btrfs``. The data are the subvolume ``files.path``, attached or not."""

    enforced = True
    freezes = True

    def probe(self, folder: Path) -> None:
        """Turn on the quotas of the file system. Raises EngineError if it is no btrfs."""
        run_program("btrfs", "quota", "enable", folder)

    def storage(self, files: VolumeFiles) -> Path:
        """The subvolume."""
        return files.path

    def file_system(self, wanted: str) -> str:  # noqa: ARG002
        """That of the host."""
        return "btrfs"

    def create(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Create the subvolume with its limit."""
        make_traversable(files.path.parent)
        run_program("btrfs", "subvolume", "create", files.path)
        files.path.chmod(0o700)
        self.grow(files, record)

    def attach(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Limit the subvolume, which may be a restored one. Raises EngineError if it is missing."""
        if not files.path.is_dir():
            raise missing_data(files.path)
        self.grow(files, record)

    def detach(self, files: VolumeFiles) -> None:
        """Do nothing."""

    def is_attached(self, files: VolumeFiles) -> bool:
        """Whether the subvolume exists."""
        return files.path.is_dir()

    def is_in_use(self, files: VolumeFiles) -> bool:  # noqa: ARG002
        """Always, while it is locked."""
        return True

    def needs_detach(self, files: VolumeFiles) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def grow(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Limit the subvolume to its capacity."""
        run_program("btrfs", "qgroup", "limit", str(capacity_bytes(record)), files.path)

    def copy(self, files: VolumeFiles, target: Path) -> None:
        """Take a snapshot that is read-only."""
        run_program("btrfs", "subvolume", "snapshot", "-r", files.path, target)
        run_program("sync", "-f", "--", target)

    def replace(self, files: VolumeFiles, source: Path) -> None:
        """Exchange the subvolume for a writable snapshot of ``source``."""
        fresh = files.partial / "restored"
        make_directory(files.partial)
        self.remove(fresh)
        run_program("btrfs", "subvolume", "snapshot", source, fresh)
        if files.path.is_dir():
            exchange(fresh, files.path)
            self.remove(fresh)
        else:
            fresh.rename(files.path)

    def remove(self, stored: Path) -> None:
        """Delete a subvolume, or anything else."""
        try:
            found = os.lstat(stored)
        except FileNotFoundError:
            return
        if found.st_ino == _TOP_INODE and found.st_dev != os.lstat(stored.parent).st_dev:
            run_program("btrfs", "subvolume", "delete", stored)
        else:
            remove(stored)

    def digest(self, stored: Path) -> str:
        """A checksum of the tree."""
        return digest_tree(stored)

    def size(self, stored: Path) -> int:
        """Bytes of all files, many of which other subvolumes may share."""
        return tree_size(stored)

    def copy_size(self, stored: Path) -> int:  # noqa: ARG002
        """None: all blocks are shared."""
        return 0

    def usage(self, files: VolumeFiles) -> int:
        """The bytes that count towards the limit."""
        lines = run_program("btrfs", "qgroup", "show", "--raw", "-f", files.path).splitlines()
        return int(lines[-1].split()[1])

    def trim(self, files: VolumeFiles) -> None:
        """Do nothing: deleted files take no blocks."""

    def recover(self, files: VolumeFiles, record: VolumeRecord, locked: bool) -> tuple[str, ...]:  # noqa: ARG002
        """Do nothing: every change is one system call."""
        return ()
