"""Resources as files of a source declared them in any commit, read from Git alone."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from reconciler.clock import SystemClock
from reconciler.errors import SourceError
from reconciler.manifests.assembly import directory_of
from reconciler.manifests.gvc_resolution import resource_of
from reconciler.model.key import GVC_SCOPED, Key, Kind
from reconciler.model.resource import GVC_PLACEHOLDER, Manifest, Resource
from reconciler.model.revision import SUFFIXES, Revision, blob_name
from reconciler.pipeline.load import read_revision_settings
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.records.store import Records
from reconciler.settings import Settings, SourceSettings

MOST_BYTES = 1 << 20
"""The largest size in bytes of a file that is read."""
MOST_FILES_OF_FOLDER = 200
"""The most files of a folder in which the manifest of a GVC is searched."""
_CACHED_FILES = 512


class CommittedFiles:
    """Files of one source by their blobs; each is decoded once. Secrets that need this host stay as they are in Git."""

    def __init__(self, settings: Settings, source: SourceSettings, records: Records) -> None:
        """Raises SourceError if the repository cannot be read."""
        self.pipeline = _open_pipeline(settings, source, records)
        self.repository = self.pipeline.source.repository
        self.view = self.pipeline.view()
        self.manifests = lru_cache(_CACHED_FILES)(self._decode)

    def find(self, blob: str, key: Key) -> Resource | None:
        """The resource ``key`` in a file ("": none); None if the file does not have it, or cannot be read."""
        for manifest in self.manifests(blob) or () if blob else ():
            if (manifest.kind, manifest.name) == (key.kind, key.name) and manifest.gvc in (key.gvc, GVC_PLACEHOLDER):
                return resource_of(manifest, key.gvc, "", blob)
        return None

    def _decode(self, blob: str) -> tuple[Manifest, ...] | None:
        """The manifests of a file; None if it has a fault."""
        try:
            if self.repository.size(blob) > MOST_BYTES:
                return None
            decoded = self.view.bodies.decoder.decode(blob)
        except SourceError:
            return None
        return None if decoded.broken else decoded.manifests


def _open_pipeline(settings: Settings, source: SourceSettings, records: Records) -> SourcePipeline:
    pipeline = SourcePipeline(settings, source, records, SystemClock())
    # Secrets that no identity decrypts, and those stored on the host, are compared as they are in Git.
    ring = msgspec.structs.replace(pipeline.dialect.keyring, required=False)
    pipeline.dialect, pipeline.host = msgspec.structs.replace(pipeline.dialect, keyring=ring), None
    return pipeline


class CommittedState:
    """What files declare in one revision: finds the GVC of each manifest that names none."""

    def __init__(self, files: CommittedFiles, revision: Revision) -> None:
        self._files = files
        self._revision = revision
        declared = read_revision_settings(files.repository, revision, files.view.bodies.org)
        self._default_gvc = files.repository.settings.gvc or declared.settings.gvc
        self._gvcs_of = lru_cache(_CACHED_FILES)(self._find_gvcs)

    def list_resources(self, path: str, blob: str) -> list[Resource] | None:
        """The resources of the file ``path``; None if it has a fault, [] without a ``blob``."""
        manifests = self._files.manifests(blob) if blob else ()
        if manifests is None:
            return None
        resources = []
        for manifest in manifests:
            gvc = manifest.gvc
            if manifest.kind in GVC_SCOPED and gvc == GVC_PLACEHOLDER:
                gvc = self.find_gvc(path, manifests)
            if gvc != GVC_PLACEHOLDER:
                resources.append(resource_of(manifest, gvc, path, blob))
        return resources

    def find_gvc(self, path: str, manifests: Iterable[Manifest] = ()) -> str:
        """The GVC that the file ``path`` or its directory decides; GVC_PLACEHOLDER if none or several could."""
        own = [manifest.name for manifest in manifests if manifest.kind is Kind.GVC]
        if len(own) == 1:
            return own[0]
        directory = directory_of(path)
        names = self._gvcs_of(directory)
        while not names and directory:
            directory = directory_of(directory)
            names = self._gvcs_of(directory)
        if self._default_gvc and (not names or self._default_gvc in names):
            return self._default_gvc
        return names[0] if len(names) == 1 else GVC_PLACEHOLDER

    def _find_gvcs(self, directory: str) -> tuple[str, ...]:
        """The GVCs whose manifests are in ``directory`` itself: by the index, if that is still right, else by all."""
        files = self._files
        entries = files.repository.folder(self._revision.tree, directory)
        blobs = {
            name.decode("utf-8", "replace"): entry.id.hex()
            for name, entry in entries.items()
            if name.decode("utf-8", "replace").endswith(SUFFIXES)
        }
        desired = files.pipeline.records.desired
        indexed = [desired.get(f"gvc/{name}") for name in desired.gvcs_in(files.pipeline.name, directory)]
        names = [
            entry.key.partition("/")[2]
            for entry in indexed
            if entry is not None
            and (blob := blobs.get(entry.path.rpartition("/")[2])) is not None
            and blob_name(entry.path, blob) == entry.blob
        ]
        if names and len(names) == len(indexed):
            return tuple(names)
        declared = (
            manifest.name
            for name, blob in list(blobs.items())[:MOST_FILES_OF_FOLDER]
            for manifest in files.manifests(blob_name(name, blob)) or ()
            if manifest.kind is Kind.GVC
        )
        return tuple(sorted(set(declared)))
