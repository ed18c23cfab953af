"""Volumes that are image files with file systems of their own: their capacity is a limit."""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from reconciler.engines.host.disk.atomic import sync_directory
from reconciler.engines.host.disk.directories import make_traversable
from reconciler.engines.host.volumes import freeze, kernel
from reconciler.engines.host.volumes.layout import VolumeFiles, VolumeRecord, VolumeState, capacity_bytes, missing_data
from reconciler.engines.host.volumes.programs import run_program
from reconciler.engines.host.volumes.sparse import allocated, can_clone, copy_image, digest_image
from reconciler.errors import EngineError
from reconciler.private_files import make_directory
from reconciler.reasons import Reason

_LOOP_END = 10.0
"""Seconds for a loop device to end after its file system was unmounted.

A container that starts at that moment, also one that is not ours, has a copy of all mounts until it leaves them.
"""
_FREEZE_END = 1.0
"""Seconds for the freeze of a killed daemon to end, which uses the file system until it notices."""
_PAUSE = 0.005
_SUPERBLOCK = 1024
_STATE, _ERRORS = 0x3A, 0x2
_REPAIRED = 1
_FORMAT = {
    "ext4": ("mke2fs", "-t", "ext4", "-q", "-F", "-m", "0"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
}
_OPTIONS = {"ext4": "", "xfs": "nouuid"}


class ImageBackend:
    """The backends ``image-ext4`` and ``image-xfs``: a sparse file, mounted by a loop device at ``files.path``."""

    enforced = True
    freezes = True

    def __init__(self, form: str) -> None:
        self._form = form
        self._clones = False

    @property
    def grows_detached(self) -> bool:
        """Whether a mounted image may not grow: with ext4, that takes a capability."""
        return self._form == "ext4" and not kernel.has_capability(kernel.SYS_RESOURCE)

    def probe(self, folder: Path) -> None:
        """Find out whether copies in ``folder`` share blocks. Raises OSError."""
        self._clones = can_clone(folder)

    def storage(self, files: VolumeFiles) -> Path:
        """The image."""
        return files.image

    def file_system(self, wanted: str) -> str:  # noqa: ARG002
        """The one of this backend."""
        return self._form

    def create(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Format an image and mount it."""
        part = files.partial / "image"
        part.unlink(missing_ok=True)
        make_directory(files.partial)
        try:
            with part.open("xb") as file:
                os.truncate(file.fileno(), capacity_bytes(record))
            run_program(*_FORMAT[self._form], part)
            _sync(part)
            part.rename(files.image)
            sync_directory(files.folder)
            self._mount(files)
            # The user of a container gets it with this mode only as long as it is new.
            files.path.chmod(0o700)
        except (OSError, EngineError):
            self.detach(files)
            part.unlink(missing_ok=True)
            raise

    def attach(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Mount the image, grown to its capacity."""
        if not files.image.exists():
            raise missing_data(files.image)
        failed = self.has_failed(files)
        if failed:
            self.detach(files)
        if not self.is_attached(files):
            if self._form == "ext4" and (failed or _has_errors(files.image)):
                _repair_ext4(files.image)
            if self.grows_detached:
                self._grow_unmounted(files, record)
            self._mount(files)
        self.grow(files, record)

    def detach(self, files: VolumeFiles) -> None:
        """Unmount the image. Raises EngineError if anything uses it."""
        ended = _within(_FREEZE_END, lambda: self._unmount(files)) and _within(
            _LOOP_END, lambda: kernel.find_loop(files.image) is None
        )
        if not ended:
            raise EngineError(
                f"{files} is still mounted in another mount namespace, or a process uses its files: stop that first",
                reason=Reason.VOLUME_IN_USE,
            )

    def _unmount(self, files: VolumeFiles) -> bool:
        """Unmount the image, if it is mounted; False if anything uses it."""
        if not kernel.is_loop_of(kernel.mounted_device(files.path), files.image):
            return True
        kernel.thaw(files.path)  # a frozen one would never end
        try:
            kernel.unmount(files.path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    def is_attached(self, files: VolumeFiles) -> bool:
        """Whether the image is mounted. Raises EngineError if something else is mounted there."""
        device = kernel.mounted_device(files.path)
        if device and not kernel.is_loop_of(device, files.image):
            raise EngineError(
                f"something other than {files.image} is mounted at {files}: unmount it",
                reason=Reason.VOLUME_UNAVAILABLE,
            )
        return device != 0

    def has_failed(self, files: VolumeFiles) -> bool:
        """Whether the mounted file system has stopped itself, as XFS does when the disk of the host is full."""
        return self.is_attached(files) and kernel.has_failed(files.path)

    def is_in_use(self, files: VolumeFiles) -> bool:
        """Whether the image has a loop device."""
        return kernel.find_loop(files.image) is not None

    def needs_detach(self, files: VolumeFiles) -> bool:
        """Whether the image is mounted and may not grow."""
        return self.grows_detached and self.is_attached(files)

    def grow(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Grow the image, and its file system if it is mounted; that of an unmounted one grows when it is attached."""
        size = capacity_bytes(record)
        if self.needs_detach(files):
            return
        _extend(files.image, size)
        if not self.is_attached(files):
            return
        kernel.update_loop_size(kernel.mounted_device(files.path))
        if self._form == "xfs":
            kernel.grow_xfs(files.path, size)
        elif blocks := _ext4_room(files.image, size):
            kernel.grow_ext4(files.path, blocks)

    def copy(self, files: VolumeFiles, target: Path) -> None:
        """Copy the image; a mounted one is frozen meanwhile. Raises EngineError FreezeTimeout."""
        _sync(files.image)
        if self.is_attached(files):
            run_program("sync", "-f", "--", files.path)
            _sync(files.image)
            with freeze.frozen(files.path, kernel.mounted_device(files.path), freeze.LIMIT - freeze.THAW) as deadline:
                copy_image(files.image, target, deadline)
        else:
            copy_image(files.image, target)
        _sync(target)

    def replace(self, files: VolumeFiles, source: Path) -> None:
        """Rename a copy of ``source`` over the image."""
        self._replace(files, source, _unchanged)

    def adopt(self, stored: Path) -> None:
        """Do nothing."""

    def remove(self, stored: Path) -> None:
        """Remove an image."""
        stored.unlink(missing_ok=True)

    def digest(self, stored: Path) -> str:
        """A checksum of all blocks that are not zero."""
        return digest_image(stored)

    def size(self, stored: Path) -> int:
        """The allocated blocks."""
        return allocated(stored)

    def copy_size(self, stored: Path) -> int:
        """The allocated blocks, unless copies share them."""
        return 0 if self._clones else allocated(stored)

    def usage(self, files: VolumeFiles) -> int:
        """The blocks in use of a mounted file system; the allocated blocks of another image, which are more."""
        if not self.is_attached(files):
            return allocated(files.image)
        found = os.statvfs(files.path)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def trim(self, files: VolumeFiles) -> None:
        """Give blocks of deleted files back to the disk, if the image is mounted."""
        if self.is_attached(files):
            kernel.trim(files.path)

    def recover(self, files: VolumeFiles, record: VolumeRecord, locked: bool) -> tuple[str, ...]:
        """Let programs write to a frozen file system; unmount one that is not locked; finish growth."""
        reports: tuple[str, ...] = ()
        if not self.is_attached(files):
            if not self.is_in_use(files):
                return ()
            # Something uses it without our mount, or a freeze does; a mount of the same device makes both end.
            self._mount(files)
            reports = (f"{files} was no longer mounted, though something used it: it is mounted again",)
        kernel.thaw(files.path)
        if not locked or record.state is not VolumeState.READY:
            self.detach(files)
        elif self.has_failed(files):
            reports = (*reports, f"the file system of {files} failed: restart its replica, which mounts it again")
        else:
            self.grow(files, record)
        return reports

    def _mount(self, files: VolumeFiles) -> None:
        make_traversable(files.path.parent)
        with suppress(FileExistsError):
            files.path.mkdir(mode=0o700)
        with kernel.loop_device(files.image) as device:
            kernel.mount(device, files.path, self._form, _OPTIONS[self._form])
        kernel.thaw(files.path)  # the device may be one that had a mount before
        with suppress(OSError):
            # Databases refuse to begin in a directory that is not empty.
            (files.path / "lost+found").rmdir()

    def _grow_unmounted(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Grow an ext4 that may not grow while it is mounted."""
        size = capacity_bytes(record)
        if _ext4_room(files.image, size):
            # In a copy: the program cannot be interrupted, and its undo files damage what they should protect.
            self._replace(files, files.image, lambda fresh: _grow_ext4(fresh, size))

    def _replace(self, files: VolumeFiles, source: Path, change: Callable[[Path], None]) -> None:
        """Replace the image with a changed copy of ``source``, at once or not at all."""
        fresh = files.partial / "image"
        fresh.unlink(missing_ok=True)
        make_directory(files.partial)
        try:
            copy_image(source, fresh)
            change(fresh)
            _sync(fresh)
            fresh.replace(files.image)
        finally:
            fresh.unlink(missing_ok=True)
        sync_directory(files.folder)


def _within(seconds: float, true: Callable[[], bool]) -> bool:
    """Whether it is true within so many seconds. Raises what ``true`` raises."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _unchanged(_: Path) -> None:
    pass


def _has_errors(image: Path) -> bool:
    """Whether an ext4 found errors in itself while it was mounted."""
    return bool(_superblock_field(image, "<H", _STATE) & _ERRORS)


def _repair_ext4(image: Path) -> None:
    """Repair what can be repaired without a decision. Raises EngineError for an ext4 that needs one."""
    try:
        run_program("e2fsck", "-f", "-p", image, accepted=(0, _REPAIRED))
    except EngineError as error:
        raise EngineError(
            f"{error}. Its file system has errors that need a decision, so it is not mounted: restore a snapshot, or "
            f"repair it with e2fsck {image}",
            reason=Reason.VOLUME_DAMAGED,
        ) from None


def _grow_ext4(image: Path, size: int) -> None:
    _extend(image, size)
    run_program("e2fsck", "-f", "-p", image, accepted=(0, _REPAIRED))
    run_program("resize2fs", image)


def _ext4_room(image: Path, size: int) -> int:
    """The blocks that an ext4 of ``size`` bytes has, if it has fewer, otherwise 0.

    A mounted one may have more than its image says.
    """
    low, scale, high = (_superblock_field(image, "<I", at) for at in (4, 24, 336))
    blocks = size // (1024 << scale)
    return blocks if blocks > (high << 32 | low) else 0


def _superblock_field(image: Path, form: str, at: int) -> int:
    """A number in the superblock of an ext4, at a place that the documentation of the kernel lists."""
    with image.open("rb") as file:
        file.seek(_SUPERBLOCK + at)
        (found,) = struct.unpack(form, file.read(struct.calcsize(form)))
    return int(found)


def _extend(image: Path, size: int) -> None:
    if image.stat().st_size < size:
        os.truncate(image, size)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
