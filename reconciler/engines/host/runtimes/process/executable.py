"""Finds the program of a container, and reports problems with it before anything is started."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import msgspec

from reconciler.engines.host.runtimes.protocol import ContainerStart
from reconciler.errors import EngineError
from reconciler.reasons import Reason

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The search path for programs of a container whose manifest sets none."""


class User(msgspec.Struct, frozen=True):
    """The identity of a container; ``number`` is None for the daemon's own user."""

    number: int | None
    group: int
    groups: tuple[int, ...]

    def may(self, path: Path, bit: int) -> bool:
        """Whether the user has the permission ``bit`` (of 0o7) on ``path``, by the path's owner, group and mode."""
        if self.number is None:
            return os.access(path, bit)
        if self.number == 0:
            return True
        seen = path.stat()
        if seen.st_uid == self.number:
            return bool(seen.st_mode >> 6 & bit)
        if seen.st_gid in (self.group, *self.groups):
            return bool(seen.st_mode >> 3 & bit)
        return bool(seen.st_mode & bit)

    def may_enter(self, path: Path) -> bool:
        """Whether the user can reach ``path`` through all directories above it."""
        return all(self.may(parent, os.X_OK) for parent in path.resolve().parents)


def user_of(launch: ContainerStart) -> User:
    """The user that runs ``launch``: only root can run it as another user.

    The group that owns its volumes is added (docs/platform/workload.md#users-and-groups); 0 means none.
    """
    return get_program_identity(launch.user, launch.group)


def get_program_identity(user: int | None, volume_group: int) -> User:
    """The identity of the programs of a container with ``user``, whose volumes belong to ``volume_group``."""
    more = (volume_group,) if volume_group else ()
    if os.geteuid() != 0:
        return User(None, os.getegid(), ())
    if user is None:
        return User(None, os.getegid(), (*os.getgroups(), *more))
    try:
        group = pwd.getpwuid(user).pw_gid
    except KeyError:
        group = user
    return User(user, group, more)


def directory_of(launch: ContainerStart, user: User) -> str:
    """The working directory of ``launch``; the root directory by default. Raises EngineError."""
    path = Path(launch.directory or "/")
    if not os.path.isdir(path):
        raise EngineError(f"the working directory {path} does not exist", reason=Reason.DIRECTORY_NOT_FOUND)
    if not (user.may_enter(path) and user.may(path, os.X_OK)):
        raise EngineError(f"the working directory {path} may not be entered", reason=Reason.NOT_PERMITTED)
    return str(path)


def program_of(launch: ContainerStart, user: User, directory: str) -> str:
    """The path of the program of ``launch``; it contains a slash. Raises EngineError."""
    if not launch.command:
        raise EngineError(
            f"container {launch.place.container} has no command; only a runtime of images knows what its image runs",
            reason=Reason.NO_COMMAND,
            retry=False,
        )
    if "/" in launch.command:
        paths = [Path(directory, launch.command)]
        where = f"{paths[0]} does not exist"
    else:
        path = launch.env.get("PATH", DEFAULT_PATH)
        paths = [Path(directory, part, launch.command) for part in path.split(":")]
        where = f"{launch.command} is in no directory of PATH ({path})"
    files = [path for path in paths if os.path.isfile(path)]
    if not files:
        raise EngineError(f"the program {where}", reason=Reason.PROGRAM_NOT_FOUND)
    for file in files:
        if _is_executable(file, user):
            return str(file)
    raise EngineError(f"the program {files[0]} may not be executed", reason=Reason.NOT_PERMITTED)


def _is_executable(file: Path, user: User) -> bool:
    anyone = file.stat().st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return bool(anyone) and user.may(file, os.X_OK) and user.may_enter(file)
