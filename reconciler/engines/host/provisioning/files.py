"""What a container finds on disk: its mounts, made whole before it starts and removed with its replica."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock

import msgspec

from reconciler.engines.host.atomic import FULL, failed
from reconciler.engines.host.provisioning.mounts import Planned, ScratchMount, SecretMount, VolumeMount, plan_mounts
from reconciler.engines.host.provisioning.ownership import (
    Owner,
    allow_traversal,
    chown_tree,
    make,
    make_readable,
    unreachable,
)
from reconciler.engines.host.provisioning.removal import remove
from reconciler.engines.host.runtimes.protocol import ContainerId, Mount
from reconciler.engines.protocol import SecretReader
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Container
from reconciler.model.platform import SPELLING
from reconciler.private_files import check_state_exists, make_directory

MEMORY = Path("/dev/shm")
"""Where files never reach a disk."""

_OWN = ".own"
"""Beside the scratch volumes of a replica: what each container has for itself."""


class ContainerFiles(msgspec.Struct, frozen=True):
    """What a container was given. Below ``volumes`` each mount is at its path, as a link to its source.

    ``home`` and ``scratch`` are empty directories of its own.
    """

    mounts: tuple[Mount, ...]
    volumes: Path
    home: Path
    scratch: Path


class Files:
    """Everything on disk of the containers at one location; ``root`` is the directory of that location.

    Secrets lie on tmpfs, in a directory of the daemon's own below ``memory``, where that is one, else below ``root``.
    Every method waits for the disk and may be called in any thread. ``scheme`` is how manifests spell ``platform``.
    """

    def __init__(self, root: Path, reveal: SecretReader, scheme: str = SPELLING, memory: Path | None = MEMORY) -> None:
        self._root = root
        self._reveal = reveal
        self._scheme = scheme
        mark = blake2b(os.fsencode(root.absolute()), digest_size=6).hexdigest()
        self._on_disk = root / "secrets"
        self._in_memory = memory / f"reconciler-{mark}" if memory is not None else None
        self._lock = Lock()  # for folders that are made for one replica while those of another go

    def provide(self, place: ContainerId, index: int, container: Container, owner: Owner) -> ContainerFiles:
        """Make everything for the next start of ``container``; what is left of an earlier one is removed.

        ``index`` is the replica's place in a stateful workload, -1 elsewhere. Raises EngineError: SecretUnavailable,
        SecretUnusable, MountRefused, DiskFull, PermissionDenied, StateWriteFailed.
        """
        plans = plan_mounts(container, self._reveal, self._scheme)
        try:
            mounts = self._mounts(place, index, plans, owner)
            own = self._own_or_instead(place, mounts, owner)
        except OSError as error:
            raise failed(f"the files of {place.replica}, container {place.container}, cannot be made", error) from None
        return ContainerFiles(mounts, own / "volumes", own / "home", own / "scratch")

    def volume(self, gvc: str, volumeset: str, index: int) -> Path:
        """Where the volume ``index`` of a volume set lies, made or not."""
        return self._root / "volumes" / _name(gvc) / _name(volumeset) / str(max(index, 0))

    def drop(self, volumeset: Key) -> None:
        """Delete all volumes of a volume set. Raises EngineError."""
        try:
            remove(self._root / "volumes" / _name(volumeset.gvc) / _name(volumeset.name))
        except OSError as error:
            raise failed(f"the volumes of {volumeset} cannot be deleted", error) from None

    def clear(self, key: Key, replica: str) -> None:
        """Remove everything that was made for a replica, its scratch volumes and secrets; volumes of sets stay.

        Fine where nothing is there. Raises EngineError.
        """
        for base in self._bases():
            path = _of_replica(base, key, replica)
            try:
                remove(path)
            except OSError as error:
                raise failed(f"the files of {replica} cannot be removed", error) from None
            with self._lock:
                _prune(path.parent, base)

    def unreachable(self, owner: Owner) -> tuple[str, ...]:
        """A sentence where ``owner`` cannot get at what it is given."""
        return unreachable(self._root, owner)

    def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """Remove what is there for others than ``replicas``, which a crash may have left. Raises EngineError."""
        for key, replica in {found for base in self._bases() for found in _found(base)}:
            if (key, replica) not in replicas:
                self.clear(key, replica)

    def _bases(self) -> list[Path]:
        scratch = self._root / "scratch"
        return [scratch, self._on_disk, *([self._in_memory] if self._in_memory is not None else [])]

    def _mounts(self, place: ContainerId, index: int, plans: tuple[Planned, ...], owner: Owner) -> tuple[Mount, ...]:
        secrets = [plan for plan in plans if isinstance(plan, SecretMount)]
        scratch = _of_replica(self._root / "scratch", place.key, place.replica)
        with self._lock:
            _folders(scratch)
        at = self._secrets(place, secrets, owner)
        mounts = []
        for plan in plans:
            match plan:
                case SecretMount(path=path):
                    mounts.append(Mount(at / str(secrets.index(plan)), path))
                case ScratchMount(path=path, folder=folder):
                    mounts.append(Mount(_shared(scratch / _name(folder), owner), path, read_only=False))
                case VolumeMount(path=path, volumeset=name):
                    source = self.volume(place.key.gvc, name, index)
                    mounts.append(Mount(_shared(source, owner), path, read_only=False))
        return tuple(mounts)

    def _secrets(self, place: ContainerId, secrets: list[SecretMount], owner: Owner) -> Path:
        """Write the secrets of a container, each under its position, and return where; nothing is made for none."""
        if not secrets:
            return self._on_disk
        with self._lock:
            at = _of_replica(self._private(owner), place.key, place.replica) / _name(place.container)
            _folders(at.parent)
        fresh = _fresh(at)
        for position, secret in enumerate(secrets):
            target = fresh / str(position)
            if secret.single:
                _write(target, secret.files[""], owner)
                continue
            target.mkdir(mode=0o700)
            for name, content in secret.files.items():
                _write(target / _name(name), content, owner)
            make_readable(target, owner, 0o500)
        make_readable(fresh, owner, 0o500)
        _swap(fresh, at)
        return at

    def _private(self, owner: Owner) -> Path:
        """Where secrets lie: in memory, unless somebody else has taken the name there."""
        path = self._in_memory
        if path is not None and path.parent.is_mount():
            with suppress(OSError):
                path.mkdir(mode=0o700, exist_ok=True)
                found = path.lstat()
                closed = stat.S_IMODE(found.st_mode) in (0o700, 0o711)
                if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and closed:
                    allow_traversal(path, owner)
                    return path
        path = self._on_disk
        make_directory(path)
        allow_traversal(path, owner)
        return path

    def _own_or_instead(self, place: ContainerId, mounts: tuple[Mount, ...], owner: Owner) -> Path:
        """As ``_own``; on a full disk what the last start had goes first, so that there is room for the next."""
        try:
            return self._own(place, mounts, owner)
        except OSError as error:
            if error.errno not in FULL:
                raise
            remove(self._own_path(place))
            return self._own(place, mounts, owner)

    def _own_path(self, place: ContainerId) -> Path:
        return _of_replica(self._root / "scratch", place.key, place.replica) / _OWN / _name(place.container)

    def _own(self, place: ContainerId, mounts: tuple[Mount, ...], owner: Owner) -> Path:
        own = self._own_path(place)
        fresh = _fresh(own)
        view = fresh / "volumes"
        view.mkdir(mode=0o755)
        for mount in mounts:
            link = view / mount.path.lstrip("/")
            link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            link.symlink_to(mount.source.absolute())
        for name in ("home", "scratch"):
            (fresh / name).mkdir(mode=0o700)
            make(fresh / name, owner, 0o700)
        _swap(fresh, own)
        return own


def _name(name: str) -> str:
    """``name`` as the name of a file. Raises OSError for one that leads elsewhere."""
    if "/" in name or name in ("", ".", "..") or "\0" in name:
        raise OSError(0, f"{name[:60]!r} is not the name of a file")
    return name


def _of_replica(base: Path, key: Key, replica: str) -> Path:
    return base / _name(key.gvc) / _name(key.name) / _name(replica)


def _folders(path: Path) -> None:
    """Make ``path`` and what is above it, so that others can pass through and not look around. Raises OSError."""
    if not path.is_dir():
        check_state_exists(path)
        _folders(path.parent)
        path.mkdir(mode=0o711, exist_ok=True)


def _fresh(path: Path) -> Path:
    """An empty directory beside ``path``, which it is to become."""
    _folders(path.parent)
    fresh = path.with_name(f".{path.name}.new")
    remove(fresh)
    fresh.mkdir(mode=0o711)
    return fresh


def _swap(fresh: Path, path: Path) -> None:
    """Put ``fresh`` in the place of ``path``."""
    old = path.with_name(f".{path.name}.old")
    remove(old)
    with suppress(FileNotFoundError):
        path.rename(old)
    fresh.rename(path)
    remove(old)


def _shared(path: Path, owner: Owner) -> Path:
    """A directory that workloads write to: made where it is missing, given to ``owner`` where it is another's."""
    _folders(path.parent)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    chown_tree(path, owner)
    return path


def _write(path: Path, content: bytes, owner: Owner) -> None:
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
        file.write(content)
    make_readable(path, owner, 0o400)


def _prune(path: Path, base: Path) -> None:
    """Remove ``path`` and what is above it, up to ``base``, as far as nothing is in it."""
    with suppress(OSError):
        while path.is_relative_to(base):
            path.rmdir()
            path = path.parent


def _found(base: Path) -> Iterator[tuple[Key, str]]:
    """The replicas for which something is below ``base``."""
    if base.is_dir():
        for path in base.glob("*/*/*"):
            gvc, workload, replica = path.relative_to(base).parts
            yield Key(Kind.WORKLOAD, gvc, workload), replica
