"""The newest hash of the audit log in commits of the status branch: a copy that who writes the log does not reach."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reconciler.errors import SourceError
from reconciler.source.libgit import lookup_name, open_git
from reconciler.status.branch.branch import GIT_FAULTS

_TRAILER = "Audit-Log"
_ANCHOR = re.compile(rf"^{_TRAILER}: (\d{{1,19}}) ([0-9a-f]{{64}})$", re.MULTILINE)


class AuditAnchor(NamedTuple):
    """A commit at ``at``, in seconds since the epoch, and the ``number`` and ``hash`` of the newest entry then."""

    commit: str
    at: int
    number: int
    hash: str


def anchor_trailer(number: int, digest: str) -> str:
    """The trailer of a commit, when the newest entry of the audit log has ``number`` and the hash ``digest``."""
    return f"{_TRAILER}: {number} {digest}"


def read_anchors(path: Path, branch: str, tip: str = "") -> Iterator[AuditAnchor]:
    """The anchors in the history of ``branch`` of the repository at ``path``, newest first; none without the branch.

    It begins at the commit ``tip``, if there is one and the repository has it. Raises SourceError.
    """
    try:
        git = open_git(path)
        if not tip or tip not in git:
            ref = f"refs/heads/{branch}"
            if ref not in git.references:
                return
            tip = str(git.lookup_reference(lookup_name(ref)).resolve().target)
        for commit in git.walk(tip):
            if match := _ANCHOR.search(commit.message):
                yield AuditAnchor(str(commit.id), commit.commit_time, int(match[1]), match[2])
    except GIT_FAULTS as fault:
        raise SourceError(f"branch {branch} of {path} cannot be read: {fault}") from None
