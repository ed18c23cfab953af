"""The data of applied secrets: from the records, or opened again in memory where it is never written down."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from reconciler.engines.host.provisioning.secrets import SecretValue
from reconciler.errors import EngineError, ReconcilerError
from reconciler.model.key import Key
from reconciler.model.record import Record
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.pipeline.externals import ExternalResources
from reconciler.pipeline.load import blobs_of
from reconciler.records.store import Records
from reconciler.records.tables.desired import Entry
from reconciler.secrets.host_files import HostSecretDirectory, manifest_context
from reconciler.settings import Settings
from reconciler.source.source import open_source

MAX_SECRETS = 256
"""Secrets of which the value in force is held in memory once it was opened: it serves on when its file has changed."""


class _Form(msgspec.Struct, frozen=True):
    type: str


class SecretStore:
    """Reveals the secrets in ``records``, over the repositories of ``settings``.

    It may be asked in any thread at any time, one question after another: records in a file are read over a connection
    of its own. Records in memory are shared, and then nobody else may be using them.
    """

    def __init__(self, records: Records, settings: Settings) -> None:
        self._records = records
        self._settings = settings
        self._lock = Lock()
        self._opened: dict[Key, tuple[str, SecretValue]] = {}

    def read(self, key: Key) -> SecretValue:
        """The data of the secret ``key`` as it was applied last.

        Raises EngineError, reason SecretUnavailable, where it is not applied, or can no longer be opened as it was.
        """
        with self._lock:
            try:
                return self._revealed(key)
            except EngineError:
                raise
            except ReconcilerError as error:
                raise _unavailable(f"{key} cannot be read: {error}") from None

    def _revealed(self, key: Key) -> SecretValue:
        path = self._records.path
        if path is None:
            return self._looked_up(self._records, key)
        with closing(Records.open(path, read_only=True)) as records:
            return self._looked_up(records, key)

    def _looked_up(self, records: Records, key: Key) -> SecretValue:
        record = next(iter(records.applied.get(key)), None)
        if record is None:
            self._opened.pop(key, None)
            raise _unavailable(f"{key} is not applied")
        seal = records.secret_data.get(key, record.digest)
        return self._again(records, record) if seal is None else _shown(record, seal)

    def _again(self, records: Records, record: Record) -> SecretValue:
        """What is never written down: read from Git and opened, or from this host, and only if it is the same."""
        digest, value = self._opened.get(record.key, ("", None))
        if value is None or digest != record.digest:
            # The value of an older digest goes first: memory never holds what is applied no more.
            self._opened.pop(record.key, None)
            value = _shown(record, self._seal(records, record))
            while len(self._opened) >= MAX_SECRETS:
                del self._opened[next(iter(self._opened))]
            self._opened[record.key] = (record.digest, value)
        return value

    def _seal(self, records: Records, record: Record) -> bytes:
        entry = records.desired.get(record.key)
        if entry is None:
            raise _unavailable(f"{record.key} is in Git no more, and its data is kept nowhere else")
        resource = self._view(records, entry).resource(entry.key)
        if resource is None or resource.digest != record.digest:
            place = f"{entry.path}:{entry.line}"
            raise _unavailable(f"{record.key} has another value than was applied ({place}); the next run applies it")
        return resource.seal

    def _view(self, records: Records, entry: Entry) -> DesiredStateView:
        settings = self._settings
        source = next((each for each in settings.sources if each.name == entry.source), None)
        if source is None:
            raise _unavailable(f"{entry.key} comes from the source {entry.source}, which the settings have no more")
        repository = open_source(source, Path(settings.state)).repository
        dialect = manifest_context(settings, records.secret_key)
        around = ExternalResources.of(settings)
        return DesiredStateView(
            source.name, records, blobs_of(repository), dialect, around, HostSecretDirectory.of(settings, source)
        )


def _shown(record: Record, seal: bytes) -> SecretValue:
    content: dict[str, Any] | str = msgspec.json.decode(seal)
    return SecretValue(msgspec.json.decode(record.body, type=_Form).type, content)


def _unavailable(message: str) -> EngineError:
    return EngineError(message, reason="SecretUnavailable")
