"""Bodies of desired resources: changed ones as read, unchanged ones decoded again on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from reconciler.decode.cache import Blobs, unpack_file
from reconciler.errors import SourceError
from reconciler.manifests.decoder import Decoded, decode_manifests
from reconciler.manifests.gvc_resolution import resource_of
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Severity
from reconciler.model.key import Kind
from reconciler.model.query_match import QueryBudget, Selector, make_selector
from reconciler.model.resource import Manifest, Resource
from reconciler.model.revision import is_json
from reconciler.pipeline.desired_index import RecordsIndex
from reconciler.pipeline.placement import GvcLocations
from reconciler.records.sql import stored_key
from reconciler.records.tables.desired import DesiredEntry
from reconciler.secrets.host_files import HostSecretDirectory
from reconciler.secrets.resolve import resolve_host_secrets

View = TypeVar("View")

BodyCache = dict[str, bytes]
"""Digest → body, without the values of secrets."""

MAX_BODIES = 512
"""The most bodies cached across runs: most changes are near earlier ones."""

MAX_TYPED = 4096
"""The most cached typed resources; most of the 100,000 of a first load are needed for their own rules only."""


class BlobDecoder(msgspec.Struct, frozen=True):
    """Decodes files of one source by their blob ids.

    ``host`` reads the files of this host that secrets name; without it such secrets stay unresolved.
    """

    blobs: Blobs
    dialect: ManifestContext
    host: HostSecretDirectory | None = None

    def decode(self, blob: str) -> Decoded:
        """Decode the manifests of a file. Raises SourceError."""
        return decode_manifests(self.blobs.read(blob), self.dialect, is_json=is_json(blob))

    def with_host_secrets(self, decoded: Decoded, blob: str) -> Decoded:
        """``decoded``, with the values of secrets that are files of this host."""
        if self.host is None:
            return decoded
        return resolve_host_secrets(decoded, self.host, self.dialect.secret_key, lambda: self.blobs.locator(blob))


class _DecodedFile(msgspec.Struct, frozen=True):
    """A file's manifests by position."""

    blob: str
    manifests: dict[int, Manifest]
    faulty: bool


class DecodedBodies:
    """Bodies of the resources of an index; satisfies ``DesiredBodies``. ``cache`` may serve many of them in turn."""

    def __init__(self, index: RecordsIndex, decoder: BlobDecoder, cache: BodyCache | None = None) -> None:
        self.index = index
        self.decoder = decoder
        self.cache: BodyCache = {} if cache is None else cache
        self.gvc_locations = GvcLocations(self.body, index.location_manifests, index.externals.locations, self.org)
        self._typed: dict[tuple[str, Any], Any] = {}
        # Members of a GVC are often in one file, and are asked for one by one.
        self._last_file: _DecodedFile | None = None

    @property
    def org(self) -> str:
        """The org of the resources."""
        return self.decoder.dialect.org

    def resource(self, key: str) -> Resource | None:
        """Return the desired resource ``key`` with its body; an unchanged one is decoded again from the cache or Git.

        None if this source does not declare it: each source applies its own resources. Raises SourceError if it is a
        secret that can no longer be decrypted or read.
        """
        entry = self.index.entry(key)
        if not isinstance(entry, DesiredEntry):
            return entry
        if entry.source != self.index.source:
            return None
        resource = self._reload(entry)
        if resource is None:
            raise SourceError(f"{key} can no longer be opened ({entry.path}:{entry.line}); see `reconciler validate`")
        return resource

    def body(self, key: str) -> dict[str, Any] | None:
        """``related_body``, as a mapping."""
        body = self.related_body(key)
        return None if body is None else msgspec.json.decode(body, type=dict[str, Any])

    def former_bodies(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The bodies of ``keys`` in the last good revision; without those that it lacks, or whose file Git has lost."""
        records, bodies = self.index.records, {}
        entries = {
            key: entry for key, entry in records.desired.get_many(keys).items() if entry.source == self.index.source
        }
        applied = records.applied.bodies({key: entry.digest for key, entry in entries.items()})
        for key, entry in entries.items():
            with suppress(SourceError):
                body = applied.get(key) or self._body_of(entry)
                if body is not None:
                    bodies[key] = body
        return bodies

    def related_body(self, key: str) -> bytes | None:
        """The body of ``key`` for references: as desired, or as recorded if retained or another source's."""
        entry = self.index.entry(key)
        if isinstance(entry, Resource):
            return entry.body
        ours = entry is not None and entry.source == self.index.source
        body = self._body_of(entry) if entry is not None and ours else None
        if body is not None:
            return body
        records = self.index.records.applied.get(key)
        if records and (ours or any(map(self.index.is_retained, records))):
            return records[0].body
        # Another source may have another repository: its file can be read only from the cache.
        if entry is not None and self.index.prefetched.find_packed(entry.blob):
            return self._body_of(entry)  # of another source, not applied yet
        return None

    def read_view(self, key: str, view: type[View]) -> View | None:
        """The resource ``key`` in normal form as ``view``; None if this source does not know its body."""
        if (key, view) not in self._typed:
            if len(self._typed) >= MAX_TYPED:
                self._typed.clear()
            body = self.related_body(key)
            self._typed[key, view] = None if body is None else msgspec.json.decode(body, type=view)
        return self._typed[key, view]  # type: ignore[no-any-return]

    def locations(self, gvc: str, budget: QueryBudget) -> tuple[str, ...] | None:
        """Every location of ``gvc``; empty for an unknown GVC, None if its query exceeds ``budget``."""
        return self.gvc_locations.of_few(gvc, budget)

    def known_locations(self) -> tuple[str, ...]:
        """Names of the locations that manifests declare or the settings bind."""
        return self.gvc_locations.list_known()

    def gvcs_moved_by(self, locations: Iterable[str]) -> list[str]:
        """Keys of GVCs whose location queries may answer otherwise since the ``locations`` (keys) changed.

        Links name locations, so a GVC without a query stays where it is.
        """
        former = {key: msgspec.json.decode(body) for key, body in self.former_bodies(locations).items()}
        changed = [(former.get(key), self.body(key)) for key in locations]
        return [
            key
            for key, selects in self._location_queries()
            if any(old is None or new is None or selects(old) != selects(new) for old, new in changed)
        ]

    def _location_queries(self) -> Iterator[tuple[str, Selector]]:
        """The keys of all GVCs that select locations by a query, with the query."""
        records, changed = self.index.records, self.index.changes.added
        keys = {*records.applied.gvcs_with_location_query(), *records.desired.not_applied(Kind.GVC)}
        keys.update(key for key, resource in changed.items() if resource.key.kind is Kind.GVC)
        self.index.prefetch(keys)
        for key in sorted(keys):
            placement = ((self.body(key) or {}).get("spec") or {}).get("staticPlacement") or {}
            if (query := placement.get("locationQuery")) is not None:
                yield key, make_selector(query, self.org)

    def _body_of(self, entry: DesiredEntry) -> bytes | None:
        """The body of ``entry``: from the records, or, if it is not applied yet, decoded again."""
        body = self.cache.get(entry.digest) or self.index.prefetched.recorded_body(entry)
        if body is None:
            resource = self._reload(entry)
            # A value on this host can change while the blob stays the same.
            if resource is None or resource.digest != entry.digest:
                return None if resource is None else resource.body
            body = resource.body
        if len(self.cache) >= MAX_BODIES:
            self.cache.clear()
        self.cache[entry.digest] = body
        return body

    def _reload(self, entry: DesiredEntry) -> Resource | None:
        """The resource of ``entry``, decoded again; None for a secret that can no longer be read."""
        if self._last_file is None or self._last_file.blob != entry.blob:
            self._last_file = self._decoded_file(entry.blob)
        file = self._last_file
        manifest = file.manifests.get(entry.position)
        if manifest is None or (file.faulty and manifest.kind is Kind.SECRET):
            return None
        return resource_of(manifest, stored_key(entry.key, "desired").gvc, entry.path, entry.blob)

    def _decoded_file(self, blob: str) -> _DecodedFile:
        packed = self.index.prefetched.find_packed(blob)
        # A file with secrets is never cached, so a cached one needs no values of this host.
        decoded = unpack_file(packed) if packed else self.decoder.with_host_secrets(self.decoder.decode(blob), blob)
        faulty = any(fault.severity is Severity.ERROR for fault in decoded.faults)
        manifests = {manifest.position: manifest for manifest in decoded.manifests}
        return _DecodedFile(blob, manifests, faulty)
