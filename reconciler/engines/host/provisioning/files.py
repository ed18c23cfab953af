"""The files of containers: their mounts, prepared before each start and removed with the replica."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock

from reconciler.engines.host.dataplane.endpoints import ENDPOINTS
from reconciler.engines.host.disk.atomic import write_error
from reconciler.engines.host.disk.directories import (
    TRAVERSABLE,
    file_name,
    make_replacement,
    make_traversable,
    remove_empty,
    replace_directory,
)
from reconciler.engines.host.disk.ownership import Owner, allow_traversal, make_for_images, make_readable, make_shared
from reconciler.engines.host.disk.removal import remove_tree
from reconciler.engines.host.runtimes.protocol import ContainerFiles, ContainerId, Mount
from reconciler.engines.host.volumes.layout import VolumeFiles
from reconciler.engines.protocol import SecretReader
from reconciler.engines.workload.mounts import Planned, ScratchMount, SecretMount, VolumeMount, plan_mounts
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Container
from reconciler.model.platform import SPELLING
from reconciler.private_files import make_directory

MEMORY = Path("/dev/shm")
"""A file system in memory, so that files never reach a disk."""

NO_COPIES: Mapping[str, Path] = {}
_PRIVATE = ".own"
"""The directory of the containers' private files, beside the scratch volumes of a replica."""


class Files:
    """All files of the containers at one location; ``root`` is the directory of that location.

    Secrets are on tmpfs, in a private directory below ``memory``, if that is a mount point, otherwise below ``root``.
    Every method blocks on the disk and may be called in any thread. ``scheme`` is how manifests spell ``platform``.
    ``endpoints`` is the directory of the endpoints files.
    """

    def __init__(self, root: Path, reveal: SecretReader, scheme: str = SPELLING, memory: Path | None = MEMORY) -> None:
        self.endpoints = root / ENDPOINTS
        self._root = root
        self._reveal = reveal
        self._scheme = scheme
        mark = blake2b(os.fsencode(root.absolute()), digest_size=6).hexdigest()
        self._on_disk = root / "secrets"
        self._in_memory = memory / f"reconciler-{mark}" if memory is not None else None
        self._lock = Lock()  # guards directories that are created for one replica while those of another are removed

    def provide(
        self,
        container_id: ContainerId,
        index: int,
        container: Container,
        owner: Owner,
        copies: Mapping[str, Path] = NO_COPIES,
    ) -> ContainerFiles:
        """Prepare all files for the next start of ``container``; those of an earlier start are removed.

        ``index`` is the replica's ordinal in a stateful workload, otherwise -1; its volumes are attached. ``copies``
        has paths that take the place of volumes, by the name of the volume set. Raises EngineError: SecretUnavailable,
        SecretUnusable, MountRefused, DiskFull, PermissionDenied, StateWriteFailed.
        """
        plans = plan_mounts(container, self._reveal, self._scheme)
        try:
            paths = {
                plan.volumeset: copies.get(plan.volumeset) or self.volume(container_id.key.gvc, plan.volumeset, index)
                for plan in plans
                if isinstance(plan, VolumeMount)
            }
            mounts = self._mounts(container_id, plans, owner, paths)
            scratch = _of_replica(self._root / "scratch", container_id.key, container_id.replica)
            private = scratch / _PRIVATE / file_name(container_id.container)
        except OSError as error:
            raise write_error(
                f"the files of {container_id.replica}, container {container_id.container}, cannot be made", error
            ) from None
        return ContainerFiles(container_id, mounts, owner, private, self.endpoints / container_id.key.gvc)

    def volume(self, gvc: str, volumeset: str, index: int) -> Path:
        """The path of the volume ``index`` of a volume set while it is attached."""
        return VolumeFiles(self._root, gvc, volumeset, str(max(index, 0))).path

    def clear(self, key: Key, replica: str) -> None:
        """Remove everything that was made for a replica, its scratch volumes and secrets; volumes of volume sets stay.

        Does nothing if there is nothing to remove. Raises EngineError.
        """
        for base in self._bases():
            path = _of_replica(base, key, replica)
            try:
                remove_tree(path)
            except OSError as error:
                raise write_error(f"the files of {replica} cannot be removed", error) from None
            with self._lock:
                remove_empty(path.parent, base)

    def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """Remove the files of replicas other than ``replicas``, which a crash may have left, as far as possible."""
        for key, replica in {replica for base in self._bases() for replica in _replicas_below(base)}:
            if (key, replica) not in replicas:
                with suppress(EngineError):
                    self.clear(key, replica)

    def _bases(self) -> list[Path]:
        scratch = self._root / "scratch"
        return [scratch, self._on_disk, *([self._in_memory] if self._in_memory is not None else [])]

    def _mounts(
        self, container_id: ContainerId, plans: tuple[Planned, ...], owner: Owner, volumes: Mapping[str, Path]
    ) -> tuple[Mount, ...]:
        secrets = [plan for plan in plans if isinstance(plan, SecretMount)]
        scratch = _of_replica(self._root / "scratch", container_id.key, container_id.replica)
        with self._lock:
            make_traversable(self._root, scratch.parent)
            # Volumes for users that are not known yet are open to all, and containers reach them through mounts alone.
            scratch.mkdir(mode=0o700, exist_ok=True)
            scratch.chmod(0o700 if owner.of_image else TRAVERSABLE)
        at = self._secrets(container_id, secrets, owner)
        mounts = []
        for plan in plans:
            match plan:
                case SecretMount(path=path):
                    mounts.append(Mount(at / str(secrets.index(plan)), path))
                case ScratchMount(path=path, folder=folder):
                    mounts.append(Mount(_make_scratch(scratch / file_name(folder), owner), path, read_only=False))
                case VolumeMount(path=path, volumeset=name):
                    mounts.append(Mount(volumes[name], path, read_only=False))
        return tuple(mounts)

    def _secrets(self, container_id: ContainerId, secrets: list[SecretMount], owner: Owner) -> Path:
        """Write the secrets of a container, each under its position, and return the directory; no secrets, no files."""
        if not secrets:
            return self._on_disk
        with self._lock:
            base = self._private(owner)
            at = _of_replica(base, container_id.key, container_id.replica) / file_name(container_id.container)
            make_traversable(base, at.parent)
        fresh = make_replacement(at)
        for position, secret in enumerate(secrets):
            target = fresh / str(position)
            if secret.single:
                _write_file(target, secret.files[""], owner)
                continue
            target.mkdir(mode=0o700)
            for name, content in secret.files.items():
                _write_file(target / file_name(name), content, owner)
            make_readable(target, owner, 0o500)
        make_readable(fresh, owner, 0o500)
        replace_directory(at, fresh)
        return at

    def _private(self, owner: Owner) -> Path:
        """The directory for secrets: in memory, unless the name is taken there by someone else."""
        path = self._in_memory
        if path is not None and path.parent.is_mount():
            with suppress(OSError):
                path.mkdir(mode=0o700, exist_ok=True)
                stat_result = path.lstat()
                closed = stat.S_IMODE(stat_result.st_mode) in (0o700, 0o711)
                if stat.S_ISDIR(stat_result.st_mode) and stat_result.st_uid == os.geteuid() and closed:
                    allow_traversal(path, owner)
                    return path
        path = self._on_disk
        make_directory(path)
        allow_traversal(path, owner)
        return path


def _of_replica(base: Path, key: Key, replica: str) -> Path:
    return base / file_name(key.gvc) / file_name(key.name) / file_name(replica)


def _make_scratch(path: Path, owner: Owner) -> Path:
    """A scratch volume; containers of images share it whatever their users are.

    It has no sticky bit: with it the kernel denies root to open files of other users for writing and creation.
    """
    if not owner.of_image:
        return make_shared(path, owner)
    make_for_images(path, owner, 0o777)
    return path


def _write_file(path: Path, content: bytes, owner: Owner) -> None:
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
        file.write(content)
    make_readable(path, owner, 0o400)


def _replicas_below(base: Path) -> Iterator[tuple[Key, str]]:
    """The replicas that have files below ``base``."""
    for path in list_paths(base, "*/*/*"):
        gvc, workload, replica = path.relative_to(base).parts
        yield Key(Kind.WORKLOAD, gvc, workload), replica
