"""Root's commands work as the owner of the state directory: what lies there is that user's to choose."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from reconciler.errors import UsageError


class Owner(NamedTuple):
    """The user that a state directory belongs to."""

    uid: int
    gid: int
    groups: list[int]
    home: str


def become_owner(state: Path) -> None:
    """Let root become the owner of the directory ``state``, for good, unless that is root itself or nothing is there.

    Who owns it could put links in it, or leave steps there that are performed again: as root that would be anybody's
    file or program. To be called before anything in it is opened. Raises UsageError where a link of a third user leads
    to it.
    """
    owner = _foreign_owner(state)
    if owner is None:
        return
    import getpass

    with suppress(KeyError, OSError):
        os.environ.setdefault("LOGNAME", getpass.getuser())  # who asked, for the records
    with _permitted(state):
        os.setgroups(owner.groups)
        os.setresgid(owner.gid, owner.gid, owner.gid)
        os.setresuid(owner.uid, owner.uid, owner.uid)
    os.environ["HOME"] = owner.home
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]


@contextmanager
def as_owner(state: Path) -> Iterator[bool]:
    """As ``become_owner`` for a while; whether there was another user to become.

    Only for what starts no program: a program could become root again.
    """
    owner = _foreign_owner(state)
    if owner is None:
        yield False
        return
    gid, groups = os.getegid(), os.getgroups()
    with _permitted(state):
        os.setgroups(owner.groups)
        os.setegid(owner.gid)
        os.seteuid(owner.uid)
    try:
        yield True
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)


@contextmanager
def _permitted(state: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError:
        raise UsageError(
            f"the state directory {state} belongs to another user, and root may not become that user here (the "
            "capabilities setuid and setgid are missing): run the command as that user"
        ) from None


def unreadable_part() -> str:
    """A file of this program that its user may not read, such as one in a home of root; "" where there is none.

    Modules are imported when a command needs them, so that it fails in the middle of something.
    """
    return next((file for file in (os.__file__, __file__) if not os.access(file, os.R_OK, effective_ids=True)), "")


def copy_to(file: Path, source: int) -> None:
    """Put what the descriptor ``source`` holds in the place of ``file``, mode 0600, whole or not at all.

    Raises OSError.
    """
    import shutil

    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    try:
        target = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(target, "wb") as into, open(source, "rb", closefd=False) as out_of:
            shutil.copyfileobj(out_of, into, 1 << 20)
            into.flush()
            os.fsync(into.fileno())
        part.replace(file)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _foreign_owner(state: Path) -> Owner | None:
    """Whom ``state`` belongs to where this is root and that is somebody else."""
    if os.geteuid() != 0:
        return None
    try:
        found = state.stat()
    except OSError:
        return None
    for place in (state, *state.parents):
        link = place.lstat()
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, found.st_uid):
            raise UsageError(
                f"{place} is a symbolic link of another user (uid {link.st_uid}), who could let it lead elsewhere; "
                "root does not follow it: name the directory itself under `state`"
            )
    if found.st_uid == 0:
        return None
    import pwd

    try:
        entry = pwd.getpwuid(found.st_uid)
    except KeyError:
        return Owner(found.st_uid, found.st_gid, [found.st_gid], "/")
    return Owner(found.st_uid, entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid), entry.pw_dir)
