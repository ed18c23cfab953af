"""The commits that changed one file, newest first, with its blobs before and after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pygit2

from reconciler.errors import SourceError
from reconciler.model.revision import blob_name
from reconciler.printable import replace_unsafe
from reconciler.source.libgit import lookup_name, open_git
from reconciler.source.repository import Repository

MOST_SUBJECT = 300
"""The most characters of the subject of a commit."""
_FAULTS = (pygit2.GitError, KeyError, ValueError, OSError)


class CommitTouch(msgspec.Struct, frozen=True):
    """A commit that changed a file: its blobs ``before`` and ``after``, empty if there was or is no file.

    ``at`` is when the author wrote it, in seconds since the epoch. An empty ``commit`` marks the end of a history that
    is not followed further.
    """

    commit: str
    author: str
    before: str
    after: str
    subject: str = ""
    at: int = 0


HISTORY_END = CommitTouch("", "", "", "")


class FileHistories:
    """File histories in one repository; ``go_on`` is called before each commit and may stop the search."""

    def __init__(self, repository: Repository, go_on: Callable[[], bool]) -> None:
        """Raises SourceError if the repository cannot be read."""
        try:
            self._git = open_git(repository.gitdir)
        except _FAULTS as fault:
            raise SourceError(f"source {repository.settings.name}: its history cannot be read: {fault}") from None
        self._below = "" if repository.settings.path in ("", ".") else f"{repository.settings.path.strip('/')}/"
        self._go_on = go_on

    def of(self, path: str, tip: str, base: str) -> Iterator[CommitTouch]:
        """The commits that changed the file ``path``, from ``tip`` back until it is as in ``base`` (a commit or "").

        At a merge, the walk follows a parent with the same file, otherwise the first parent. It ends with HISTORY_END
        if ``go_on`` returns False or a commit cannot be read: a shallow clone ends there.
        """
        try:
            base_blob = self._blob(self._commit(base), path) if base and base in self._git else None
            yield from self._touches(path, self._commit(tip), base_blob)
        except _FAULTS:
            yield HISTORY_END

    def _touches(self, path: str, commit: pygit2.Commit, base_blob: str | None) -> Iterator[CommitTouch]:
        after = self._blob(commit, path)
        while after != base_blob:
            if not self._go_on():
                yield HISTORY_END
                return
            parents = [(parent, self._blob(parent, path)) for parent in commit.parents]
            same = next((parent for parent, blob in parents if blob == after), None)
            if same is None:
                before = parents[0][1] if parents else ""
                if before or after:
                    yield _make_touch(commit, before, after)
                after = before
            if not parents:
                return
            commit = same or parents[0][0]

    def _commit(self, name: str) -> pygit2.Commit:
        return self._git[name].peel(pygit2.Commit)

    def _blob(self, commit: pygit2.Commit, path: str) -> str:
        try:
            return blob_name(path, str(commit.tree[lookup_name(self._below + path)].id))
        except KeyError:
            return ""


def _make_touch(commit: pygit2.Commit, before: str, after: str) -> CommitTouch:
    subject = commit.raw_message.decode("utf-8", "replace").lstrip().partition("\n")[0]
    author = _get_author_name(commit)
    return CommitTouch(
        str(commit.id), author, before, after, replace_unsafe(subject[:MOST_SUBJECT]), commit.author.time
    )


def _get_author_name(commit: pygit2.Commit) -> str:
    return replace_unsafe(commit.author.raw_name.decode("utf-8", "replace"))
