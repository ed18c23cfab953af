"""Who made the changes that wait for an approval, by the commits in Git: another person approves them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import msgspec
import pygit2

from reconciler.changes.commits import make_author
from reconciler.errors import RefusedError, SourceError
from reconciler.model.key import Key, Kind
from reconciler.model.revision import Revision
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.planning.plan import Action, Step
from reconciler.records.store import Records
from reconciler.source.file_history import HISTORY_END, FileHistories
from reconciler.source.libgit import open_git

MOST_COMMITS = 20_000
"""The most commits that are visited for one approval."""
MOST_FILES = 2_000
"""The most changed files in which a deleted resource is searched."""
CO_AUTHOR = b"co-authored-by:"


def check_approver(pipeline: SourcePipeline, hold_digest: str, by: str) -> None:
    """Raise RefusedError if ``by`` made a change among the waiting steps ``hold_digest``, or if Git does not show who.

    ``by`` is a principal, such as ``user/ann@example.com``, or the name of a user of this host.
    """
    prepared = pipeline.plan_revision()
    plan = prepared.plan
    if plan is None or plan.hold_digest != hold_digest:
        raise RefusedError(f"the steps {hold_digest} are not those that wait now; read the plan again")
    principal = by if "/" in by else f"{Kind.USER}/{by}"
    own = _collect_addresses(pipeline.records, principal, pipeline.settings.org)
    authors = _ChangeAuthors(pipeline, prepared)
    pin = pipeline.records.pins.get(pipeline.name)
    if pin is not None and pin.by == by:
        raise RefusedError(
            f"{by} rolled {pipeline.name} back, so another person approves what waits (approvalFourEyes)"
        )
    waiting = (step for step in plan.steps if step.hold.approvable and not step.heals)
    for step in waiting:
        if (pin is None or authors.is_ahead(step)) and own & authors.of(step):
            raise RefusedError(f"{by} made the change of {step.key}; another person approves it (approvalFourEyes)")


def check_rewrite_approver(pipeline: SourcePipeline, revision: Revision, by: str) -> None:
    """Raise RefusedError if ``by`` wrote the commit ``revision``, to which a history was rewritten."""
    git = open_git(pipeline.source.repository.gitdir)
    principal = by if "/" in by else f"{Kind.USER}/{by}"
    if _collect_addresses(pipeline.records, principal, pipeline.settings.org) & _addresses_in(
        git[revision.commit].peel(pygit2.Commit)
    ):
        message = f"{by} wrote the commit {revision.commit[:12]}; another person approves it (approvalFourEyes)"
        raise RefusedError(message)


def _collect_addresses(records: Records, principal: str, org: str) -> frozenset[str]:
    """The addresses that commits of ``principal`` have: its own, and the one that the manifest of the user names."""
    names = {make_author(principal, org).email}
    for record in records.applied.get(Key.parse(principal)):
        names.add(str(msgspec.json.decode(record.body).get("email", "")))
    return frozenset(text.lower() for text in names if text)


class _ChangeAuthors:
    """Addresses of the authors of changes, in the history of one source."""

    def __init__(self, pipeline: SourcePipeline, prepared: PlannedRevision) -> None:
        self._pipeline = pipeline
        self._repository = pipeline.source.repository
        self._git = open_git(self._repository.gitdir)
        self._tip = prepared.revision
        self._view = pipeline.view().with_changes(prepared.loaded.change_set)
        self._left = MOST_COMMITS
        self._history = FileHistories(self._repository, self._go_on)
        self._of_path = cache(self._authors_of_path)

    def is_ahead(self, step: Step) -> bool:
        """Whether the revision is newer than the one that ``step`` changes: not after a rollback."""
        base = self._base(step)
        return not base or self._repository.contains(self._tip.commit, base)

    def of(self, step: Step) -> frozenset[str]:
        """The authors of every commit that changed the file of ``step`` since its resource was applied.

        If none did, another file caused the step, and those of all changed files count. Raises RefusedError if the
        history does not reach back so far.
        """
        base = self._base(step)
        entry = self._view.index.entry(str(step.key)) if step.action is not Action.DELETE else None
        paths = [entry.path] if entry is not None else self._files_with(step.key, base)
        authors = self._together(paths, base)
        return authors or self._together(self._list_changed_paths(base), base)

    def _together(self, paths: Iterable[str], base: str) -> frozenset[str]:
        return frozenset[str]().union(*(self._of_path(path, base) for path in paths))

    def _authors_of_path(self, path: str, base: str) -> frozenset[str]:
        names: set[str] = set()
        for touch in self._history.of(path, self._tip.commit, base):
            if touch == HISTORY_END:
                raise RefusedError(f"the history of {path} is too short to show who changed it (approvalFourEyes)")
            names |= _addresses_in(self._git[touch.commit].peel(pygit2.Commit))
        return frozenset(names)

    def _files_with(self, key: Key, base: str) -> list[str]:
        """The changed files that declared ``key`` before."""
        decoder = self._view.bodies.decoder
        before = self._revision(base)
        if before is None:
            return []
        changes = [change for change in self._repository.changes(before.tree, self._tip.tree) if change.before][
            :MOST_FILES
        ]
        return [
            change.path
            for change in changes
            if any(
                (manifest.kind, manifest.name) == (key.kind, key.name)
                for manifest in decoder.decode(change.before).manifests
            )
        ]

    def _list_changed_paths(self, base: str) -> list[str]:
        before = self._revision(base)
        return [change.path for change in self._repository.changes(before.tree if before else "", self._tip.tree)]

    def _revision(self, base: str) -> Revision | None:
        try:
            return self._pipeline.revisions.resolve(base) if base else None
        except SourceError:
            raise RefusedError(f"the commit {base[:12]} is gone, so Git does not show who made the change") from None

    def _base(self, step: Step) -> str:
        """The commit at which the resource of ``step`` was applied, "" if it never was."""
        records = self._pipeline.records.applied.get(step.key) if step.action is not Action.CREATE else ()
        applied = next((record for record in records if record.location == step.location), next(iter(records), None))
        return applied.revision.rpartition(":")[2] if applied is not None else ""

    def _go_on(self) -> bool:
        self._left -= 1
        return self._left >= 0


def _addresses_in(commit: pygit2.Commit) -> set[str]:
    """The addresses of the author, the committer and the co-authors of a commit."""
    lines = (line.strip() for line in commit.raw_message.splitlines())
    others = [line.rpartition(b"<")[2].rstrip(b"> ") for line in lines if line.lower().startswith(CO_AUTHOR)]
    raw = (commit.author.raw_email, commit.committer.raw_email, *others)
    return {address.decode("utf-8", "replace").lower() for address in raw}
