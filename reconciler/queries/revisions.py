"""The fields that differ between two revisions of a source, from the files that differ: nothing else is read."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from reconciler.errors import RefusedError, SourceError, SourceNotFound
from reconciler.manifests.assembly import directory_of
from reconciler.model.key import Key, Kind
from reconciler.model.resource import Resource
from reconciler.model.revision import FileChange, Revision
from reconciler.planning.diff import diff_bodies, highest_impact
from reconciler.planning.plan import Action, ChangeClass, Plan, Step
from reconciler.planning.planner import digest_of
from reconciler.printable import escape_text
from reconciler.queries.committed import MOST_BYTES, CommittedFiles, CommittedState
from reconciler.records.store import Records
from reconciler.render.plan.review import PlanReview
from reconciler.settings import Settings, SourceSettings

MOST_FILES = 5_000
"""The most changed files that are compared."""


_GVC = re.compile(rb"gvc(?<![\w/-]gvc)(?![\w/-])(?!['\"]?\s*:)")
"""The word as a value, and neither the name of a field nor a part of a link or of a name."""
_ESCAPE = re.compile(rb"\\[uUx\r\n]")
"""What could write a letter in another way."""


class RevisionDiff(NamedTuple):
    """What changed from one revision to another, as a plan of steps without a location.

    Nobody can apply or approve it. ``unread`` are files with errors in either revision, which are left out. ``files``
    is how many differ; ``following`` is the path after which those come that were not compared, "" for none.
    """

    before: Revision
    after: Revision
    plan: Plan
    unread: Sequence[str]
    files: int = 0
    following: str = ""


class Comparison(NamedTuple):
    """Which revisions are compared, and the resource that is of interest (None: all).

    ``HEAD`` in them is the commit ``head``, else the applied one. ``most`` is how many files are compared (0: all),
    those after ``path``. What moved from one file to another counts for the first of the two.
    """

    before: str
    after: str
    key: Key | None = None
    head: str = ""
    most: int = 0
    path: str = ""


def compare_revisions(settings: Settings, source: SourceSettings, records: Records, asked: Comparison) -> RevisionDiff:
    """The differences between the revisions that are ``asked`` about.

    Raises SourceError, and RefusedError for too many files.
    """
    files = CommittedFiles(settings, source, records)
    row = records.sources.get(source.name)
    head = asked.head or (row.commit if row is not None else "")
    old, new = (_resolve_revision(files, text, head) for text in (asked.before, asked.after))
    changes = list(files.repository.changes(old.tree, new.tree))
    if len(changes) > MOST_FILES:
        raise RefusedError(
            f"{len(changes)} files differ, and at most {MOST_FILES} are compared here; for all of them: "
            f"reconciler diff {old.commit[:12]} {new.commit[:12]} --source {source.name}"
        )
    states = CommittedState(files, old), CommittedState(files, new)
    changes += _list_moved(files, states, (old, new), changes)
    changes.sort(key=lambda change: change.path)
    shown = [change for change in changes if change.path > asked.path]
    shown = shown[: asked.most] if asked.most and asked.key is None else shown
    comparison = _FileComparison(states)
    if asked.key is None or not comparison.add_file_of(_find_path(records, asked.key), changes, asked.key):
        comparison.add(shown)
    if len(shown) < len(changes) and asked.key is None:
        comparison.add_moved(files, [change for change in changes if change not in shown])
    steps = tuple(comparison.list_steps(asked.key, {change.path for change in shown}))
    plan = Plan(source.name, str(new), steps, digest_of(steps))
    following = shown[-1].path if shown and shown[-1] is not changes[-1] else ""
    return RevisionDiff(old, new, plan, sorted(comparison.unread), len(changes), following)


def _find_path(records: Records, key: Key) -> str:
    entry = records.desired.get(key)
    return entry.path if entry is not None else ""


class _FileComparison:
    """The resources of changed files on both sides, each with the file that it is in."""

    def __init__(self, states: tuple[CommittedState, CommittedState]) -> None:
        self._states = states
        self._sides: tuple[dict[Key, Resource], dict[Key, Resource]] = ({}, {})
        self.unread: set[str] = set()

    def add(self, changes: Iterable[FileChange]) -> None:
        """Read ``changes``."""
        for change in changes:
            for side, state, blob in zip(self._sides, self._states, (change.before, change.after), strict=True):
                resources = state.list_resources(change.path, blob)
                if resources is None:
                    self.unread.add(change.path)
                side.update((resource.key, resource) for resource in resources or ())

    def add_file_of(self, path: str, changes: Iterable[FileChange], key: Key) -> bool:
        """Read the change of the file ``path`` alone; whether both sides have ``key`` there, so that no other has."""
        self.add(change for change in changes if change.path == path)
        return all(key in side for side in self._sides)

    def add_moved(self, files: CommittedFiles, others: Sequence[FileChange]) -> None:
        """Read those of ``others`` that may have what only one side has so far: it moved from file to file."""
        before, after = self._sides
        names = {key.name.encode() for key in before.keys() ^ after.keys()}
        if not names:
            return
        pattern = re.compile(b"|".join(map(re.escape, sorted(names))))
        unread = set(self.unread)
        self.add(change for change in others if any(map(pattern.search, _read_sides(files, change))))
        self.unread = unread

    def list_steps(self, only: Key | None, paths: Container[str]) -> Iterator[Step]:
        """A step for each resource that differs and is, or was first, in one of ``paths``, in order of the keys."""
        before, after = self._sides
        keys = {only} if only is not None else before.keys() | after.keys()
        for key in sorted(keys, key=str):
            old, new = before.get(key), after.get(key)
            places = [resource.path for resource in (old, new) if resource is not None]
            if only is not None or (places and min(places) in paths):
                yield from _compare_resources(key, old, new)


def _read_sides(files: CommittedFiles, change: FileChange) -> list[bytes]:
    """The bytes of a file in both revisions, without one that is too large to be compared."""
    blobs = (blob for blob in (change.before, change.after) if blob)
    return [files.repository.read(blob) for blob in blobs if files.repository.size(blob) <= MOST_BYTES]


def review_diff(diff: RevisionDiff) -> PlanReview:
    """``diff`` as plans are shown."""
    resources = len(diff.plan.steps)
    return PlanReview(diff.after, diff.plan, [], 0, resources, _read_nothing, since=str(diff.before))


def list_unread(diff: RevisionDiff) -> list[str]:
    """A line for each file that was left out."""
    return [f"Not compared: {escape_text(path)} has errors in one of the two" for path in diff.unread]


def _read_nothing(path: str) -> bytes:
    raise SourceError(f"{path} is not read for a comparison")


def _resolve_revision(files: CommittedFiles, expression: str, head: str) -> Revision:
    # Git would compare a pattern with the message of every commit, and no other thread runs meanwhile.
    if expression.startswith(":") or "^{/" in expression:
        raise SourceNotFound(f"{expression[:60]!r} is no commit, branch or tag")
    return files.repository.resolve(expression, head)


def _list_moved(
    files: CommittedFiles,
    states: tuple[CommittedState, CommittedState],
    revisions: tuple[Revision, Revision],
    changes: Sequence[FileChange],
) -> list[FileChange]:
    """Unchanged files below a folder that decides another GVC than before, so that their resources have other keys."""
    compared = {change.path for change in changes}
    moved = []
    for folder in sorted(_list_gvc_folders(files, changes)):
        marker = f"{folder}/." if folder else "."
        if states[0].find_gvc(marker) == states[1].find_gvc(marker):
            continue
        for file in _list_files(files, revisions[1], folder):
            if file.path not in compared:
                compared.add(file.path)
                moved.append(FileChange(file.path, file.after, file.after))
    if len(moved) > MOST_FILES:
        raise RefusedError(f"{len(moved)} files move to another GVC, and at most {MOST_FILES} are compared here")
    return moved


def _list_gvc_folders(files: CommittedFiles, changes: Iterable[FileChange]) -> set[str]:
    """The folders of the changed files that declare a GVC on either side."""
    return {
        directory_of(change.path)
        for change in changes
        for blob in (change.before, change.after)
        if blob and _may_declare_gvc(files, blob)
        for manifest in files.manifests(blob) or ()
        if manifest.kind is Kind.GVC
    }


def _may_declare_gvc(files: CommittedFiles, blob: str) -> bool:
    """Whether a file may declare a GVC, by its bytes: to decode each of many files takes milliseconds."""
    if files.repository.size(blob) > MOST_BYTES:
        return False
    raw = files.repository.read(blob)
    return _GVC.search(raw) is not None or _ESCAPE.search(raw) is not None


def _list_files(files: CommittedFiles, revision: Revision, folder: str) -> Iterator[FileChange]:
    """Every manifest file at or below ``folder``; ``before`` is empty."""
    prefix = f"{folder}/" if folder else ""
    return (change for change in files.repository.changes("", revision.tree) if change.path.startswith(prefix))


def _compare_resources(key: Key, old: Resource | None, new: Resource | None) -> Iterator[Step]:
    """The step from ``old`` to ``new``, if they differ."""
    if old is None and new is not None:
        yield Step(Action.CREATE, key, "", "", 0, new.digest, new.body)
    elif new is None and old is not None:
        yield Step(Action.DELETE, key, "", "", 0, old.digest, old.body)
    elif old is not None and new is not None and old.digest != new.digest:
        changes = diff_bodies(key.kind, old.body, new.body, "")
        action = Action.REPLACE if highest_impact(changes) is ChangeClass.REPLACE else Action.UPDATE
        yield Step(action, key, "", "", 0, new.digest, new.body, old.digest, changes)
