"""Loads a revision: returns its change set and every finding. Writes only the document cache."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

import msgspec

from reconciler.decode.cache import Cache
from reconciler.decode.decode import decode_all
from reconciler.decode.fingerprint import decoder_fingerprint
from reconciler.manifests.change_set import ChangeSet
from reconciler.manifests.decoder import Decoded
from reconciler.model.finding import Finding, Severity
from reconciler.model.revision import FileChange, Revision
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.pipeline.host_secrets import with_host_secret_files
from reconciler.records.store import Records
from reconciler.source.file_filter import REPOSITORY_FILE
from reconciler.source.repository import Repository
from reconciler.source.repository_settings import MOST_BYTES, ReadSettings, read_repository_settings
from reconciler.tracing import record_span

PARTIAL = "partial"
"""The selection of a revision accepted without its invalid files: the next one is loaded completely."""


class LoadedRevision(msgspec.Struct, frozen=True):
    """A revision compared with the last good one. ``skipped`` files stay as they were (``onInvalid: skip``)."""

    revision: Revision
    selection: str
    change_set: ChangeSet
    findings: list[Finding]
    skipped: frozenset[str] = frozenset()

    @property
    def is_refused(self) -> bool:
        """Whether an error blocks the revision."""
        return not self.skipped and any(finding.severity is Severity.ERROR for finding in self.findings)


class Loaded(NamedTuple):
    """A revision with the desired state after it."""

    revision: LoadedRevision
    view: DesiredStateView


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector, which would scan every manifest repeatedly and find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class LoadOptions(msgspec.Struct, frozen=True):
    """How a revision is loaded.

    ``skip_invalid``: files with errors stay as they were. ``keep_cache``: decoded documents are cached for later runs.
    ``check_host``: secrets whose values changed on this host count as changed, at a cost for each such secret.
    """

    skip_invalid: bool
    keep_cache: bool
    check_host: bool


class Loader:
    """Loads revisions of one source against its records."""

    def __init__(self, repository: Repository, view: DesiredStateView, options: LoadOptions) -> None:
        self.repository = repository
        self.view = view
        self.records: Records = view.index.records
        self.source = view.index.source
        self.decoder = view.bodies.decoder
        self._options = options
        self._gvc = repository.settings.gvc
        put = self.records.documents.put_many if options.keep_cache else lambda _: None
        self.cache = Cache(self.records.documents.get_many, put)

    @record_span("load")
    def load(self, revision: Revision, *, whole: bool = False, without: frozenset[str] = frozenset()) -> Loaded:
        """Compare ``revision`` with the last good one; the findings are in order of place.

        ``whole`` checks every file again, so that warnings in unchanged ones are found too. The files ``without`` stay
        as they were, as do files with errors if the settings skip them.
        """
        selection = f"{self.repository.selection(revision)} {decoder_fingerprint(self.decoder.dialect)}"
        row = self.records.sources.get(self.source)
        # Other settings or another decoder may see other things in unchanged files, so all are read again.
        whole = whole or row is None or row.selection != selection or not self.repository.holds(row.tree)
        comparison = self.repository.compare("" if whole or row is None else row.tree, revision.tree)
        changes: Sequence[FileChange] = comparison.changes
        declared = self._read_settings(revision)
        if whole:
            changes = self._against_index(changes)
        elif self._options.check_host:
            changes = with_host_secret_files(self.view, changes)
        # A plan without changes needs none of the modules that assemble and check, which take a tenth of its time.
        view, findings = self._assemble(changes) if changes else (self.view, [])
        # As of every file, they are findings of a run that reads it; a change of this one reads all.
        own = [
            Finding.at(REPOSITORY_FILE, fault) for fault in declared.faults if whole or fault.severity is Severity.ERROR
        ]
        findings = sorted({*comparison.findings, *own, *findings})
        bad = {finding.path for finding in findings if finding.severity is Severity.ERROR} | without
        skipped: set[str] = set()
        while self._options.skip_invalid and bad - skipped:
            # Links into a skipped file may fail in sound ones, which are then skipped too.
            skipped |= bad
            sound = [change for change in changes if change.path not in skipped]
            view, more = self._assemble(sound, partial=True)
            findings = sorted({*findings, *more})
            bad = {finding.path for finding in more if finding.severity is Severity.ERROR}
        selection = PARTIAL if skipped else selection
        return Loaded(LoadedRevision(revision, selection, view.index.changes, findings, frozenset(skipped)), view)

    def _read_settings(self, revision: Revision) -> ReadSettings:
        """What the repository says of its manifests, which then counts for this load. Raises SourceError."""
        declared = read_revision_settings(self.repository, revision, self.decoder.dialect.org, self._gvc)
        self._gvc = self._gvc or declared.settings.gvc
        if declared.settings.external:
            self.view = self.view.with_claimed(declared.settings.external)
        return declared

    def _assemble(
        self, changes: Sequence[FileChange], *, partial: bool = False
    ) -> tuple[DesiredStateView, list[Finding]]:
        """The desired state after ``changes``, and its findings.

        A ``partial`` list of changes removes nothing: a missing resource may be in a skipped file.
        """
        from reconciler.manifests.assembly import assemble_changes
        from reconciler.manifests.reference_check import check_references

        delta = assemble_changes(self.source, changes, self._decode, self.records.desired, self._gvc)
        if partial:
            previous = {key: resource for key, resource in delta.previous.items() if key in delta.added}
            delta = msgspec.structs.replace(delta, previous=previous)
        view = self.view.with_changes(delta)
        return view, [*delta.findings, *check_references(delta, view)]

    def _decode(self, changes: Sequence[FileChange]) -> Iterator[tuple[FileChange, Decoded]]:
        decoder = self.decoder
        # Close it even if a consumer raises: nothing may be written to the cache after the snapshot ends.
        with closing(decode_all(changes, decoder.blobs, self.cache, decoder.dialect)) as every:
            for change, decoded in every:
                yield change, decoder.with_host_secrets(decoded, change.after)

    def _against_index(self, files: Sequence[FileChange]) -> list[FileChange]:
        """Every file of the tree and every file in the index, as one list of changes."""
        # Which blob was indexed does not matter here: any text but "" marks a file that was there before.
        indexed = dict.fromkeys(self.records.desired.paths_below(self.source, ""), "known")
        changes = [FileChange(file.path, indexed.pop(file.path, ""), file.after) for file in files]
        return sorted([*changes, *(FileChange(path, before, "") for path, before in indexed.items())])


def read_revision_settings(repository: Repository, revision: Revision, org: str = "", gvc: str = "") -> ReadSettings:
    """The settings that ``revision`` has itself, see ``read_repository_settings``. Raises SourceError."""
    blob = repository.find_settings_file(revision)
    if not blob:
        return ReadSettings()
    # A file that is too large is refused, whatever is in it.
    is_large = repository.size(blob) > MOST_BYTES
    return read_repository_settings(b" " * (MOST_BYTES + 1) if is_large else repository.read(blob), org, gvc)
