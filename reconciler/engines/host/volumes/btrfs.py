"""Volumes that are subvolumes of btrfs: quotas limit them, and snapshots share all blocks."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.engines.host.disk.removal import remove_tree
from reconciler.engines.host.volumes.layout import VolumeFiles, VolumeRecord, capacity_bytes, missing_data
from reconciler.engines.host.volumes.programs import run_program
from reconciler.engines.host.volumes.trees import copy_tree, digest_tree, exchange_paths, tree_size
from reconciler.engines.volumes import make_rejection
from reconciler.errors import EngineError

_TOP_INODE = 256
"""The inode of the top directory of every subvolume."""
_ID, _PARENT = 1, 5
"""The words of a line like `ID 257 gen 9 parent 5 top level 5 path volumes/shop/data/0`."""


class BtrfsBackend:
    """The backend ``btrfs``. The data are the subvolume ``files.path``, attached or not."""

    enforced = True
    freezes = True
    grows_detached = False

    def probe(self, folder: Path) -> None:
        """Turn on the quotas of the file system. Raises EngineError if it is no btrfs."""
        run_program("btrfs", "quota", "enable", folder)

    def storage(self, files: VolumeFiles) -> Path:
        """The subvolume."""
        return files.path

    def file_system(self, fs_type: str) -> str:  # noqa: ARG002
        """That of the host."""
        return "btrfs"

    def create(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Create the subvolume with its limit."""
        files.make_reachable()
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

    def has_failed(self, files: VolumeFiles) -> bool:  # noqa: ARG002
        """Never: the disk of the host would have failed."""
        return False

    def is_in_use(self, files: VolumeFiles) -> bool:  # noqa: ARG002
        """Always, while it is locked."""
        return True

    def needs_detach(self, files: VolumeFiles) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def grow(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Limit the subvolume to its capacity."""
        run_program("btrfs", "qgroup", "limit", str(capacity_bytes(record)), files.path)

    def prepare(self, files: VolumeFiles, target: Path) -> None:
        """Do nothing."""

    def copy(self, files: VolumeFiles, target: Path) -> None:
        """Take a snapshot that is read-only. Raises EngineError for a volume with subvolumes, which it would lack."""
        if inner := run_program("btrfs", "subvolume", "list", "-o", files.path).splitlines():
            raise make_rejection(
                f"{files} contains {len(inner)} subvolumes of btrfs, which a snapshot of it would lack: make "
                "directories of them"
            )
        run_program("btrfs", "subvolume", "snapshot", "-r", files.path, target)
        run_program("sync", "-f", "--", target)

    def clone(self, stored: Path, target: Path) -> None:
        """Take a snapshot of the snapshot."""
        run_program("btrfs", "subvolume", "snapshot", "-r", stored, target)
        run_program("sync", "-f", "--", target)

    def replace(self, files: VolumeFiles, source: Path) -> None:
        """Exchange the subvolume for a writable snapshot of ``source``."""
        fresh = files.partial / "restored"
        files.make_directory(files.partial)
        self.remove(fresh)
        run_program("btrfs", "subvolume", "snapshot", source, fresh)
        if files.path.is_dir():
            exchange_paths(fresh, files.path)
            self.remove(fresh)
        else:
            fresh.rename(files.path)

    def adopt(self, stored: Path) -> None:
        """Replace a directory with a subvolume."""
        fresh = stored.with_name("subvolume")
        run_program("btrfs", "subvolume", "create", fresh)
        copy_tree(stored, fresh)
        remove_tree(stored)
        fresh.rename(stored)

    def remove(self, stored: Path) -> None:
        """Delete a subvolume with all that are in it, or anything else."""
        try:
            stat = os.lstat(stored)
        except FileNotFoundError:
            return
        if stat.st_ino == _TOP_INODE and stat.st_dev != os.lstat(stored.parent).st_dev:
            _delete_subvolume(stored)
        else:
            remove_tree(stored)

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


def _delete_subvolume(stored: Path) -> None:
    """Delete a subvolume; programs may have made others in it, which prevent that."""
    try:
        run_program("btrfs", "subvolume", "delete", stored)
    except EngineError:
        inner = _subvolumes_in(stored)
        if not inner:
            raise
        for text in reversed(inner):
            run_program("btrfs", "subvolume", "delete", "--subvolid", text, stored)
        run_program("btrfs", "subvolume", "delete", stored)


def _subvolumes_in(stored: Path) -> list[str]:
    """The ids of all subvolumes in a subvolume, each after the one that it is in."""
    lines = [line.split() for line in run_program("btrfs", "subvolume", "list", "-p", stored).splitlines()]
    texts = [run_program("btrfs", "inspect-internal", "rootid", stored).strip()]
    for outer in texts:
        texts += [words[_ID] for words in lines if words[_PARENT] == outer]
    return texts[1:]
