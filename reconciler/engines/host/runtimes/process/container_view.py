"""What a process sees of its container: links to its mounts, private directories, ports and a user of this host."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import FULL, write_error
from reconciler.engines.host.disk.directories import make_replacement, replace_directory
from reconciler.engines.host.disk.ownership import Owner, set_owner
from reconciler.engines.host.disk.removal import remove_tree
from reconciler.engines.host.runtimes.process.executable import DEFAULT_PATH, get_program_identity
from reconciler.engines.host.runtimes.protocol import ContainerFiles
from reconciler.engines.workload.environment import ContainerView
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.reasons import Reason

_VOLUMES, _HOME, _SCRATCH = "volumes", "home", "scratch"


class ContainerViews(msgspec.Struct, frozen=True):
    """Prepares the views of the containers at one location, whose directory is ``root``.

    ``default_user`` is the user of containers whose manifest names none.
    """

    root: Path
    default_user: str

    def owner(self, spec: WorkloadSpec) -> Owner:
        """The user that runs the containers, and the group of their volumes. Raises EngineError."""
        return Owner(resolve_user(spec.user, self.default_user), spec.group)

    def prepare(self, spec: WorkloadSpec) -> None:
        """Let another user traverse the directories above the location; if this fails, ``limitations`` reports it."""
        with suppress(EngineError):
            if self.owner(spec).other:
                allow_traversal_of(self.root.parent.parent, self.root.parent, self.root)

    def limitations(self, spec: WorkloadSpec) -> Iterator[str]:
        """A sentence if the containers have no user, or one that cannot reach their files."""
        try:
            yield from describe_unreachable_path(self.root, self.owner(spec))
        except EngineError as error:
            yield f"Nothing can be started: {error}."

    def make(self, files: ContainerFiles, ports: Mapping[int, int], directory: str) -> ContainerView:
        """Replace the private directories of a container; see Runtime.make_view. Raises EngineError."""
        container_id = files.place
        try:
            _make_private_or_replace(files)
        except OSError as error:
            raise write_error(
                f"the files of {container_id.replica}, container {container_id.container}, cannot be made", error
            ) from None
        # The working directory may lie in a volume, or be a directory of this host.
        inside = files.private / _VOLUMES / directory.lstrip("/")
        return describe_view(files, ports, str(inside) if directory and inside.is_dir() else directory)


def describe_view(files: ContainerFiles, ports: Mapping[int, int], directory: str) -> ContainerView:
    """What a container with these ``files`` sees: private directories, and the assigned ports of this host."""
    home = str(files.private / _HOME)
    defaults = {
        "HOME": home,
        "HOSTNAME": files.place.replica,
        "LANG": "C.UTF-8",
        "PATH": DEFAULT_PATH,
        "TMPDIR": str(files.private / _SCRATCH),
    }
    return ContainerView(
        str(files.private / _VOLUMES), str(files.endpoints), ports, directory=directory or home, defaults=defaults
    )


def resolve_user(asked: int | None, default: str) -> int | None:
    """The user id: ``asked`` from the manifest, otherwise ``default``, a name or a number.

    None for the daemon's own user. Without root, ``default`` has no effect. Raises EngineError, reason UserNotFound.
    """
    if os.geteuid() != 0:
        return asked
    number = asked if asked is not None else _find_user_id(default)
    return None if number == 0 else number


def _find_user_id(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        message = f"this host has no user {name}, which host.defaultUser names for containers without runAsUser"
        raise EngineError(message, reason=Reason.USER_NOT_FOUND) from None


def _make_private_or_replace(files: ContainerFiles) -> None:
    """As ``_make_private``; on a full disk the directories of the last start are removed first to make room."""
    try:
        _make_private(files)
    except OSError as error:
        if error.errno not in FULL:
            raise
        remove_tree(files.private)
        _make_private(files)


def _make_private(files: ContainerFiles) -> None:
    fresh = make_replacement(files.private)
    view = fresh / _VOLUMES
    view.mkdir(mode=0o755)
    for mount in files.mounts:
        link = view / mount.path.lstrip("/")
        link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        link.symlink_to(mount.source.absolute())
    for name in (_HOME, _SCRATCH):
        (fresh / name).mkdir(mode=0o700)
        set_owner(fresh / name, files.owner, 0o700)
    replace_directory(files.private, fresh)


def allow_traversal_of(*folders: Path) -> None:
    """Let other users traverse our directories to reach their own below; they cannot list them.

    All other content of these directories has restrictive modes. ``describe_unreachable_path`` reports a failure.
    """
    for folder in folders:
        with suppress(OSError):
            stat_result = folder.stat()
            if stat_result.st_uid == os.geteuid() and not stat_result.st_mode & stat.S_IXOTH:
                folder.chmod(stat.S_IMODE(stat_result.st_mode) | stat.S_IXOTH)


def find_closed_directory(state: Path, user: int | None) -> Path | None:
    """The first directory above ``state`` that a container with ``user`` may not pass; None where it passes all.

    The state directory itself, and what is in it, is opened for it when a container starts.
    """
    program = get_program_identity(user, 0)
    folders = [folder for folder in reversed(state.absolute().parents) if folder.exists()]
    return next((folder for folder in folders if user and not program.may(folder, os.X_OK)), None)


def describe_unreachable_path(path: Path, owner: Owner) -> Iterator[str]:
    """A sentence if ``owner`` cannot reach ``path``, because a directory above denies it."""
    if not owner.other or owner.uid == 0:
        return
    user = get_program_identity(owner.user, owner.group)
    for folder in reversed((path, *path.absolute().parents)):
        if not user.may(folder, os.X_OK):
            yield f"user {owner.uid} cannot reach its files: {folder} does not let others through."
            return
