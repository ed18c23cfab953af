"""Revision in; the difference it makes and every finding in it out. Writes nothing but the document cache."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

import reconciler
from reconciler import __version__
from reconciler.decode.cache import Blobs, Cache
from reconciler.decode.decode import decode_all
from reconciler.documents.schema.loader import shipped
from reconciler.manifests.assembly import assemble
from reconciler.manifests.change_set import ChangeSet
from reconciler.manifests.decoder import Decoded
from reconciler.manifests.normalize import ManifestContext
from reconciler.manifests.reference_check import check
from reconciler.model.finding import Finding, Severity
from reconciler.model.resource import Resource
from reconciler.model.revision import FileChange, Revision
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.pipeline.host_secrets import with_host_secret_files
from reconciler.records.store import Records
from reconciler.records.tables.desired import Entry
from reconciler.records.tables.sources import SourceRow
from reconciler.source.repository import Repository

PARTIAL = "partial"
"""Selection of a revision that was taken without its invalid files: the next one is compared with everything."""


class LoadedRevision(msgspec.Struct, frozen=True):
    """A revision held against the last good one. ``skipped`` are files left as they were (``onInvalid: skip``)."""

    revision: Revision
    selection: str
    change_set: ChangeSet
    findings: list[Finding]
    skipped: frozenset[str] = frozenset()

    @property
    def refused(self) -> bool:
        """Whether an error keeps the revision from being applied."""
        return not self.skipped and any(finding.severity is Severity.ERROR for finding in self.findings)


class Loaded(NamedTuple):
    """A revision with the desired state as it would be after it."""

    revision: LoadedRevision
    view: DesiredStateView


@contextmanager
def gc_paused() -> Iterator[None]:
    """Without the garbage collector, which would look through every manifest again and again and find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@cache
def _build() -> str:
    """Names this build of all that decodes: another schema or rule may find other faults in the same bytes."""
    package = Path(reconciler.__file__).parent
    folders = [package / name for name in ("documents", "manifests", "model", "sops")]
    found = (path for folder in (*folders, shipped("schemas")) for path in folder.rglob("*"))
    files = sorted(path for path in found if path.suffix in (".py", ".json"))
    seen = [(path.name, stat.st_size, stat.st_mtime_ns) for path in files for stat in (path.stat(),)]
    return blake2b(repr(seen).encode(), digest_size=8).hexdigest()


def decoder_fingerprint(dialect: ManifestContext) -> str:
    """Names everything that a decoded document depends on besides its bytes; what has to be opened is never kept."""
    text = f"{__version__} {_build()} {dialect.org} {dialect.scheme} {dialect.secrets}"
    return blake2b(text.encode() + dialect.secret_key, digest_size=16).hexdigest()


class Loader:
    """Loads revisions of one source over what the records know of it."""

    def __init__(self, repository: Repository, view: DesiredStateView, *, skip_invalid: bool, keep_cache: bool) -> None:
        self.repository = repository
        self.view = view
        self.records: Records = view.index.records
        self.source = view.index.source
        self.decoder = view.bodies.decoder
        self.skip_invalid = skip_invalid
        put = self.records.documents.put_many if keep_cache else lambda _: None
        self.cache = Cache(self.records.documents.get_many, put)

    def load(self, revision: Revision, *, whole: bool = False, without: frozenset[str] = frozenset()) -> Loaded:
        """The difference between ``revision`` and the last good one, with every finding of it in place order.

        ``whole`` looks at every file again, so that warnings in unchanged ones are found too. Files ``without`` which
        to go on stay as they were, as those with errors do where these are skipped.
        """
        selection = f"{self.repository.selection(revision.tree)} {decoder_fingerprint(self.decoder.dialect)}"
        row = self.records.sources.get(self.source)
        whole = whole or row is None or row.selection != selection or not self.repository.holds(row.tree)
        comparison = self.repository.compare("" if whole or row is None else row.tree, revision.tree)
        changes = (
            self._against_index(comparison.changes) if whole else with_host_secret_files(self.view, comparison.changes)
        )
        view, findings = self._assembled(changes)
        findings = sorted({*comparison.findings, *findings})
        bad = {finding.path for finding in findings if finding.severity is Severity.ERROR} | without
        skipped: set[str] = set()
        while self.skip_invalid and bad - skipped:
            skipped |= bad
            sound = [change for change in changes if change.path not in skipped]
            view, more = self._assembled(sound, partial=True)
            findings = sorted({*findings, *more})
            bad = {finding.path for finding in more if finding.severity is Severity.ERROR}
        kind = PARTIAL if skipped else selection
        return Loaded(LoadedRevision(revision, kind, view.index.changes, findings, frozenset(skipped)), view)

    def _assembled(
        self, changes: Sequence[FileChange], *, partial: bool = False
    ) -> tuple[DesiredStateView, list[Finding]]:
        """The desired state after ``changes`` and what is wrong with it.

        A ``partial`` list of changes takes nothing away: what is missing in it may be in the files that it lacks.
        """
        delta = assemble(self.source, changes, self._decoded, self.records.desired)
        if partial:
            kept = {key: known for key, known in delta.previous.items() if key in delta.added}
            delta = msgspec.structs.replace(delta, previous=kept)
        view = self.view.with_changes(delta)
        return view, [*delta.findings, *check(delta, view)]

    def _decoded(self, wanted: Sequence[FileChange]) -> Iterator[tuple[FileChange, Decoded]]:
        decoder = self.decoder
        # Closed here where a consumer raises: nothing is to be written to the cache any more when the snapshot ends.
        with closing(decode_all(wanted, decoder.blobs, self.cache, decoder.dialect)) as every:
            for change, decoded in every:
                yield change, decoder.with_host_secrets(decoded, change.after)

    def _against_index(self, files: Sequence[FileChange]) -> list[FileChange]:
        """Every file of the tree and every file that the index knows, as one list of changes."""
        known = dict.fromkeys(self.records.desired.paths_below(self.source, ""), "known")
        changes = [FileChange(file.path, known.pop(file.path, ""), file.after) for file in files]
        return sorted([*changes, *(FileChange(path, before, "") for path, before in known.items())])


def index_revision(records: Records, loaded: LoadedRevision, source: str) -> None:
    """Make ``loaded`` the last good revision: the index, the seals of its secrets and the row of its source.

    What another source applied and asks for no more becomes this source's.
    """
    revision = loaded.revision
    row = SourceRow(source, revision.ref, revision.commit, revision.tree, loaded.selection, revision.author,
                    revision.subject, revision.time)  # fmt: skip
    if not loaded.change_set.added and not loaded.change_set.previous and row == records.sources.get(source):
        return
    with records.transaction():
        records.desired.replace(
            source, loaded.change_set.removed(), (_entry(source, r) for r in _changed(loaded.change_set))
        )
        # Steps bring the status of changed resources along; one that only moved to another file has none.
        records.status_queue.add_many(source, _moved(loaded.change_set))
        for key in loaded.change_set.removed():
            # What was never applied goes without a step, which would tell of it.
            if not records.applied.exists(key):
                records.status_queue.add_many(source, [key])
                records.conditions.forget(key)
        for key, owner in records.applied.adopt(source, _new(loaded.change_set)):
            records.status_queue.add_many(source, [key])
            records.status_queue.add_many(owner, [key])
        for resource in loaded.change_set.added.values():
            if resource.seal and not resource.fleeting:
                records.secret_data.put(resource.key, resource.digest, resource.seal)
        records.sources.put(row)


def _changed(delta: ChangeSet) -> list[Resource]:
    """Resources whose row in the index has to be written; after a reload of everything, that may be none."""
    return [resource for key, resource in delta.added.items() if _row(delta.previous.get(key)) != _row(resource)]


def _new(delta: ChangeSet) -> list[str]:
    return [key for key in delta.added if key not in delta.previous]


def _moved(delta: ChangeSet) -> list[str]:
    pairs = ((key, delta.previous.get(key), resource) for key, resource in delta.added.items())
    return [key for key, known, now in pairs if known and known.digest == now.digest and known.path != now.path]


def _row(known: object) -> tuple[object, ...]:
    return tuple(getattr(known, name, None) for name in ("digest", "path", "line", "blob", "position"))


def _entry(source: str, resource: Resource) -> Entry:
    return Entry(str(resource.key), source, resource.path, resource.position, resource.line, resource.blob,
                 resource.digest, resource.references)  # fmt: skip


def blobs_of(repository: Repository) -> Blobs:
    """The blobs of a repository."""
    return Blobs(repository.size, repository.read)
