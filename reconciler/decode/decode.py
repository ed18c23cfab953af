"""Decodes blobs: from the cache, in this process, or, if there are many, in parallel short-lived processes."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.decode.by_document import decode_by_document, has_many_documents, without_secrets
from reconciler.decode.cache import Blobs, Cache, DecodedFiles, holds_secrets, pack, public_id, unpack_file
from reconciler.documents.limits import LIMITS
from reconciler.errors import SourceError
from reconciler.iteration import iterate_batches, track_items
from reconciler.manifests.decoder import NO_MANIFEST, Decoded, decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Fault
from reconciler.model.revision import FileChange, is_json

LARGE = LIMITS.document_bytes
"""Larger files (in bytes) are decoded in this process, one at a time: many at once would fill the memory."""
MANY = 1500
"""Processes save time from this number of files on: the start of two takes 0.2 s of CPU, as long as 1,000 files."""


def decode_all(changes: Sequence[FileChange], blobs: Blobs, cache: Cache, dialect: ManifestContext) -> DecodedFiles:
    """Every change with its decoded file, in no particular order; each blob is read at most once."""
    decoded = _decode_or_recall(changes, blobs, cache, dialect)
    yield from track_items(decoded, "reading manifests", len(changes))


def _decode_or_recall(
    changes: Sequence[FileChange], blobs: Blobs, cache: Cache, dialect: ManifestContext
) -> DecodedFiles:
    missing: list[FileChange] = []
    for chunk in iterate_batches(changes, 1000):
        cached = cache.get([change.after for change in chunk])
        for change in chunk:
            packed = cached.get(change.after)
            if packed is None:
                missing.append(change)
            else:
                yield change, unpack_file(packed)
    yield from (
        _decode_in_pool(missing, blobs, cache, dialect)
        if len(missing) >= MANY
        else _decode_in_process(missing, blobs, cache, dialect)
    )


def _decode_in_process(
    changes: Sequence[FileChange], blobs: Blobs, cache: Cache, dialect: ManifestContext
) -> DecodedFiles:
    fresh = []
    for change in changes:
        if (large := _too_large(change, blobs)) is not None:
            yield change, large
            continue
        raw = blobs.read(change.after)
        as_json = is_json(change.after)
        decoded = _from_former(raw, change, blobs, cache, dialect) or decode_manifests(raw, dialect, is_json=as_json)
        if not holds_secrets(decoded):
            fresh.append((change.after, pack(decoded)))
        elif not as_json and has_many_documents(raw) and (public := without_secrets(decoded)) is not None:
            fresh.append((public_id(change.after), pack(public)))
        yield change, decoded
    if fresh:
        cache.put(fresh)


def _from_former(
    raw: bytes, change: FileChange, blobs: Blobs, cache: Cache, dialect: ManifestContext
) -> Decoded | None:
    """The decoded form of ``raw`` by means of the former version of its file; None if that does not help."""
    if change.before in ("", change.after) or is_json(change.after) or not has_many_documents(raw):
        return None
    cached = cache.get([change.before, public_id(change.before)])
    if not cached:
        return None
    [packed] = cached.values()
    try:
        former = blobs.read(change.before)
    except SourceError:  # a force push left it behind
        return None
    return decode_by_document(raw, former, unpack_file(packed), dialect)


def _decode_in_pool(
    changes: Sequence[FileChange], blobs: Blobs, cache: Cache, dialect: ManifestContext
) -> DecodedFiles:
    from reconciler.decode.pool import decode_in_processes

    large: list[FileChange] = []

    def fits(change: FileChange) -> bool:
        is_large = blobs.size(change.after) > LARGE
        if is_large:
            large.append(change)
        return not is_large

    yield from decode_in_processes(filter(fits, changes), blobs, cache, dialect)
    yield from _decode_in_process(large, blobs, cache, dialect)


def _too_large(change: FileChange, blobs: Blobs) -> Decoded | None:
    """The finding about a file that is too large to read; None for any other file."""
    size = blobs.size(change.after)
    if size <= LIMITS.file_bytes:
        return None
    if is_json(change.after):  # as large as no manifest
        return NO_MANIFEST
    message = f"the file has {size / (1 << 20):.0f} MiB; at most {LIMITS.file_bytes >> 20} MiB are read"
    return Decoded((), (Fault("too-large", message, 1, 1, "split it, or leave it out with .reconcilerignore"),), 0)
