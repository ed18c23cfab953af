"""The location of a source's status branch, and how commits get there."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pygit2

from reconciler.errors import PushConflict, SourceError
from reconciler.source.source import Source
from reconciler.status.branch.branch import StatusBranch, prepare_bare
from reconciler.status.branch.trees import Changes
from reconciler.status.branch.writer import Writer, identify_writer

if TYPE_CHECKING:
    from reconciler.source.mirror import Mirror

_TRIES = 5
_PAUSE = 0.2


class StatusTarget:
    """A branch on this machine: in the source itself, or in a repository of our own if the source is not written."""

    def __init__(self, branch: StatusBranch, writer: Writer) -> None:
        self.writer = writer
        self._branch = branch
        self._is_ours = False

    def take_over(self) -> None:
        """Let the next write be over the files of another daemon."""
        self._branch.take_over()

    def refuse_others(self) -> None:
        """Raise SourceError if other people made a branch of that name, or another daemon writes it."""
        self._refuse_foreign()
        self._branch.refuse_other_writer()

    def missing(self) -> bool:
        """Whether the branch does not exist, so that all files must be written."""
        return not self._branch.tip()

    def read(self, path: str) -> bytes | None:
        """Content of a file of the branch as it was last written."""
        return self._branch.read(path)

    def tree(self) -> pygit2.Tree | None:
        """The files of the branch as they were last written; None if it does not exist. Raises SourceError."""
        return self._branch.tree()

    def needs_packing(self) -> bool:
        """Whether there are enough new commits for ``pack``."""
        return self._branch.needs_packing()

    def pack(self) -> None:
        """Pack the objects of the new commits, in any thread. Raises SourceError."""
        self._branch.pack()

    def write(self, changes: Changes, message: str, at: int, divided: Sequence[str] = ()) -> None:
        """Commit ``changes``, after the directories ``divided`` are divided into buckets.

        Raises SourceError, also for a branch of that name that other people or another daemon write.
        """
        self._refuse_foreign()
        self._branch.commit(changes, message, at, divided)

    def _refuse_foreign(self) -> None:
        """Raise SourceError if the branch has files of others only, which are never written over."""
        if not self._is_ours and self._branch.is_foreign():
            raise SourceError(
                f"branch {self._branch.name} has files, and no commit of it is one of a reconciler, so no status is "
                "written to it; give another status.branch, or rename that branch"
            )
        self._is_ours = True


class RemoteTarget(StatusTarget):
    """A branch of a remote: committed in the mirror, then pushed with a lease on the remote's last state.

    Commits that were not pushed are discarded at the start, and when another writer was faster. The caller retains its
    changes until ``write`` returns, and passes them again.
    """

    def __init__(
        self, branch: StatusBranch, writer: Writer, mirror: Mirror, pause: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(branch, writer)
        self._mirror = mirror
        self._pause = pause
        self._base: str | None = None

    def missing(self) -> bool:
        """Whether the remote has no such branch. Raises SourceError if the first query of the remote fails."""
        return not self._known_base()

    def refuse_others(self) -> None:
        """As ``StatusTarget``; the next time, the remote is asked anew. Raises SourceError."""
        self._known_base()
        try:
            super().refuse_others()
        except SourceError:
            self._base = None
            raise

    def write(self, changes: Changes, message: str, at: int, divided: Sequence[str] = ()) -> None:
        """Commit and push ``changes`` on top of other pushes. Raises SourceError."""
        had_branch = bool(self._known_base())
        self._refuse_foreign()
        for attempt in range(_TRIES):
            tip = self._branch.commit(changes, message, at, divided)
            if tip == self._base:
                return
            try:
                self._mirror.push(f"{tip}:{self._branch.ref}", self._base or "")
            except PushConflict:
                self._pause(random.uniform(0, _PAUSE * 2**attempt))
                self._follow()
            else:
                self._base = tip
                return
            if had_branch and not self._base:
                raise PushConflict(f"branch {self._branch.name} was deleted from the remote; it is written again")
        raise PushConflict(f"branch {self._branch.name} of the remote is moved by others all the time")

    def _known_base(self) -> str:
        if self._base is None:
            self._follow()
        return self._base or ""

    def _follow(self) -> None:
        """Restart from the state of the remote."""
        self._base = None
        base = self._mirror.fetch_ref(self._branch.ref)
        self._branch.reset(base)
        self._base = base


def open_target(source: Source, state: Path) -> StatusTarget:
    """The target for the status of ``source``; ``state`` is the state directory. Raises SourceError."""
    settings, writer = source.settings, identify_writer(state)
    name = settings.status.branch
    if name == settings.branch:
        raise SourceError(
            f"source {source.name}: status cannot go to {name}, the branch it follows; give another status.branch"
        )
    if settings.read_only or (source.mirror is not None and not settings.status.push):
        own = prepare_bare(state / "status" / f"{source.name}.git")
        return StatusTarget(StatusBranch(own, name, own=True), writer)
    if source.mirror is not None:
        return RemoteTarget(StatusBranch(source.mirror.prepare(), name, writer=writer), writer, source.mirror)
    return StatusTarget(StatusBranch(source.repository.commondir, name, writer=writer), writer)
