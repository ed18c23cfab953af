"""The versions of one resource in Git, and who wrote which of its fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from reconciler.documents.locator import locate_document
from reconciler.documents.reader import parse_documents
from reconciler.errors import NotFoundError
from reconciler.manifests.defaults import drop_defaults
from reconciler.model.key import Key
from reconciler.model.resource import Resource
from reconciler.model.revision import is_json
from reconciler.planning.blame import changed_paths, pointer_of
from reconciler.planning.diff import diff_bodies, list_fields
from reconciler.planning.field_paths import steps_of
from reconciler.planning.plan import StepId
from reconciler.planning.versions import BlamedField, ResourceHistory, ResourceVersion
from reconciler.queries.committed import CommittedFiles
from reconciler.queries.existence import check_key, find_source
from reconciler.records.store import Records
from reconciler.settings import Settings
from reconciler.source.file_history import HISTORY_END, FileHistories
from reconciler.source.repository import Repository

MOST_COMMITS = 2_000
"""The commits that are searched by default."""
MOST_SECONDS = 1.0
"""The longest search in seconds."""
MOST_VERSIONS = 50
"""The most versions that are listed."""
_IDENTITY = frozenset({"kind", "name", "gvc"})


def read_versions(
    settings: Settings, records: Records, key: Key, commits: int = MOST_COMMITS, most: int = MOST_VERSIONS
) -> ResourceHistory:
    """The versions of ``key``, at most ``most``, and the blame of its fields, in the last ``commits`` of its source.

    Raises NotFoundError if no commit that was applied declares it, and SourceError.
    """
    entry = records.desired.get(key)
    if entry is None:
        check_key(records, key)
        raise NotFoundError(f"{key} is not in Git any more, so it has no versions there; see: reconciler events {key}")
    row = records.sources.get(entry.source)
    if row is None:
        raise NotFoundError(f"{entry.source} has applied no commit yet, so {key} has no versions")
    files = CommittedFiles(settings, find_source(settings, entry.source), records)
    newest = files.find(entry.blob, key)
    search = _VersionSearch(files, key, commits)
    versions = list(search.list_versions(entry.path, row.commit, newest, most))
    fields = _locate_fields(files.repository, newest, search.blames) if newest is not None else []
    return ResourceHistory(key, entry.source, entry.path, versions, fields, search.visited, search.is_whole)


class _VersionSearch:
    """A walk along the commits of one file, within limits."""

    def __init__(self, files: CommittedFiles, key: Key, commits: int) -> None:
        self._files = files
        self._key = key
        self._most = commits
        clock = files.pipeline.clock
        self._monotonic, self._until = clock.monotonic, clock.monotonic() + MOST_SECONDS
        self.visited = 0
        self.is_whole = True
        self.blames: dict[str, ResourceVersion | None] = {}
        """Each field that Git declares now, and the version that wrote it."""

    def list_versions(self, path: str, tip: str, newest: Resource | None, most: int) -> Iterator[ResourceVersion]:
        """The versions from ``tip`` back, at most ``most``; the walk goes on until each field is found."""
        open_paths = [field for field, _ in _list_own_fields(newest)] if newest is not None else []
        self.blames = dict.fromkeys(open_paths)
        shown = 0
        for touch in FileHistories(self._files.repository, self._go_on).of(path, tip, ""):
            if touch == HISTORY_END:
                self.is_whole = False
                return
            before, after = (self._files.find(blob, self._key) for blob in (touch.before, touch.after))
            bodies = [one.body if one is not None else None for one in (before, after)]
            if bodies[0] == bodies[1]:
                continue
            changed = changed_paths(StepId(self._key, ""), bodies[0], bodies[1], open_paths)
            fields = _list_changes(self._key, bodies[0], bodies[1])
            version = ResourceVersion(
                touch.commit, touch.author, touch.subject, float(touch.at), path, fields, before is None, after is None
            )
            self.blames |= dict.fromkeys(changed, version)
            open_paths = [field for field in open_paths if field not in changed]
            shown += 1
            if shown <= most:
                yield version
            elif not open_paths:
                self.is_whole = False
                return

    def _go_on(self) -> bool:
        if self.visited >= self._most or self._monotonic() > self._until:
            return False
        self.visited += 1
        return True


def _list_changes(key: Key, before: bytes | None, after: bytes | None) -> tuple[str, ...]:
    """The fields in which two bodies differ; none where one is missing."""
    if before is None or after is None:
        return ()
    return tuple(change.path for change in diff_bodies(key.kind, before, after, ""))


def _list_own_fields(resource: Resource) -> Iterator[tuple[str, Any]]:
    """The fields that differ from their defaults, without those that name the resource."""
    body = drop_defaults(resource.key.kind, msgspec.json.decode(resource.body))
    own = {name: value for name, value in body.items() if name not in _IDENTITY}
    return list_fields(resource.key.kind, own)


def _locate_fields(
    repository: Repository, resource: Resource, blames: dict[str, ResourceVersion | None]
) -> list[BlamedField]:
    """The fields of ``resource`` that its file has, each with its line; the file is parsed once for all of them."""
    raw, as_json = repository.read(resource.blob), is_json(resource.blob)
    documents = parse_documents(raw, is_json=as_json).documents
    written = next((document.value for document in documents if document.index == resource.position), None)
    places = locate_document(raw, resource.position, is_json=as_json)
    fields = []
    for path, value in _list_own_fields(resource):
        pointer = pointer_of(path, written)
        if len(pointer) == sum(1 for _ in steps_of(path)):
            fields.append(BlamedField(path, value, places.key(pointer)[0], blames[path]))
    return sorted(fields, key=lambda field: field.line)
