"""The difference between a revision and the last good one, and the index that it is computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from reconciler.documents.ignore_comments import UnusedComment
from reconciler.model.finding import Finding
from reconciler.model.resource import LookupRequest, Reference, Resource


class IndexedResource(Protocol):
    """A resource of the last good revision, from the index."""

    @property
    def key(self) -> str:
        """The key as text."""

    @property
    def source(self) -> str:
        """Name of the source that declares it."""

    @property
    def path(self) -> str:
        """The file that declares it."""

    @property
    def line(self) -> int:
        """The first line of its document, from 1."""

    @property
    def blob(self) -> str:
        """Id of the file's content."""

    @property
    def digest(self) -> str:
        """Digest of its body."""

    @property
    def references(self) -> Sequence[Reference]:
        """Its references."""


class Index(Protocol):
    """The index of the last good revision of every source."""

    def empty(self) -> bool:
        """Whether the index is empty."""

    def get(self, key: str) -> IndexedResource | None:
        """The resource ``key`` of any source."""

    def at_paths(self, source: str, paths: Iterable[str]) -> Sequence[IndexedResource]:
        """The resources that the files at ``paths`` declare."""

    def gvcs_in(self, source: str, directory: str) -> Sequence[str]:
        """Names of the GVCs declared directly in ``directory``."""

    def paths_below(self, source: str, directory: str) -> Sequence[str]:
        """Files at or below ``directory`` that declare resources."""


class PartialDocument(msgspec.Struct, frozen=True):
    """A document with faults: only its links and the questions of rules are known."""

    key: str
    path: str
    blob: str
    position: int
    references: tuple[Reference, ...]
    questions: tuple[LookupRequest, ...]


class ChangeSet(msgspec.Struct):
    """The change by a revision: the resources of changed files, now and before.

    ``unresolved`` has the probable keys of faulty documents, so that links to them are not faults too, and with each
    the keys that the document links to, None if these are unknown.
    ``unused_comments`` silence nothing in their own file, and may still silence findings between resources.
    ``partial_documents`` are the faulty documents, with their links.
    """

    added: dict[str, Resource] = {}
    previous: dict[str, IndexedResource] = {}
    unresolved: dict[str, tuple[str, ...] | None] = {}
    unused_comments: list[tuple[str, UnusedComment]] = []
    partial_documents: list[PartialDocument] = []
    findings: list[Finding] = []
    documents: int = 0

    def is_empty(self) -> bool:
        """Whether no changed file declares or declared a resource."""
        return not (self.added or self.previous)

    def list_removed(self) -> list[str]:
        """Keys that the changed files no longer declare, nor any other file."""
        return [key for key in self.previous if key not in self.added]


def keys_touched(delta: ChangeSet) -> Mapping[str, Resource | None]:
    """Every changed key with its new resource, None if it was removed."""
    touched: dict[str, Resource | None] = dict.fromkeys(delta.list_removed())
    for key, resource in delta.added.items():
        indexed_resource = delta.previous.get(key)
        if indexed_resource is None or indexed_resource.digest != resource.digest:
            touched[key] = resource
    return touched
