"""The desired state of one source after a change: an index, bodies, and positions in files."""

from __future__ import annotations

import msgspec

from reconciler.decode.cache import Blobs
from reconciler.documents.ignore_comments import IgnoreComments
from reconciler.documents.locator import Locator
from reconciler.manifests.change_set import ChangeSet
from reconciler.manifests.desired_state import ResourceLocation
from reconciler.model.finding import Pointer
from reconciler.model.revision import is_json
from reconciler.pipeline.desired_bodies import BlobDecoder, BodyCache, DecodedBodies
from reconciler.pipeline.desired_index import RecordsIndex
from reconciler.pipeline.externals import ExternalResources
from reconciler.records.store import Records

MAX_LOCATORS = 32
"""The most cached locators; a file with many errors is parsed once for all of them."""


class FilePositions:
    """Lines and columns of values, found by reading their file again; implements ``Positions``."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._locators: dict[str, Locator] = {}
        self._comments: dict[str, IgnoreComments] = {}

    def position(self, site: ResourceLocation, pointer: Pointer) -> tuple[int, int]:
        """Line and column of the value at ``pointer``, from 1."""
        locator = self._locators.get(site.blob)
        if locator is None:
            if len(self._locators) >= MAX_LOCATORS:
                self._locators.clear()
            locator = self._locators[site.blob] = self._blobs.locator(site.blob)
        return locator.of(site.position).value(pointer)

    def silenced_by(self, site: ResourceLocation, line: int, rule: str) -> int:
        """The line of the comment in the file that silences the warnings of ``rule`` on ``line``; 0 for none."""
        comments = self._comments.get(site.blob)
        if comments is None:
            comments = self._comments[site.blob] = self._comments_of(site.blob)
        return comments.silencing(line, rule)

    def _comments_of(self, blob: str) -> IgnoreComments:
        """The comments of a file; JSON has none."""
        return IgnoreComments(b"" if is_json(blob) else self._blobs.read(blob))


class DesiredStateView(msgspec.Struct, frozen=True):
    """The three parts for one change set; implements ``DesiredState``."""

    index: RecordsIndex
    bodies: DecodedBodies
    positions: FilePositions

    def with_claimed(self, keys: frozenset[str]) -> DesiredStateView:
        """Return the view in which the repository itself lists ``keys`` as external."""
        externals = msgspec.structs.replace(self.index.externals, claimed=keys)
        index = RecordsIndex(self.index.source, self.index.records, externals, self.index.changes)
        return DesiredStateView(index, DecodedBodies(index, self.bodies.decoder, self.bodies.cache), self.positions)

    def with_changes(self, changes: ChangeSet) -> DesiredStateView:
        """Return the view with ``changes`` instead of its own, over the current records."""
        index = RecordsIndex(self.index.source, self.index.records, self.index.externals, changes)
        return DesiredStateView(index, DecodedBodies(index, self.bodies.decoder, self.bodies.cache), self.positions)


def desired_view(
    source: str, records: Records, externals: ExternalResources, decoder: BlobDecoder, cache: BodyCache | None = None
) -> DesiredStateView:
    """The desired state of ``source`` at the last good revision, to which a change set can be applied."""
    index = RecordsIndex(source, records, externals)
    return DesiredStateView(index, DecodedBodies(index, decoder, cache), FilePositions(decoder.blobs))
