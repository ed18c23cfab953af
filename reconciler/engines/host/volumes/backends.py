"""The backends that this host can have, and the one that a new volume gets."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.engines.host.disk.removal import remove_tree
from reconciler.engines.host.volumes import kernel
from reconciler.engines.host.volumes.btrfs import BtrfsBackend
from reconciler.engines.host.volumes.directory import DirectoryBackend
from reconciler.engines.host.volumes.freeze import LIMIT
from reconciler.engines.host.volumes.image import ImageBackend
from reconciler.engines.host.volumes.layout import VolumeFiles, VolumeRecord, VolumeState
from reconciler.engines.host.volumes.programs import find_program
from reconciler.engines.host.volumes.protocol import BackendName, VolumeBackend, VolumeSpec
from reconciler.errors import EngineError
from reconciler.private_files import make_directory
from reconciler.reasons import Reason

_AUTO = "auto"
_PROGRAMS = {
    BackendName.IMAGE_EXT4: ("mke2fs", "e2fsck", "resize2fs"),
    BackendName.IMAGE_XFS: ("mkfs.xfs",),
}
_PROBE = "volume-probe"
_PROBE_CAPACITY = 1 / 512
_IMAGES = (BackendName.IMAGE_EXT4, BackendName.IMAGE_XFS)


class Backends:
    """All backends. ``setting`` is auto or the BackendName for new volumes.

    ``freeze_limit`` is for how many seconds a snapshot may keep programs from writing.
    """

    def __init__(self, root: Path, setting: str, freeze_limit: float = LIMIT) -> None:
        self._images = (ImageBackend("ext4", freeze_limit), ImageBackend("xfs", freeze_limit))
        images = zip(_IMAGES, self._images, strict=True)
        self._btrfs = BtrfsBackend()
        self._all: dict[str, VolumeBackend] = {
            BackendName.DIRECTORY: DirectoryBackend(),
            BackendName.BTRFS: self._btrfs,
            **dict(images),
        }
        self._setting = setting
        self._root = root
        self._missing = dict.fromkeys(map(str, _IMAGES), "it was not tried")

    def probe(self) -> tuple[str, ...]:
        """Find out which backends work on this host; return what an operator must know."""
        if self._setting == BackendName.BTRFS:
            self._missing = {self._setting: self._find_lack_of_btrfs()}
        elif self._setting != BackendName.DIRECTORY:
            refusal = self._find_refusal()
            self._missing = {str(name): refusal or _lacking_programs(name) for name in _IMAGES}
        lacking = {name: reason for name, reason in self._missing.items() if reason}
        if self._setting == _AUTO:
            return tuple(
                f"new volumes that would be {name} are directories, which do not enforce their capacity: {reason}"
                for name, reason in lacking.items()
            )
        return (f"no volume can be created: {lacking[self._setting]}",) if self._setting in lacking else ()

    def choose(self, volume_spec: VolumeSpec) -> str:
        """The backend of a new volume. Raises EngineError if the one of the setting does not work on this host."""
        if self._setting != _AUTO:
            if reason := self._missing.get(self._setting, ""):
                raise EngineError(
                    f"host.volumes is {self._setting}, which does not work on this host: {reason}",
                    reason=Reason.VOLUME_UNAVAILABLE,
                )
            return self._setting
        name = f"image-{volume_spec.file_system}"
        return BackendName.DIRECTORY if self._missing[name] else name

    def find_backend(self, name: str) -> VolumeBackend:
        """The backend ``name``. Raises EngineError if there is none."""
        try:
            return self._all[name]
        except KeyError:
            raise EngineError(
                f"the volume has the backend {name!r}, which this version does not have: install the version that "
                "created it",
                reason=Reason.VOLUME_UNAVAILABLE,
            ) from None

    def of(self, record: VolumeRecord) -> VolumeBackend:
        """The backend of a volume with ``record``. Raises EngineError."""
        return self.find_backend(record.backend)

    def _find_refusal(self) -> str:
        """Why no image can be mounted on this host; empty if that works."""
        if os.geteuid() != 0:
            return "the daemon is not root, so it cannot mount images"
        if not _sees_mounts_of_host():
            return (
                "the daemon has a mount namespace of its own, so containers would not see its mounts: remove what "
                "gives it one from its systemd unit"
            )
        return _lacking_programs(BackendName.IMAGE_EXT4) or self._try()

    def _find_lack_of_btrfs(self) -> str:
        """Why volumes cannot be subvolumes on this host; empty if they can."""
        if os.geteuid() != 0:
            return "the daemon is not root, so it cannot limit subvolumes"
        try:
            make_directory(self._root)
            self._btrfs.probe(self._root)
        except (OSError, EngineError) as error:
            return f"the quotas of {self._root} cannot be turned on, maybe it is no btrfs: {error}"
        return ""

    def _try(self) -> str:
        """Mount a small ext4; what stands in its way is in the way of XFS too, whose images cannot be small."""
        top = self._root / _PROBE
        files = VolumeFiles(top, "probe", "probe", "0")
        record = VolumeRecord(BackendName.IMAGE_EXT4, _PROBE_CAPACITY, VolumeState.CREATING, "ext4")
        tested = self._images[0]
        try:
            tested.detach(files)
            remove_tree(top)
            make_directory(top)
            for image in self._images:
                image.probe(top)
            tested.create(files, record)
            tested.detach(files)
            remove_tree(top)
        except (OSError, EngineError) as error:
            return f"an image cannot be mounted: {error}"
        return ""


def _lacking_programs(name: BackendName) -> str:
    lacking = find_lacking_programs(name)
    return f"these programs are not installed: {lacking}" if lacking else ""


def find_lacking_programs(name: str) -> str:
    """The programs that the backend ``name`` runs and this host does not have; "" for none."""
    return ", ".join(text for text in _PROGRAMS.get(BackendName(name), ()) if find_program(text) is None)


def _sees_mounts_of_host() -> bool:
    """Whether this process is in the mount namespace of process 1: a copy of that has other ids of mounts."""
    try:
        return kernel.mount_ids("1").get("/") == kernel.mount_ids("self").get("/")
    except OSError:
        return False
