"""A bare copy of a remote's ref on this machine: updated by ``git fetch``, and written back by ``git push``."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from reconciler.errors import PushBroken, PushConflict, PushRefused, SourceNotFound
from reconciler.iteration import Progress, find_reporter
from reconciler.printable import truncate_text
from reconciler.private_files import make_directory
from reconciler.source.git_command import GitResult
from reconciler.source.remote import REMOTE_WORDS, Remote
from reconciler.source.url import RepositoryAddress, wanted_ref

if TYPE_CHECKING:
    from reconciler.settings import SourceSettings

_FETCH = ("fetch", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-gc")
_NO_REF = "couldn't find remote ref"
_NO_COMMIT = ("not our ref", "expected 'acknowledgments'", "unadvertised object", _NO_REF)
_RACED = (
    "(stale info)",
    "(fetch first)",
    "(non-fast-forward)",
    "failed to update ref",
    "cannot lock ref",
    "(incorrect old value provided)",
    "(reference already exists)",
)
_IN_THE_WAY = re.compile(r"'(refs/[^'\n]+)' exists; cannot create")
_BROKEN = ("hung up", "RPC failed", "unexpected disconnect", "early EOF")
_LOCKED = "cannot lock ref"
_LOCK_FILE = re.compile(r"Unable to create '([^'\n]+\.lock)': File exists")
_MARGIN = 60.0
_RECEIVED = re.compile(r"Receiving objects: +\d+% \((\d+)/(\d+)\)")
_COUNTED = r"(?:Enumerating|Counting|Compressing|Receiving|Unpacking) objects|Resolving deltas|Total \d+ \(delta"
_PROGRESS = re.compile(rf"^(?:remote: )?(?:{_COUNTED}).*(?:\n|\Z)", re.MULTILINE)
"""Lines about objects, which are no words of a remote or about a fault."""
_TRIES = 5
"""How often a ref is fetched that another process of this program, such as the HTTP API, fetches at the same time."""


class Mirror:
    """The copy at ``path``: has the followed ref under its own name, others under ``refs/remotes/origin/``.

    All methods raise SourceUnreachable if the remote does not answer, refuses or takes too long.
    """

    def __init__(self, settings: SourceSettings, address: RepositoryAddress, path: Path) -> None:
        self.path = path
        self._settings = settings
        self._remote = Remote(settings, address)

    def prepare(self) -> Path:
        """Create an empty bare repository if there is none, and return its path."""
        if not (self.path / "HEAD").is_file():
            self._create()
        return self.path

    def _create(self) -> None:
        import pygit2

        make_directory(self.path)
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Other processes of this program wait until the file HEAD, which is written last, is there.
            fcntl.flock(directory, fcntl.LOCK_EX)
            if not (self.path / "HEAD").is_file():
                pygit2.init_repository(str(self.path), bare=True)
        finally:
            os.close(directory)

    def refresh(self) -> None:
        """Fetch the followed ref, even if its history was rewritten.

        Raises SourceNotFound if the remote has no such repository or ref. Earlier fetched objects stay.
        """
        ref = wanted_ref(self._settings)
        before = self._tip(ref)
        if before == self._settings.commit != "":
            return
        answer = self._fetch(self._settings.commit or ref, ref)
        if answer.code and self._settings.commit and any(sign in answer.errors for sign in _NO_COMMIT):
            raise SourceNotFound(
                f"source {self._settings.name}: the remote has no commit {self._settings.commit}, or gives no single "
                "commits away; name the full id of a commit, or a tag"
            )
        if answer.code:
            raise self._remote.failure(answer)
        if self._tip(ref) != before:
            # Garbage collection runs separately, so that it cannot exceed the deadline of a fetch. It may fail or wait.
            self._remote.run(self.path, ["gc", "--auto", "--quiet"])

    def fetch_ref(self, ref: str) -> str:
        """Fetch another ref of the remote (``refs/heads/…``); returns its commit, or ``""`` if the remote has none.

        It is stored as ``refs/remotes/origin/…``; a local ref with the ref's own name is not changed.
        """
        tracking_ref = f"refs/remotes/origin/{ref.removeprefix('refs/heads/')}"
        answer = self._fetch(ref, tracking_ref)
        if answer.code == 0:
            return self._tip(tracking_ref)
        if _NO_REF not in answer.errors:
            raise self._remote.failure(answer)
        return ""

    def push(self, refspec: str, expected: str) -> list[str]:
        """Push ``SOURCE:REF`` if the remote's ref is still at the commit ``expected`` (``""``: still missing).

        Returns the remote's words. Raises PushConflict if the ref is elsewhere, PushRefused if the remote declines,
        PushBroken if it is not known what the remote did.
        """
        ref = refspec.rpartition(":")[2]
        lease = f"--force-with-lease={ref}:{expected}"
        command = ["push", "--porcelain", "--no-verify", "--no-signed", lease, "--", self._remote.address.url, refspec]
        answer = self._remote.run(self.prepare(), command, late=PushBroken)
        words = self._remote.remote_words(answer)
        if answer.code == 0:
            return words
        refusal = next((line for line in answer.output.splitlines() if line.startswith("!")), "")
        own = "".join(line for line in answer.errors.splitlines() if not line.startswith(REMOTE_WORDS))
        if taken := _IN_THE_WAY.search(answer.errors):
            raise PushRefused(
                f"source {self._settings.name}: the remote has {self._remote.clean(taken[1])}, and Git cannot have "
                f"{ref} beside it; rename that branch, or give another status.branch"
            )
        if any(sign in refusal + own for sign in _RACED):
            raise PushConflict(f"source {self._settings.name}: {ref} was moved by another push since it was read")
        if refusal:
            reason = self._remote.clean(refusal.rpartition("\t")[2])
            declined = f"source {self._settings.name}: the remote declined {ref}: {'; '.join([reason, *words])}"
            raise PushRefused(truncate_text(declined))
        failure = self._remote.failure(answer)
        raise PushBroken(str(failure)) if any(sign in answer.errors for sign in _BROKEN) else failure

    def _fetch(self, source: str, target: str) -> GitResult:
        report = find_reporter()
        words = "--quiet" if report is None else "--progress"
        command = [*_FETCH, words, "--", self._remote.address.url, f"+{source}:{target}"]
        watch = None if report is None else partial(_report_fetch, report)
        for _ in range(_TRIES):
            answer = _without_progress(self._remote.run(self.prepare(), command, watch=watch))
            if not answer.code or not (self._removed_lock(answer) or _LOCKED in answer.errors):
                break
        return answer

    def _removed_lock(self, answer: GitResult) -> bool:
        """Whether a lock file stopped ``answer`` that a killed Git left behind; it is removed."""
        match = _LOCK_FILE.search(answer.errors)
        lock = self.path / match[1] if match else None
        if lock is None or not lock.resolve().is_relative_to(self.path.resolve()):
            return False
        try:
            # No Git here lives longer than its deadline.
            if time.time() - lock.lstat().st_mtime < self._settings.timeout + _MARGIN:
                return False
            lock.unlink()
        except FileNotFoundError:
            return True
        return True

    def _tip(self, ref: str) -> str:
        from reconciler.source.libgit import lookup_name, open_git

        reference = open_git(self.prepare()).references.get(lookup_name(ref))
        return str(reference.target) if reference else ""


def _report_fetch(report: Callable[[Progress], None], written: str) -> None:
    """Report the last number of objects in what Git has ``written``."""
    if counts := _RECEIVED.findall(written):
        done, total = counts[-1]
        report(Progress("fetching objects", int(done), int(total)))


def _without_progress(answer: GitResult) -> GitResult:
    """``answer`` without the lines in which Git counts objects."""
    errors = _PROGRESS.sub("", answer.errors.replace("\r", "\n"))
    return msgspec.structs.replace(answer, errors=errors)
