"""Fills the store of secrets from Git and from this host, so that starting a container reads neither."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from reconciler.bugs import contain_bugs
from reconciler.errors import EncryptionError, SourceError
from reconciler.manifests.change_set import ChangeSet
from reconciler.model.key import Key
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.records.sql import stored_key
from reconciler.records.store import Records
from reconciler.records.tables.desired import DesiredEntry
from reconciler.secrets.store import SecretStore


class SecretFiller:
    """Puts data that is never recorded into ``store``: of encrypted secrets, and of secrets on this host.

    ``views`` makes, by source, a view of its last good revision. Call each method within a run, or while none is in
    progress. All raise RecordsError; a secret that cannot be read is reported to the store and affects no other.
    """

    def __init__(
        self, store: SecretStore, records: Records, views: Mapping[str, Callable[[], DesiredStateView]]
    ) -> None:
        self._store = store
        self._records = records
        self._views = views

    def fill(self) -> None:
        """Read every secret of the last good revisions, before the process starts containers."""
        self._open(key for source in self._views for key in self._records.secret_data.missing(source))

    def accept(self, changes: ChangeSet) -> None:
        """Store the secrets of an accepted revision, which were decrypted when it was read."""
        for resource in changes.added.values():
            if resource.transient and resource.secret_data:
                self._store.put(resource)
        self.retry()

    def retry(self) -> None:
        """Read again the secrets that failed: their identity or file may exist now."""
        self._open(map(str, self._store.list_unopened()))

    def _open(self, keys: Iterable[str]) -> None:
        by_source: defaultdict[str, list[DesiredEntry]] = defaultdict(list)
        for key in keys:
            entry = self._records.desired.get(key)
            if entry is not None and entry.source in self._views and self._is_missing(entry):
                by_source[entry.source].append(entry)
        for source, entries in by_source.items():
            self._open_from(source, entries)

    def _is_missing(self, entry: DesiredEntry) -> bool:
        is_stored = self._store.holds(stored_key(entry.key, "desired"), entry.digest)
        return not is_stored and self._records.secret_data.get(entry.key, entry.digest) is None

    def _open_from(self, source: str, entries: list[DesiredEntry]) -> None:
        view: DesiredStateView | None = None
        for entry in entries:
            key = stored_key(entry.key, "desired")
            try:
                with contain_bugs(f"secret {key}"):
                    # If the repository cannot be opened, that is reported for each of these secrets too.
                    view = view or self._views[source]()
                    self._put(view, key)
            except (SourceError, EncryptionError) as error:
                self._store.report(key, f"{key} cannot be read: {error}")

    def _put(self, view: DesiredStateView, key: Key) -> None:
        resource = view.bodies.resource(str(key))
        if resource is not None and resource.transient:
            self._store.put(resource)
