"""The data of an applied secret, for those who may reveal it."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.clock import Clock
from reconciler.errors import EncryptionError, NotFoundError, RefusedError, SourceError
from reconciler.model.key import Key
from reconciler.queries.existence import find_source
from reconciler.records.store import Records
from reconciler.settings import Settings


def read_secret_data(settings: Settings, records: Records, key: Key, clock: Clock) -> Any:
    """The value of the field ``data`` of the secret ``key``, as it was last applied.

    Data that is never recorded is decrypted again. Raises NotFoundError, and RefusedError if its applied value can no
    longer be read.
    """
    applied = next(iter(records.applied.get(key)), None)
    if applied is None:
        raise NotFoundError(f"{key} is not applied")
    content = records.secret_data.get(key, applied.digest)
    if content is None:
        content = _decrypt_entry(settings, records, key, applied.digest, clock)
    return msgspec.json.decode(content)


def _decrypt_entry(settings: Settings, records: Records, key: Key, digest: str, clock: Clock) -> bytes:
    from reconciler.pipeline.source_pipeline import SourcePipeline  # most data is recorded

    entry = records.desired.get(str(key))
    if entry is None:
        raise RefusedError(f"{key} is no longer in Git, and no other copy of its data exists")
    source = find_source(settings, entry.source)
    try:
        resource = SourcePipeline(settings, source, records, clock).view().bodies.resource(str(key))
    except (SourceError, EncryptionError) as error:
        raise RefusedError(f"{key} cannot be read: {error}") from None
    if resource is None or resource.digest != digest or not resource.secret_data:
        raise RefusedError(f"{key} has another value in Git than was applied, or it cannot be decrypted here")
    return resource.secret_data
