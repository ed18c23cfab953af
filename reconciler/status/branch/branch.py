"""The status branch: built from Git objects, moved by compare-and-swap, with a bounded history."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from pathlib import Path

import pygit2
from pygit2.enums import ObjectType

from reconciler.errors import SourceError
from reconciler.listing import list_paths
from reconciler.private_files import make_directory
from reconciler.source.libgit import PackDirectory, lookup_name, open_git
from reconciler.status.branch.layout import divide_tree
from reconciler.status.branch.owner import file_access_of
from reconciler.status.branch.packing import EVERY, OwnPacks, pack_own
from reconciler.status.branch.trees import Changes, write_tree
from reconciler.status.branch.writer import RUN_FILE, Writer, refuse_other_writer

HISTORY = 1_000
"""Commits after which the history of the branch restarts with the same files."""

_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_TRAILER = "Reconciler-Commits"
_COUNT = re.compile(rf"^{_TRAILER}: (\d{{1,9}})$", re.MULTILINE)
_TRIES = 40
_PAUSE = 0.05
_LOCK_LASTS = 10.0
"""Seconds for which no Git holds the lock of a ref: an older one was left by a process that was killed."""
GIT_FAULTS = (pygit2.GitError, KeyError, ValueError, OSError)
"""What libgit2 raises for a repository that is damaged, or not accessible."""


class StatusBranch:
    """One branch of a repository on this machine, bare or not, that is written without a work tree.

    As in Git's defaults, objects are not synced one by one: a power cut may lose the last commits of the branch, and
    the records still contain their facts.
    """

    def __init__(self, path: Path, name: str, *, own: bool = False, writer: Writer | None = None) -> None:
        """``own``: the repository is for this branch alone. Else ``writer`` never writes over another daemon.

        Raises SourceError if there is no repository at ``path``, or if ``name`` is no valid branch name.
        """
        self.name = name
        self._own = own
        self._writer = writer
        self._takes_over = False
        self._packing_due = False
        self._newest = self._packed = ""
        self._ended: list[str] = []
        """The last commits of former histories, if they are not packed yet."""
        self.ref = f"refs/heads/{name}"
        if not pygit2.reference_is_valid_name(self.ref):
            raise SourceError(f"{name!r} cannot be the name of a branch; change status.branch in the settings")
        try:
            self._git = open_git(path)
        except GIT_FAULTS as fault:
            raise SourceError(f"status cannot be written, no Git repository at {path}: {fault}") from None
        self._packs = OwnPacks(self.gitdir)
        self._pack_directory = PackDirectory(self.gitdir)

    @property
    def gitdir(self) -> Path:
        """The Git directory, with the refs and objects of the repository."""
        return Path(self._git.path)

    def tip(self) -> str:
        """Id of the newest commit, empty if the branch does not exist."""
        return self._at(self.ref)

    def tree(self) -> pygit2.Tree | None:
        """The files at the tip; None if the branch does not exist. Raises SourceError."""
        tip = self.tip()
        try:
            return self._git[tip].peel(pygit2.Tree) if tip else None
        except GIT_FAULTS as fault:
            raise self._make_write_error(fault) from None

    def is_foreign(self) -> bool:
        """Whether the branch exists with files, and no commit of its history is one of a reconciler."""
        tree = self.tree()
        if tree is None or not len(tree):
            return False
        try:
            # Almost always the newest says it, and files beside the objects may lead a walk to what is not there.
            tip = self.tip()
            if _COUNT.search(self._git[tip].peel(pygit2.Commit).message):
                return False
            commits = islice(self._git.walk(tip), HISTORY)
            return not any(_COUNT.search(commit.message) for commit in commits)
        except GIT_FAULTS as fault:
            raise self._make_write_error(fault) from None

    def take_over(self) -> None:
        """Let the next commit write over another daemon."""
        self._takes_over = True

    def refuse_other_writer(self) -> None:
        """Raise StatusBranchTaken if another daemon wrote the newest files, and ``take_over`` was not called."""
        tip = self.tip()
        if self._writer is not None and not self._own and not self._takes_over and tip != self._newest:
            refuse_other_writer(self.read(RUN_FILE), self._writer, self.name)

    def commit(self, changes: Changes, message: str, at: int, divided: Sequence[str] = ()) -> str:
        """Commit ``changes`` (content by path, None to delete) on top of the current tip; returns the new tip's id.

        ``message`` is one line, and may be followed by trailers, one a line; ``at`` is the time in seconds since the
        epoch. Status files of the directories ``divided`` are moved into buckets before; other files stay. If the files
        are already as wanted, there is no commit. If another writer was faster, the commit is based on theirs. Raises
        SourceError if the branch is checked out, damaged, not writable or of another daemon.
        """
        self._refuse_checked_out()
        self._reopen()
        self._remove_stale_lock()
        for attempt in range(_TRIES):
            tip = self.tip()
            self.refuse_other_writer()
            try:
                new = self._commit_on(tip, changes, message, at, divided)
            except GIT_FAULTS as fault:
                raise self._make_write_error(fault) from None
            if new == tip or self._move_ref(tip, new):
                self._newest, self._takes_over = new, False
                return new
            time.sleep(random.uniform(0, _PAUSE * min(attempt, 4) / 4))
        raise SourceError(
            f"branch {self.name} of {self.gitdir} is moved or locked by others all the time; see its .lock file"
        )

    def needs_packing(self) -> bool:
        """Whether there are enough new commits for ``pack``."""
        return self._packing_due

    def pack(self) -> None:
        """Pack the objects of the new commits, in any thread, also while another one commits. Raises SourceError."""
        newest, former = self._newest, self._packed
        ended = [self._ended.pop() for _ in range(len(self._ended))]
        # After a failure, all commits are packed next time: the last one packed may no longer exist.
        self._packing_due, self._packed = False, ""
        if self._own:
            pack_own(self.gitdir)
        else:
            self._packs.add([newest, *ended], former)
            self._packed = newest

    def reset(self, commit: str) -> None:
        """Set the branch to ``commit``, whatever it was before; empty deletes it. Raises SourceError."""
        try:
            with self._file_access():
                if commit:
                    self._git.references.create(self.ref, commit, force=True)
                elif self.tip():
                    self._git.references.delete(self.ref)
        except GIT_FAULTS as fault:
            raise self._make_write_error(fault) from None

    def read(self, path: str) -> bytes | None:
        """Content of the file ``path`` at the tip; None if there is none."""
        tip = self.tip()
        try:
            entry = self._git[tip].peel(pygit2.Tree)[lookup_name(path)] if tip else None
        except GIT_FAULTS:
            return None
        return entry.data if isinstance(entry, pygit2.Blob) else None

    def _at(self, ref: str) -> str:
        try:
            return str(self._git.lookup_reference(lookup_name(ref)).resolve().target)
        except KeyError:
            return ""
        except GIT_FAULTS as fault:
            raise self._make_write_error(fault) from None

    def _reopen(self) -> None:
        """Open the repository anew if its packs changed: see ``PackDirectory``."""
        if self._pack_directory.has_changed():
            try:
                self._git = open_git(self.gitdir)
            except GIT_FAULTS as fault:
                raise self._make_write_error(fault) from None

    def _commit_on(self, tip: str, changes: Changes, message: str, at: int, divided: Sequence[str]) -> str:
        parent = self._git[tip].peel(pygit2.Commit) if tip else None
        base = parent.tree if parent is not None else None
        before = base
        if base is not None and divided:
            with self._file_access():
                before = divide_tree(self._git, base, divided)
        tree = write_tree(self._git, before, changes)
        if str(tree) == (str(base.id) if base is not None else _EMPTY_TREE):
            return tip
        count = self._count(parent) if parent is not None else 0
        parent_ids = [parent.id] if parent is not None and count < HISTORY else []
        number = count + 1 if parent_ids else 1
        if parent is not None and not parent_ids:
            # A repository of others never loses these commits: without a pack, each would leave its files for ever.
            self._ended.append(tip)
        self._packing_due |= number % EVERY == 0
        subject, *trailers = message.splitlines()
        text = "\n".join((f"{subject} [skip ci]", "", *trailers, f"{_TRAILER}: {number}", ""))
        who = f"reconciler <reconciler@localhost> {at} +0000"
        parents = "".join(f"parent {parent}\n" for parent in parent_ids)
        commit = f"tree {tree}\n{parents}author {who}\ncommitter {who}\n\n{text}"
        with self._file_access():
            return str(self._git.write(ObjectType.COMMIT, commit.encode()))  # libgit2 would read the tree again

    def _count(self, commit: pygit2.Commit) -> int:
        """Length of the history, as recorded in our newest commit; only newer commits by others are walked."""
        for above in range(HISTORY):
            trailer = _COUNT.search(commit.message)
            if trailer is not None:
                return int(trailer[1]) + above
            if not commit.parent_ids:
                return above + 1
            parent = commit.parent_ids[0]
            if parent not in self._git:
                return HISTORY
            commit = self._git[parent].peel(pygit2.Commit)
        return HISTORY

    def _move_ref(self, old: str, new: str) -> bool:
        """Whether the branch moved from ``old`` to ``new``; False if another writer moved or locked it."""
        with self._file_access():
            if not old:
                return self._create_ref(new)
            try:
                reference = self._git.lookup_reference(lookup_name(self.ref))
                if str(reference.target) != old:
                    return False
                reference.set_target(new)
            except GIT_FAULTS:
                return False
            return True

    def _create_ref(self, new: str) -> bool:
        """Create the branch under the lock of its ref, so that only one of two writers does."""
        try:
            with self._git.transaction() as transaction:
                transaction.lock_ref(self.ref)
                self._refuse_taken_name()
                if self.tip():
                    return False
                transaction.set_target(self.ref, new)
        except GIT_FAULTS as fault:
            if self.tip() or (self.gitdir / f"{self.ref}.lock").exists():
                return False
            self._refuse_taken_name()
            raise self._make_write_error(fault) from None
        return True

    def _remove_stale_lock(self) -> None:
        """Remove the lock of the branch that a killed process left; status could never be written again."""
        lock = self.gitdir / f"{self.ref}.lock"
        with suppress(OSError):
            if time.time() - lock.stat().st_mtime >= _LOCK_LASTS:
                lock.unlink()

    def _refuse_taken_name(self) -> None:
        """Raise SourceError if a ref prevents this branch: Git stores one as a file where the other needs a folder."""
        if taken := next((ref for ref in self._git.references if _in_the_way(ref, self.ref)), ""):
            raise self._make_write_error(
                f"{taken!r} exists, and Git cannot have both; rename that branch, or give another status.branch"
            )

    def _file_access(self) -> AbstractContextManager[None]:
        return file_access_of(self.gitdir)

    def _refuse_checked_out(self) -> None:
        try:
            taken = is_checked_out(self._git, self.ref)
        except OSError as fault:
            raise self._make_write_error(fault) from None
        if taken:
            raise SourceError(
                f"branch {self.name} is checked out in a work tree of {self.gitdir}; check out another branch there, "
                "or give another status.branch in the settings"
            )

    def _make_write_error(self, fault: object) -> SourceError:
        denied = "ermission denied" in str(fault)
        advice = "; allow its user to write there, or set readOnly for the source" if denied else ""
        return SourceError(f"branch {self.name} of {self.gitdir} cannot be written: {fault}{advice}")


def is_checked_out(git: pygit2.Repository, ref: str) -> bool:
    """Whether a work tree of ``git`` has the branch ``ref`` checked out: its files would not follow. Raises OSError."""
    gitdir = Path(git.path)
    heads = [*list_paths(gitdir, "worktrees/*/HEAD")]
    if not git.is_bare:
        heads.append(gitdir / "HEAD")
    return any(_read_head(head) == f"ref: {ref}" for head in heads)


def _read_head(path: Path) -> str:
    """What a work tree has checked out; "" if it is removed meanwhile. Raises OSError."""
    with suppress(FileNotFoundError):
        return path.read_text().strip()
    return ""


def _in_the_way(ref: str, target: str) -> bool:
    return ref.startswith(f"{target}/") or target.startswith(f"{ref}/")


def prepare_bare(path: Path) -> Path:
    """A bare repository at ``path``, created if missing; for status that must not go into its source."""
    if not (path / "HEAD").exists():
        try:
            make_directory(path)
            pygit2.init_repository(str(path), bare=True, mode=0o700)
        except (*GIT_FAULTS, OSError) as fault:
            raise SourceError(f"a repository for status cannot be made at {path}: {fault}") from None
    return path
