"""Selects the revision of a source: of its branch, pinned by an operator, or named on the command line."""

from __future__ import annotations

from reconciler.errors import SourceError, SourceRewritten
from reconciler.model.revision import Revision
from reconciler.records.store import Records
from reconciler.source.source import Source, check_rewrite
from reconciler.source.url import wanted_ref


class RevisionSelector:
    """Selects revisions of one source from its repository and the records. Methods that read Git raise SourceError."""

    def __init__(self, source: Source, records: Records) -> None:
        self._source = source
        self._records = records

    def pinned_commit(self) -> str:
        """The commit to which an operator pinned the source, "" if it follows its branch."""
        pin = self._records.pins.get(self._source.name)
        return pin.commit if pin is not None else ""

    def current(self) -> Revision:
        """The wanted revision, not yet checked against the last one."""
        return self._source.revision(self.pinned_commit())

    def resolve(self, expression: str, head: str = "") -> Revision:
        """The revision of ``expression``; ``HEAD`` in it is ``head``, else the applied commit."""
        return self._source.revision(expression, head or self.applied_commit())

    def applied_commit(self) -> str:
        """The last accepted commit, "" before the first."""
        row = self._records.sources.get(self._source.name)
        return row.commit if row is not None else ""

    def followed_commit(self) -> str:
        """The last commit accepted from the branch or tag, regardless of pins since."""
        return self._records.sources.followed_commit(self._source.name, wanted_ref(self._source.settings))

    def check(self, revision: Revision) -> None:
        """Raise SourceRewritten or SourceUnverified if ``revision``, the current one, must not be accepted."""
        # A pin may go back: that is what a rollback does.
        if _was_followed(revision):
            check_rewrite(self._source.repository, self.followed_commit(), revision)
        self._source.repository.check_signed(revision.commit, self.applied_commit())

    def find_rewritten(self) -> Revision | None:
        """The current revision, if it must not be accepted because its history was rewritten; None else."""
        try:
            revision = self.current()
        except SourceError:
            return None
        try:
            self.check(revision)
        except SourceRewritten:
            return revision
        except SourceError:
            return None
        return None

    def accept(self, revision: Revision) -> None:
        """Record the commit of the branch, unless ``revision`` is pinned."""
        if _was_followed(revision):
            self._records.sources.put_followed(self._source.name, wanted_ref(self._source.settings), revision.commit)


def _was_followed(revision: Revision) -> bool:
    """Whether ``revision`` came from a branch or tag; the ref of a pinned revision is its commit."""
    return revision.ref != revision.commit
