"""Checks of this host: the result of one, with a verdict and advice, and what a user may do with a file."""

from __future__ import annotations

import os
import pwd
from enum import StrEnum
from pathlib import Path

import msgspec

READ, WRITE, ENTER = 4, 2, 1


class CheckVerdict(StrEnum):
    """Severity: a warning works for now, a problem does not work or is not safe."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(msgspec.Struct, frozen=True):
    """``about`` names the subject in a word or two; ``advice`` is "" if nothing needs to be done."""

    about: str
    verdict: CheckVerdict
    message: str
    advice: str = ""


def make_ok_check(about: str, message: str) -> Check:
    """A check without a problem."""
    return Check(about, CheckVerdict.OK, message)


def make_warning(about: str, message: str, advice: str) -> Check:
    """A check of something that works but needs attention."""
    return Check(about, CheckVerdict.WARNING, message, advice)


def make_problem(about: str, message: str, advice: str) -> Check:
    """A check of something that does not work, or is not safe."""
    return Check(about, CheckVerdict.PROBLEM, message, advice)


class UserIdentity(msgspec.Struct, frozen=True):
    """A user with all groups; ``gid`` is the primary group, -1 where none is known."""

    uid: int
    name: str
    groups: frozenset[int]
    gid: int = -1

    def may(self, path: Path, mode: int) -> bool:
        """Whether the mode bits of ``path`` and the directories above permit access; False if it does not exist."""
        if self.uid == os.geteuid():
            return os.access(path, mode, effective_ids=True)
        try:
            above = all(self._lets(folder, ENTER) for folder in path.resolve().parents)
            return above and self._lets(path, mode)
        except OSError:
            return False

    def _lets(self, path: Path, mode: int) -> bool:
        stat = path.stat()
        shift = 6 if stat.st_uid == self.uid else 3 if stat.st_gid in self.groups else 0
        return self.uid == 0 or stat.st_mode >> shift & mode == mode


def find_identity(uid: int) -> UserIdentity:
    """The user with this uid, even if the system has no name for it."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return UserIdentity(uid, f"uid {uid}", frozenset())
    return UserIdentity(uid, entry.pw_name, frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid)), entry.pw_gid)


def check_read_access(path: Path, about: str, who: UserIdentity) -> Check | None:
    """Return the check that explains why ``who`` cannot read ``path``; None if ``who`` can."""
    try:
        path.stat()
    except PermissionError:
        return make_problem(
            about, f"{path} is in a directory that this user may not enter", "run this as the daemon's user or as root"
        )
    except OSError as error:
        return make_problem(about, f"{path}: {error.strerror}", "put it there, or correct the settings")
    if not who.may(path, READ):
        return make_problem(about, f"{who.name} may not read {path}", f"chgrp {who.name} {path}; chmod g+r {path}")
    return None
