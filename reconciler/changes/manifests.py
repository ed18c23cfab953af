"""One manifest as its source has it, and changes of it by an operator of this host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from reconciler.changes.commits import SourceWriter
from reconciler.changes.edits import find_document
from reconciler.changes.requests import ChangeRequest, Document, DocumentText, ManifestPatch, ResourceEdit
from reconciler.changes.text import DocumentBody
from reconciler.changes.write import ChangeWriter, CheckedChange
from reconciler.clock import Clock
from reconciler.documents.reader import parse_documents
from reconciler.errors import NotFoundError, RefusedError
from reconciler.model.key import Key, Kind
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.queries.existence import check_present, find_source
from reconciler.records.store import Records
from reconciler.settings import Settings


class ChangeOptions(NamedTuple):
    """How a change is made: the ``message`` of its commit, on a branch for a ``review``, or only tried if ``dry``."""

    message: str = ""
    review: bool = False
    dry: bool = False


class ManifestEditor:
    """Changes the manifest of ``key`` in the file ``path``, for the operator ``by``.

    A change is None if it changes nothing. It raises RevisionRefused if what results has errors, EditConflictError if
    others changed the same meanwhile, another RefusedError, or SourceError.
    """

    def __init__(self, writer: SourceWriter, clock: Clock, key: Key, path: str, by: str) -> None:
        self.key = key
        self.path = path
        self._writer = writer
        self._clock = clock
        self._by = by

    @property
    def writer(self) -> SourceWriter:
        """What writes to the source that declares the manifest."""
        return self._writer

    @property
    def pipeline(self) -> SourcePipeline:
        """The pipeline of the source that declares the manifest."""
        return self._writer.pipeline

    def read(self) -> DocumentBody:
        """The text of the manifest in the newest commit. Raises RefusedError if nobody can edit it, SourceError."""
        text = self._writer.read(self._writer.tip(), self.path)
        body = None if text is None else find_document(text, self.key)
        if body is None:
            raise RefusedError(f"{self.path} no longer declares {self.key}: it was moved or deleted")
        return body

    def rewrite(self, before: str, after: str, options: ChangeOptions) -> CheckedChange | None:
        """Make ``after`` the text of the manifest, which had the text ``before``."""
        if after == before:
            return None
        desired = parse_manifest(self.key, after)
        was = self._meaning(self._writer.known_tip()) or {}
        return self.write(ResourceEdit(self.key, self.path, was, desired, text=DocumentText(before, after)), options)

    def patch(self, patch_of: Callable[[Document], Document], options: ChangeOptions) -> CheckedChange | None:
        """Merge into the manifest the patch that ``patch_of`` makes, from the manifest in normal form."""
        key, was = self.key, self._meaning(self._writer.tip())
        if was is None:
            raise RefusedError(f"{key} cannot be read in {self.path}: correct it with `reconciler edit {key}`")
        patch = ManifestPatch(key, patch_of(was), partial(_check_identity, key))
        edit = ResourceEdit(key, self.path, was, patch.apply(was), patch.patches_data, patch.apply)
        return self.write(edit, options)

    def _meaning(self, commit: str) -> dict[str, Any] | None:
        """The manifest in normal form, as ``commit`` has it; None if it cannot be read."""
        return self._writer.meaning(self._writer.read(commit, self.path), self.key)

    def write(self, edit: ResourceEdit, options: ChangeOptions) -> CheckedChange | None:
        """Make the change ``edit`` of the manifest."""
        self._writer.renew()
        subject = options.message or f"Update {self.key}"
        request = ChangeRequest(uuid4().hex, f"{Kind.USER}/{self._by}", subject, (edit,), dry=options.dry)
        settings = self._writer.pipeline.settings
        [outcome] = ChangeWriter(settings, self._writer, self._clock, is_review=options.review).write([request])
        if isinstance(outcome, Exception):
            raise outcome
        assert outcome is None or isinstance(outcome, CheckedChange)
        return outcome


@contextmanager
def open_manifest(settings: Settings, clock: Clock, key: Key, by: str) -> Iterator[ManifestEditor]:
    """Open the manifest of ``key`` for the operator ``by``.

    Raises NotFoundError if no source declares it, RefusedError if nothing can be written there, RecordsError and
    SourceError.
    """
    with closing(Records.open_existing(settings.state, clock)) as records:
        entry = records.desired.get(str(key))
        if entry is None:
            check_present(records, key)
            raise NotFoundError(f"no source declares {key} any more: it is to be deleted, or stays without a manifest")
        writer = SourceWriter(settings, find_source(settings, entry.source), records, clock)
        yield ManifestEditor(writer, clock, key, entry.path, by)


def parse_manifest(key: Key, text: str) -> Document:
    """The manifest of ``key`` in ``text``, {} for a text with faults, which the check of the tree finds too.

    Raises RefusedError if it declares anything else.
    """
    reading = parse_documents(text.encode())
    if reading.faults:
        return {}
    if len(reading.documents) != 1 or not isinstance(reading.documents[0].value, dict):
        raise RefusedError(f"write one manifest, that of {key}: others go into files of their own")
    return _check_identity(key, reading.documents[0].value)


def _check_identity(key: Key, body: Mapping[str, Any]) -> Document:
    """``body``, if it is a manifest of ``key``. Raises RefusedError."""
    for name, value in (("kind", str(key.kind)), ("name", key.name), ("gvc", key.gvc)):
        if body.get(name, value if name == "gvc" else None) != value:
            raise RefusedError(f"{key} keeps its {name}, which is {value!r} and not {body.get(name)!r}")
    return body
