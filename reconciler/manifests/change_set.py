"""The difference that a revision makes to what is desired, and what has to be known of the last good one for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from reconciler.documents.ignore_comments import UnusedComment
from reconciler.model.finding import Finding
from reconciler.model.resource import LookupRequest, Reference, Resource


class IndexedResource(Protocol):
    """A resource of the last good revision, as the index tells of it."""

    @property
    def key(self) -> str:
        """The key as text."""

    @property
    def source(self) -> str:
        """Name of the source that asks for it."""

    @property
    def path(self) -> str:
        """The file that says it."""

    @property
    def line(self) -> int:
        """Where in the file its document begins, from 1."""

    @property
    def blob(self) -> str:
        """Id of the file's content."""

    @property
    def digest(self) -> str:
        """Digest of its body."""

    @property
    def references(self) -> Sequence[Reference]:
        """What it refers to."""


class Index(Protocol):
    """What is known of the last good revision of every source."""

    def empty(self) -> bool:
        """Whether nothing is known of any source."""

    def get(self, key: str) -> IndexedResource | None:
        """What is known of ``key``, of whatever source."""

    def at_paths(self, source: str, paths: Iterable[str]) -> Sequence[IndexedResource]:
        """What the files at ``paths`` ask for."""

    def gvcs_in(self, source: str, directory: str) -> Sequence[str]:
        """Names of the GVCs declared directly in ``directory``."""

    def paths_below(self, source: str, directory: str) -> Sequence[str]:
        """Files in ``directory`` or deeper that ask for anything."""


class PartialDocument(NamedTuple):
    """A document with faults, of which only the links and what the rules ask could be read."""

    key: str
    path: str
    blob: str
    position: int
    references: tuple[Reference, ...]
    questions: tuple[LookupRequest, ...]


class ChangeSet(msgspec.Struct):
    """The difference that a revision makes: resources that changed files hold now, and what they held before.

    ``unresolved`` are keys that faulty documents mean to have: links to them are not faults of their own. With each are
    the keys that the document links to, None where these are not known.
    ``unused_comments`` silence nothing in their own file, and may still silence what is found among neighbours.
    ``partial_documents`` are those documents, with their links.
    """

    added: dict[str, Resource] = {}
    previous: dict[str, IndexedResource] = {}
    unresolved: dict[str, tuple[str, ...] | None] = {}
    unused_comments: list[tuple[str, UnusedComment]] = []
    partial_documents: list[PartialDocument] = []
    findings: list[Finding] = []
    documents: int = 0

    def removed(self) -> list[str]:
        """Keys that the changed files held and nothing holds now."""
        return [key for key in self.previous if key not in self.added]


def keys_touched(delta: ChangeSet) -> Mapping[str, Resource | None]:
    """Every key whose resource is not what it was: its resource now, None where it is gone."""
    touched: dict[str, Resource | None] = dict.fromkeys(delta.removed())
    for key, resource in delta.added.items():
        known = delta.previous.get(key)
        if known is None or known.digest != resource.digest:
            touched[key] = resource
    return touched
