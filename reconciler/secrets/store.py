"""The data of applied secrets, which engines read: from the records, or from memory if it is never recorded."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

import msgspec

from reconciler.errors import EngineError, RecordsError
from reconciler.model.key import Key
from reconciler.model.kinds.secret import SecretValue
from reconciler.model.record import Record
from reconciler.model.resource import Resource
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.settings import Settings


class _Form(msgspec.Struct, frozen=True):
    type: str


class SecretStore:
    """Secrets as they were last applied. Engines use ``read``; data that is never recorded is added with ``put``.

    Every method may be called in any thread: records in a file are read over a separate connection of the store.
    Records in memory are shared, so nothing else may use them at the same time.
    """

    def __init__(self, records: Records, settings: Settings) -> None:
        self._records = records
        self._own: Records | None = None
        self._sources = frozenset(source.name for source in settings.sources)
        self._lock = Lock()
        self._values: dict[Key, dict[str, SecretValue]] = {}
        """By digest, in the order of ``put``: the newest value may not be applied yet."""
        self._errors: dict[Key, str] = {}

    def read(self, key: Key) -> SecretValue:
        """The data of the secret ``key`` as it was last applied.

        Raises EngineError, reason SecretUnavailable, if the secret is not applied or its applied value was not
        decrypted.
        """
        with self._lock:
            try:
                return self._find(self._connect(), key)
            except RecordsError as error:
                self._disconnect()
                raise _make_unavailable_error(f"{key} cannot be read: {error}") from None

    def put(self, resource: Resource) -> None:
        """Hold the data of a secret that is never recorded, until another value of it is applied."""
        value = _decode_secret_value(resource.body, resource.secret_data)
        with self._lock:
            values = self._values.setdefault(resource.key, {})
            values.pop(resource.digest, None)
            values[resource.digest] = value
            self._errors.pop(resource.key, None)

    def holds(self, key: Key, digest: str) -> bool:
        """Whether the store has the data of ``key`` with ``digest``."""
        with self._lock:
            return digest in self._values.get(key, ())

    def report(self, key: Key, error: str) -> None:
        """Record why the data of ``key`` is missing; ``read`` reports it."""
        with self._lock:
            self._errors[key] = error

    def list_unopened(self) -> list[Key]:
        """The secrets that were reported and not put since."""
        with self._lock:
            return sorted(self._errors)

    def forget_old(self, keys: Iterable[Key]) -> None:
        """Drop the data of ``keys`` that is no longer applied. Raises RecordsError."""
        with self._lock:
            records = self._connect()
            for key in keys:
                record = _get_applied_record(records, key)
                if record is not None:
                    self._drop_older(key, record.digest)
                elif records.desired.get(str(key)) is None:
                    self._values.pop(key, None)
                    self._errors.pop(key, None)

    def close(self) -> None:
        """Forget all data and close the connection; may be repeated."""
        with self._lock:
            self._values.clear()
            self._disconnect()

    def _find(self, records: Records, key: Key) -> SecretValue:
        record = _get_applied_record(records, key)
        if record is None:
            raise _make_unavailable_error(f"{key} is not applied")
        written = records.secret_data.get(key, record.digest)
        if written is not None:
            return _decode_secret_value(record.body, written)
        self._drop_older(key, record.digest)
        value = self._values.get(key, {}).get(record.digest)
        if value is None:
            raise _make_unavailable_error(self._why(records, key))
        return value

    def _why(self, records: Records, key: Key) -> str:
        entry = records.desired.get(str(key))
        if entry is None:
            return f"{key} is no longer in Git, and no other copy of its data exists"
        if entry.source not in self._sources:
            return f"{key} comes from the source {entry.source}, which is no longer in the settings"
        position = f"{entry.path}:{entry.line}"
        return self._errors.get(key, f"{key} has another value than was applied ({position}); the next run applies it")

    def _drop_older(self, key: Key, digest: str) -> None:
        """Drop values older than the applied one, so that memory contains no outdated secret."""
        values = self._values.get(key, {})
        for other in list(values) if digest in values else ():
            if other == digest:
                break
            del values[other]

    def _connect(self) -> Records:
        if self._records.path is None:
            return self._records
        if self._own is None:
            self._own = Records.open(self._records.path, read_only=True)
        return self._own

    def _disconnect(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None


def _get_applied_record(records: Records, key: Key) -> Record | None:
    return next(iter(records.applied.get(key)), None)


def _decode_secret_value(body: bytes, content: bytes) -> SecretValue:
    return SecretValue(msgspec.json.decode(body, type=_Form).type, msgspec.json.decode(content))


def _make_unavailable_error(message: str) -> EngineError:
    return EngineError(message, reason=Reason.SECRET_UNAVAILABLE)
