"""What the pipeline of a source returns before it changes anything."""

from __future__ import annotations

import msgspec

from reconciler.manifests.change_set import ChangeSet
from reconciler.model.finding import Finding, Severity
from reconciler.model.revision import Revision
from reconciler.pipeline.load import LoadedRevision
from reconciler.pipeline.source_state import SourceState
from reconciler.planning.blame import Blames
from reconciler.planning.plan import Plan
from reconciler.source.file_reader import Read


class PlannedRevision(msgspec.Struct, frozen=True):
    """A revision read, checked and planned, with nothing changed yet. ``plan`` is None if errors refuse it.

    ``read`` returns the bytes of a file by its path in findings; ``blames`` has the commits that caused the changes, if
    requested. ``state`` is the source's state until the plan is executed.
    """

    loaded: LoadedRevision
    findings: list[Finding]
    plan: Plan | None
    read: Read
    state: SourceState
    blames: Blames | None = None

    @property
    def revision(self) -> Revision:
        """The revision that was read."""
        return self.loaded.revision

    def without_resources(self) -> PlannedRevision:
        """The same without the change set, so that it no longer says what the revision changes.

        The steps of the plan have what the engines need.
        """
        return msgspec.structs.replace(self, loaded=msgspec.structs.replace(self.loaded, change_set=ChangeSet()))

    def refused_files(self) -> frozenset[str]:
        """All files to skip if the plan refuses changes in some; empty if skipping more files does not help."""
        bad = {finding.path for finding in self.findings if finding.severity is Severity.ERROR}
        # Skipping a file helps only if the revision changes it.
        changed = {resource.path for resource in self.loaded.change_set.added.values()}
        skipped = self.loaded.skipped
        return skipped | bad if (bad - skipped) & changed else frozenset()
