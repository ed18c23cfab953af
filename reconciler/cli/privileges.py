"""Root's commands run as the owner of the state directory, who controls its content."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from reconciler.errors import UsageError


class StateOwner(NamedTuple):
    """The user who owns a state directory."""

    uid: int
    gid: int
    groups: list[int]
    home: str


def become_owner(state: Path) -> None:
    """Let root become the owner of the directory ``state`` for good, unless that is root or ``state`` does not exist.

    The owner could put links in it, or journal steps for replay: root would follow the links and run the steps. Call
    this before opening anything in ``state``. Raises UsageError where a link of a third user leads to it.
    """
    owner = _foreign_owner(state)
    if owner is None:
        return
    import getpass

    with suppress(KeyError, OSError):
        os.environ.setdefault("LOGNAME", getpass.getuser())  # the operator, for the records
    with _explain_refusal(state):
        os.setgroups(owner.groups)
        os.setresgid(owner.gid, owner.gid, owner.gid)
        os.setresuid(owner.uid, owner.uid, owner.uid)
    os.environ["HOME"] = owner.home
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]


@contextmanager
def as_owner(state: Path) -> Iterator[bool]:
    """As ``become_owner``, for the block only; yields whether the owner is another user.

    Only for code that starts no program: a program could become root again.
    """
    owner = _foreign_owner(state)
    if owner is None:
        yield False
        return
    gid, groups = os.getegid(), os.getgroups()
    with _explain_refusal(state):
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
def _explain_refusal(state: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError:
        raise UsageError(
            f"the state directory {state} belongs to another user, and root may not become that user here (the "
            "capabilities setuid and setgid are missing): run the command as that user"
        ) from None


def unreadable_part() -> str:
    """A file of this program that its user may not read, such as one in root's home; "" where there is none.

    Modules are imported when a command needs them, so the command would fail halfway.
    """
    return next((file for file in (os.__file__, __file__) if not os.access(file, os.R_OK, effective_ids=True)), "")


def copy_to(file: Path, source: int) -> None:
    """Replace ``file`` by the content of the descriptor ``source``, mode 0600, atomically.

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


def _foreign_owner(state: Path) -> StateOwner | None:
    """The owner of ``state``, where this is root and the owner is another user."""
    if os.geteuid() != 0:
        return None
    try:
        stat_result = state.stat()
    except OSError:
        return None
    for path in (state, *state.parents):
        link = path.lstat()
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, stat_result.st_uid):
            raise UsageError(
                f"{path} is a symbolic link of another user (uid {link.st_uid}), who could point it at another place; "
                "root does not follow it: name the directory itself under `state`"
            )
    if stat_result.st_uid == 0:
        return None
    import pwd

    try:
        entry = pwd.getpwuid(stat_result.st_uid)
    except KeyError:
        return StateOwner(stat_result.st_uid, stat_result.st_gid, [stat_result.st_gid], "/")
    return StateOwner(stat_result.st_uid, entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid), entry.pw_dir)
