"""Volumes that are image files with file systems of their own: their capacity is a limit."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from reconciler.engines.host.disk.atomic import sync_directory
from reconciler.engines.host.volumes import ext4, freeze, kernel
from reconciler.engines.host.volumes.layout import VolumeFiles, VolumeRecord, VolumeState, capacity_bytes, missing_data
from reconciler.engines.host.volumes.patch import patch_image
from reconciler.engines.host.volumes.programs import run_program
from reconciler.engines.host.volumes.sparse import can_clone, copy_image, digest_image, extend_file, get_allocated_bytes
from reconciler.errors import EngineError
from reconciler.reasons import Reason

_LOOP_END = 10.0
"""Seconds for a loop device to end after its file system was unmounted.

A container that starts at that moment, also one that is not ours, has a copy of all mounts until it leaves them.
"""
_FREEZE_END = 1.0
"""Seconds for the freeze of a killed daemon to end, which uses the file system until it notices."""
_PAUSE = 0.005
_PASSES = 4
"""How often at most the copy of an image in use is made equal to it again, before the freeze."""
_HASTE = 0.75
"""The share of the time of a freeze that the copy may need: the freeze itself takes some of it."""
_FORMAT = {
    "ext4": ("mke2fs", "-t", "ext4", "-q", "-F", "-m", "0"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
}
_OPTIONS = {"ext4": "", "xfs": "nouuid"}
_REPAIR = {"ext4": "e2fsck", "xfs": "xfs_repair"}
_NO_FILE_SYSTEM = frozenset({errno.EIO, errno.EINVAL, errno.EUCLEAN})
"""What the kernel answers to the mount of an image whose file system it cannot read."""


class ImageBackend:
    """The backends ``image-ext4`` and ``image-xfs``: a sparse file, mounted by a loop device at ``files.path``."""

    enforced = True
    freezes = True

    def __init__(self, form: str, freeze_limit: float) -> None:
        self._form = form
        self._copy_limit = freeze_limit * (1 - freeze.THAW)
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

    def file_system(self, fs_type: str) -> str:  # noqa: ARG002
        """The one of this backend."""
        return self._form

    def create(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Format an image and mount it."""
        part = files.partial / "image"
        part.unlink(missing_ok=True)
        files.make_directory(files.partial)
        try:
            with part.open("xb") as file:
                os.truncate(file.fileno(), capacity_bytes(record))
            run_program(*_FORMAT[self._form], part)
            _sync_file(part)
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
            if self._form == "ext4" and (failed or ext4.has_errors(files.image)):
                ext4.repair_image(files.image)
            if self.grows_detached:
                self._grow_unmounted(files, record)
            self._mount(files)
        self.grow(files, record)

    def detach(self, files: VolumeFiles) -> None:
        """Unmount the image. Raises EngineError if anything uses it."""
        ended = _wait_for_condition(_FREEZE_END, lambda: self._unmount(files)) and _wait_for_condition(
            _LOOP_END, lambda: kernel.find_loop(files.image) is None
        )
        if not ended:
            loop = kernel.find_loop(files.image)
            user = kernel.find_user(os.stat(loop).st_rdev) if loop is not None else ""
            raise EngineError(
                f"{files} cannot be unmounted: {user or 'a process uses its files'}: stop that first",
                reason=Reason.VOLUME_IN_USE,
            )

    def _unmount(self, files: VolumeFiles) -> bool:
        """Unmount the image, if it is mounted; False if anything uses it."""
        if not kernel.is_loop_of(kernel.mounted_device(files.path), files.image):
            return True
        kernel.thaw_file_system(files.path)  # a frozen one would never end
        try:
            kernel.unmount_path(files.path)
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
        """Whether the mounted file system has stopped itself, as XFS does when the disk of the host is full.

        Of an image that became shorter below it, it only sees what it reads again.
        """
        if not self.is_attached(files):
            return False
        return kernel.has_failed(files.path) or _get_image_size(files.image) < kernel.device_size(files.path)

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
        extend_file(files.image, size)
        if not self.is_attached(files):
            return
        kernel.update_loop_size(kernel.mounted_device(files.path))
        if self._form == "xfs":
            kernel.grow_xfs(files.path, size)
        elif blocks := ext4.missing_blocks(files.image, size):
            kernel.grow_ext4(files.path, blocks)

    def prepare(self, files: VolumeFiles, target: Path) -> None:
        """Copy the image in use, then what changed meanwhile, until that is quick or gets no quicker."""
        if self._clones or not self.is_attached(files):
            return
        copy_image(files.image, target)
        took, former, limit = math.inf, math.inf, self._copy_limit * _HASTE
        for _ in range(_PASSES):
            _sync_file(target)
            self._flush(files)
            began = time.monotonic()
            patch_image(files.image, target)
            took, former = time.monotonic() - began, took
            if took <= limit or took > former / 2:
                break
        _sync_file(target)
        if min(took, former) > limit:
            raise freeze.freeze_timeout(files.path)

    def copy(self, files: VolumeFiles, target: Path) -> None:
        """Copy the image; a mounted one is frozen meanwhile. Raises EngineError FreezeTimeout."""
        copy = patch_image if target.exists() else copy_image
        if self.is_attached(files):
            self._flush(files)
            device = kernel.mounted_device(files.path)
            with freeze.freeze_file_system(files.path, device, self._copy_limit) as deadline:
                copy(files.image, target, deadline)
        else:
            _sync_file(files.image)
            copy(files.image, target)
        _sync_file(target)

    def _flush(self, files: VolumeFiles) -> None:
        """Write what programs wrote to the mounted image, so that the freeze has less to write."""
        run_program("sync", "-f", "--", files.path)
        _sync_file(files.image)

    def clone(self, stored: Path, target: Path) -> None:
        """Copy the image, with shared blocks if possible."""
        copy_image(stored, target)
        _sync_file(target)

    def replace(self, files: VolumeFiles, source: Path) -> None:
        """Rename a copy of ``source`` over the image."""
        self._replace(files, source, _change_nothing)

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
        return get_allocated_bytes(stored)

    def copy_size(self, stored: Path) -> int:
        """The allocated blocks, unless copies share them."""
        return 0 if self._clones else get_allocated_bytes(stored)

    def usage(self, files: VolumeFiles) -> int:
        """The blocks in use of a mounted file system; the allocated blocks of another image, which are more."""
        if not self.is_attached(files):
            return get_allocated_bytes(files.image)
        statvfs_result = os.statvfs(files.path)
        return (statvfs_result.f_blocks - statvfs_result.f_bfree) * statvfs_result.f_frsize

    def trim(self, files: VolumeFiles) -> None:
        """Give blocks of deleted files back to the disk, if the image is mounted."""
        if self.is_attached(files):
            kernel.trim_file_system(files.path)

    def recover(self, files: VolumeFiles, record: VolumeRecord, locked: bool) -> tuple[str, ...]:
        """Let programs write to a frozen file system; unmount one that is not locked; finish growth."""
        reports: tuple[str, ...] = ()
        if not self.is_attached(files):
            if not self.is_in_use(files):
                return ()
            # Something uses it without our mount, or a freeze does; a mount of the same device makes both end.
            self._mount(files)
            reports = (f"{files} was no longer mounted, though something used it: it is mounted again",)
        kernel.thaw_file_system(files.path)
        if not locked or record.state is not VolumeState.READY:
            self.detach(files)
        elif self.has_failed(files):
            reports = (*reports, f"the file system of {files} failed: restart its replica, which mounts it again")
        else:
            self.grow(files, record)
        return reports

    def _mount(self, files: VolumeFiles) -> None:
        files.make_reachable()
        with suppress(FileExistsError):
            files.path.mkdir(mode=0)
        # Nobody writes to the disk of the host while the image is not mounted.
        files.path.chmod(0)
        with kernel.loop_device(files.image) as device:
            try:
                kernel.mount_device(device, files.path, self._form, _OPTIONS[self._form])
            except OSError as error:
                if error.errno not in _NO_FILE_SYSTEM:
                    raise
                raise EngineError(
                    f"the file system in {files.image} cannot be mounted ({error.strerror}): restore a snapshot, or "
                    f"repair it with {_REPAIR[self._form]} {files.image}",
                    reason=Reason.VOLUME_DAMAGED,
                ) from None
        kernel.thaw_file_system(files.path)  # the device may be one that had a mount before
        with suppress(OSError):
            # Databases refuse to begin in a directory that is not empty.
            (files.path / "lost+found").rmdir()

    def _grow_unmounted(self, files: VolumeFiles, record: VolumeRecord) -> None:
        """Grow an ext4 that may not grow while it is mounted."""
        size = capacity_bytes(record)
        if ext4.missing_blocks(files.image, size):
            # In a copy: the program cannot be interrupted, and its undo files damage what they should protect.
            self._replace(files, files.image, lambda fresh: ext4.grow_image(fresh, size))

    def _replace(self, files: VolumeFiles, source: Path, change: Callable[[Path], None]) -> None:
        """Replace the image with a changed copy of ``source``, at once or not at all."""
        fresh = files.partial / "image"
        fresh.unlink(missing_ok=True)
        files.make_directory(files.partial)
        try:
            copy_image(source, fresh)
            change(fresh)
            _sync_file(fresh)
            fresh.replace(files.image)
        finally:
            fresh.unlink(missing_ok=True)
        sync_directory(files.folder)


def _wait_for_condition(seconds: float, true: Callable[[], bool]) -> bool:
    """Whether it is true within so many seconds. Raises what ``true`` raises."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _get_image_size(image: Path) -> int:
    """Its bytes; 0 if it is gone."""
    try:
        return image.stat().st_size
    except FileNotFoundError:
        return 0


def _change_nothing(_: Path) -> None:
    pass


def _sync_file(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
