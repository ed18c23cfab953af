"""Which revision of a source is wanted: what its branch has, what an operator holds it at, or what a person names."""

from __future__ import annotations

from reconciler.model.revision import Revision
from reconciler.records.store import Records
from reconciler.source.source import Source, check_rewrite
from reconciler.source.url import wanted_ref


class RevisionSelector:
    """Revisions of one source, by its repository and the records. Methods that look raise SourceError."""

    def __init__(self, source: Source, records: Records) -> None:
        self._source = source
        self._records = records

    def pinned(self) -> str:
        """The commit that an operator holds the source at, "" where it follows its branch."""
        pin = self._records.pins.get(self._source.name)
        return pin.commit if pin is not None else ""

    def current(self) -> Revision:
        """Where the source is to be now, not yet checked against where it was."""
        return self._source.revision(self.pinned())

    def named(self, expression: str, head: str = "") -> Revision:
        """The revision that a person names; ``HEAD`` in it is ``head``, else the commit that is applied."""
        return self._source.revision(expression, head or self.applied())

    def applied(self) -> str:
        """The commit that was accepted last, "" before the first."""
        row = self._records.sources.get(self._source.name)
        return row.commit if row is not None else ""

    def followed(self) -> str:
        """The commit that was accepted last from the branch or tag, whatever the source was held at since."""
        return self._records.sources.followed(self._source.name, wanted_ref(self._source.settings))

    def check(self, revision: Revision) -> None:
        """Raises SourceRewritten or SourceUnverified where ``revision``, the current one, must not be taken."""
        if _was_followed(revision):
            check_rewrite(self._source.repository, self.followed(), revision)
        self._source.repository.check_signed(revision.commit, self.applied())

    def accept(self, revision: Revision) -> None:
        """Remember the commit that the branch was at, unless ``revision`` is one that the source is held at."""
        if _was_followed(revision):
            self._records.sources.put_followed(self._source.name, wanted_ref(self._source.settings), revision.commit)


def _was_followed(revision: Revision) -> bool:
    """Whether ``revision`` was found by a branch or tag; a commit that a source is held at is its own ref."""
    return revision.ref != revision.commit
