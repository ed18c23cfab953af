"""The files of a volume: its data at ``volumes/GVC/SET/INDEX``, all else beside it in ``INDEX.d``."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from reconciler.engines.host.disk.atomic import write_durable
from reconciler.engines.host.disk.directories import file_name, make_traversable
from reconciler.errors import EngineError
from reconciler.private_files import make_directory
from reconciler.reasons import Reason

GIB = 1 << 30
"""Bytes of a GB of capacity."""
VOLUMES = "volumes"
"""The directory of all volumes of a location."""
T = TypeVar("T")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_RESTORE = "restore this file, or move it and its directory away"
_REMEDY_OF_RECORD = "restore this file from a backup; the data of the volume are as they were"
_REMEDY_OF_LOCK = "remove this file once no program uses the volume"
_REMEDY_OF_COMMAND = "remove this file; if a restore or delete of the volume was interrupted, repeat that afterwards"


class VolumeState(StrEnum):
    """The state of a volume on the disk; of ``creating`` and ``deleted`` there are no data."""

    CREATING = "creating"
    READY = "ready"
    DELETED = "deleted"


class VolumeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The file ``volume.json``; ``capacity`` is in GB. ``recreated``: the volume was deleted before it is created."""

    backend: str
    capacity: float
    state: VolumeState
    file_system: str = ""
    recreated: bool = False


class VolumeLock(msgspec.Struct, frozen=True):
    """The file ``lock`` of an attached volume. It means nothing after a boot."""

    holder: str
    boot: str


class LastCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """The file ``command.json``: the last command that began on a volume, and whether it is done.

    ``replaces`` is the type of a command that replaces the data, until it is done or given up. A replica that got the
    volume before that would write what is lost then.
    """

    id: str
    started: str
    done: bool = False
    replaces: str = ""


class VolumeFiles:
    """The paths of one volume, and its small files. All methods raise EngineError for a file that cannot be read."""

    def __init__(self, root: Path, gvc: str, volumeset: str, index: str) -> None:
        self._root = root
        self.path = root / VOLUMES / file_name(gvc) / file_name(volumeset) / file_name(index)
        self.folder = self.path.with_name(f"{self.path.name}.d")
        self.image = self.folder / "image"
        self.partial = self.folder / "partial"
        self.final = self.folder / "final"
        self._record = self.folder / "volume.json"
        self._lock = self.folder / "lock"
        self._command = self.folder / "command.json"

    def __str__(self) -> str:
        return str(self.path)

    @property
    def exists(self) -> bool:
        """Whether anything of the volume is on the disk."""
        return self.path.is_dir() or self.folder.is_dir()

    def snapshot(self, name: str) -> Path:
        """The directory of the snapshot ``name``. Raises EngineError if no directory can have that name."""
        try:
            return self.folder / "snapshots" / file_name(name)
        except OSError as error:
            raise EngineError(
                f"a snapshot cannot have this name: {error.strerror}", reason=Reason.INVALID_COMMAND, retry=False
            ) from None

    def make_reachable(self) -> None:
        """Create the directories above the data, which the users of containers traverse. Raises OSError."""
        make_traversable(self._root, self.path.parent)

    def make_directory(self, path: Path) -> None:
        """Create ``path``, the folder of all else or a directory in it, for the daemon alone. Raises OSError."""
        self.make_reachable()
        make_directory(path)

    def read_record(self) -> VolumeRecord | None:
        """The record; None if there is none: then the volume is a directory, or does not exist."""
        record = read_json(self._record, VolumeRecord, _REMEDY_OF_RECORD)
        if record is None and self.image.exists():
            # The mount point of an image would pass for a volume that is a directory.
            raise _make_unreadable_error(self._record, "it is missing", _REMEDY_OF_RECORD)
        return record

    def write_record(self, record: VolumeRecord) -> None:
        """Replace the record."""
        self.make_directory(self.folder)
        write_durable(self._record, msgspec.json.encode(record))

    def leftovers(self) -> tuple[Path, ...]:
        """Files that an interrupted write may have left."""
        return tuple(path.with_name(f".{path.name}.part") for path in (self._record, self._lock, self._command))

    def read_command(self) -> LastCommand | None:
        """The last command on the volume; None if there was none."""
        return read_json(self._command, LastCommand, _REMEDY_OF_COMMAND)

    def write_command(self, command: LastCommand) -> None:
        """Replace the last command. Raises OSError."""
        self.make_directory(self.folder)
        write_durable(self._command, msgspec.json.encode(command))

    def read_lock(self) -> VolumeLock | None:
        """The lock; None if the volume is detached, or was attached before this host booted."""
        lock = read_json(self._lock, VolumeLock, _REMEDY_OF_LOCK)
        return lock if lock is not None and lock.boot == boot_id() else None

    def write_lock(self, holder: str) -> None:
        """Lock the volume for ``holder``."""
        self.make_directory(self.folder)
        write_durable(self._lock, msgspec.json.encode(VolumeLock(holder, boot_id())))

    def remove_lock(self) -> None:
        """Remove the lock, if there is one. Raises OSError."""
        self._lock.unlink(missing_ok=True)


def capacity_bytes(record: VolumeRecord) -> int:
    """The capacity of a volume in bytes."""
    return int(record.capacity * GIB)


def missing_data(path: Path) -> EngineError:
    """The error for a volume whose data vanished. They are never replaced by an empty volume without being asked."""
    return EngineError(
        f"{path} is missing: put it back, restore a snapshot, or delete the volume to begin with an empty one",
        reason=Reason.VOLUME_DAMAGED,
    )


@cache
def boot_id() -> str:
    """The identity of this run of the kernel."""
    return _BOOT.read_text().strip()


def read_json(path: Path, form: type[T], remedy: str = _RESTORE) -> T | None:
    """The file ``path``; None if it does not exist. Raises EngineError, with what an operator can do."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise _make_unreadable_error(path, str(error), remedy) from None


def read_if_readable(path: Path, form: type[T]) -> T | None:
    """The file ``path``; None if it does not exist or cannot be read: then it is written anew."""
    with suppress(EngineError):
        return read_json(path, form)
    return None


def _make_unreadable_error(path: Path, why: str, remedy: str) -> EngineError:
    return EngineError(
        f"{path} cannot be read ({why}), and nothing is changed there: {remedy}", reason=Reason.VOLUME_DAMAGED
    )
