"""Commits that change manifests in a source: checked as a whole before they reach its branch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pygit2
from pygit2.enums import ObjectType

from reconciler.clock import Clock
from reconciler.errors import PushConflict, RefusedError, SourceError
from reconciler.model.key import Kind
from reconciler.pipeline.source_pipeline import PlannedRevision, SourcePipeline
from reconciler.printable import printable
from reconciler.records.store import Records
from reconciler.settings import Settings, SourceSettings
from reconciler.source.libgit import lookup_name, open_git
from reconciler.status.branch.branch import is_checked_out
from reconciler.status.branch.owner import file_access_of
from reconciler.status.branch.trees import write_tree

COMMITTER = "reconciler <reconciler@localhost>"
REQUEST_TRAILER = "Request-Id"
SEARCHED = 200
"""The newest commits among which one with a request id is searched."""
_FAULTS = (pygit2.GitError, KeyError, ValueError, OSError)


class Author(NamedTuple):
    """Who a commit is by."""

    name: str
    email: str


class Commit(NamedTuple):
    """A commit that no branch has yet: ``parent`` is the tip that it was made on."""

    id: str
    parent: str


def author_of(principal: str, org: str) -> Author:
    """The author of a commit by ``principal``: a user by their address, others by name."""
    kind, _, name = principal.partition("/")
    return Author(name, name if kind == Kind.USER and "@" in name else f"{name.replace('/', '.')}@{kind}.{org}")


class SourceWriter:
    """Writes to the branch of one source. Methods raise SourceError."""

    def __init__(self, settings: Settings, source: SourceSettings, records: Records, clock: Clock) -> None:
        if not source.branch or source.read_only:
            what = "is read-only" if source.read_only else "follows no branch"
            raise RefusedError(f"the source {source.name} {what}, so nothing can be written to it")
        self._line = SourcePipeline(settings, source, records, clock)
        self._clock = clock
        self._settings = source
        self._ref = f"refs/heads/{source.branch}"
        self._git = open_git(self._line.source.repository.commondir)

    @property
    def name(self) -> str:
        """The source's name."""
        return self._settings.name

    @property
    def branch(self) -> str:
        """The branch that the source follows."""
        return self._settings.branch

    def tip(self) -> str:
        """The newest commit of the branch, also of a remote one."""
        self._line.source.refresh()
        return self._line.source.repository.resolve().commit

    def read(self, commit: str, path: str) -> str | None:
        """The text of the manifest at ``path`` in ``commit``; None if there is no such file."""
        try:
            found = self._git[commit].peel(pygit2.Tree)[lookup_name(self._whole(path))]
            return found.data.decode() if isinstance(found, pygit2.Blob) else None
        except KeyError:
            return None
        except UnicodeDecodeError:
            raise RefusedError(f"{path} is not UTF-8: change it in Git") from None
        except _FAULTS as fault:
            raise self._broken(fault) from None

    def commit(self, parent: str, files: Mapping[str, str | None], message: str, author: Author) -> Commit:
        """Make a commit with ``files`` (text by path, None to delete) on ``parent``; no branch has it yet."""
        changes = {self._whole(path): None if text is None else text.encode() for path, text in files.items()}
        at = int(self._clock.now())
        try:
            tree = write_tree(self._git, self._git[parent].peel(pygit2.Tree), changes)
            head = (
                f"tree {tree}\nparent {parent}\nauthor {_name(author)} {at} +0000\ncommitter {COMMITTER} {at} +0000\n"
            )
            with file_access_of(self._line.source.repository.commondir):
                made = str(self._git.write(ObjectType.COMMIT, f"{head}\n{message}\n".encode()))
        except _FAULTS as fault:
            raise self._broken(fault) from None
        return Commit(made, parent)

    def check(self, commit: Commit) -> PlannedRevision:
        """What the daemon would make of ``commit``: its findings, and its plan."""
        return self._line.plan_revision(commit.id)

    def publish(self, commit: Commit) -> None:
        """Move the branch to ``commit``. Raises PushConflict if others moved it since."""
        mirror = self._line.source.mirror
        if mirror is not None:
            mirror.push(f"{commit.id}:{self._ref}", commit.parent)
            return
        try:
            if is_checked_out(self._git, self._ref):
                raise RefusedError(
                    f"the branch {self.branch} is checked out in a work tree of the source {self.name}, which would "
                    "not follow: use a bare repository, or `api: {writes: branch}`"
                )
            with file_access_of(self._line.source.repository.commondir):
                reference = self._git.lookup_reference(lookup_name(self._ref))
                if str(reference.target) != commit.parent:
                    raise PushConflict(f"the branch {self.branch} of the source {self.name} moved meanwhile")
                reference.set_target(commit.id)
        except _FAULTS as fault:
            # Another writer has the lock of the ref, or moved it since it was read.
            raise PushConflict(f"the branch {self.branch} of the source {self.name} is locked: {fault}") from None

    def publish_branch(self, commit: Commit, branch: str) -> None:
        """Create ``branch`` at ``commit``, for a review."""
        ref = f"refs/heads/{branch}"
        mirror = self._line.source.mirror
        if mirror is not None:
            mirror.push(f"{commit.id}:{ref}", "")
            return
        try:
            with file_access_of(self._line.source.repository.commondir):
                self._git.references.create(ref, commit.id)
        except _FAULTS as fault:
            raise self._broken(fault) from None

    def find_request(self, request_id: str) -> str:
        """The commit of the branch, among its newest, with the trailer of ``request_id``; "" if there is none."""
        wanted = f"\n{REQUEST_TRAILER}: {request_id}\n"
        try:
            walk = self._git.walk(self.tip())
            newest = (commit for commit, _ in zip(walk, range(SEARCHED), strict=False))
            return next((str(commit.id) for commit in newest if wanted in f"{commit.message}\n"), "")
        except _FAULTS as fault:
            raise self._broken(fault) from None

    def _whole(self, path: str) -> str:
        """The path in the repository of ``path`` below that of the source."""
        below = self._settings.path.strip("/")
        return path if below in ("", ".") else f"{below}/{path}"

    def _broken(self, fault: object) -> SourceError:
        return SourceError(f"the source {self.name} cannot be written: {fault}")


def _name(author: Author) -> str:
    """``author`` as in a commit, without the characters that end a name there."""
    name, email = (printable(text).translate({ord(char): None for char in "<>\n"}) for text in author)
    return f"{name} <{email}>"
