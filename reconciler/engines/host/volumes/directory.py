"""Volumes that are plain directories: nothing limits their size, and every host can have them."""

from __future__ import annotations

from pathlib import Path

from reconciler.engines.host.disk.removal import remove_tree
from reconciler.engines.host.volumes.layout import VolumeFiles, VolumeRecord, missing_data
from reconciler.engines.host.volumes.trees import copy_tree, digest_tree, exchange_paths, tree_size


class DirectoryBackend:
    """The backend ``directory``. The data are in ``files.path``, attached or not."""

    enforced = False
    freezes = False
    grows_detached = False

    def storage(self, files: VolumeFiles) -> Path:
        """The path of the volume's data."""
        return files.path

    def file_system(self, fs_type: str) -> str:  # noqa: ARG002
        """That of the host."""
        return ""

    def create(self, files: VolumeFiles, record: VolumeRecord) -> None:  # noqa: ARG002
        """Create the directory."""
        files.make_reachable()
        files.path.mkdir(mode=0o700)

    def attach(self, files: VolumeFiles, record: VolumeRecord) -> None:  # noqa: ARG002
        """Check that the directory exists. Raises EngineError if it does not."""
        if not files.path.is_dir():
            raise missing_data(files.path)

    def detach(self, files: VolumeFiles) -> None:
        """Do nothing."""

    def is_attached(self, files: VolumeFiles) -> bool:  # noqa: ARG002
        """Always: only the lock decides."""
        return True

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
        """Do nothing: there is no limit."""

    def prepare(self, files: VolumeFiles, target: Path) -> None:
        """Do nothing."""

    def copy(self, files: VolumeFiles, target: Path) -> None:
        """Copy the directory, with shared blocks if possible."""
        copy_tree(files.path, target)

    def clone(self, stored: Path, target: Path) -> None:
        """Copy the directory, with shared blocks if possible."""
        copy_tree(stored, target)

    def replace(self, files: VolumeFiles, source: Path) -> None:
        """Exchange the directory for a copy of ``source``."""
        fresh = files.partial / "restored"
        files.make_directory(files.partial)
        remove_tree(fresh)
        copy_tree(source, fresh)
        if files.path.is_dir():
            exchange_paths(fresh, files.path)
            remove_tree(fresh)
        else:
            fresh.rename(files.path)

    def adopt(self, stored: Path) -> None:
        """Do nothing."""

    def remove(self, stored: Path) -> None:
        """Remove a directory."""
        remove_tree(stored)

    def digest(self, stored: Path) -> str:
        """A checksum of the tree."""
        return digest_tree(stored)

    def size(self, stored: Path) -> int:
        """Bytes of all files on the disk."""
        return tree_size(stored)

    def copy_size(self, stored: Path) -> int:
        """All of it: whether blocks can be shared is not known before."""
        return tree_size(stored)

    def usage(self, files: VolumeFiles) -> int:
        """Bytes of all files on the disk."""
        return tree_size(files.path)

    def trim(self, files: VolumeFiles) -> None:
        """Do nothing: deleted files take no blocks."""

    def recover(self, files: VolumeFiles, record: VolumeRecord, locked: bool) -> tuple[str, ...]:  # noqa: ARG002
        """Do nothing: every change is one system call."""
        return ()
