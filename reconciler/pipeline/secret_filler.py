"""Fills the store of secrets from Git and from this host, so that starting a container reads neither."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from reconciler.bugs import contained
from reconciler.errors import SourceError
from reconciler.manifests.change_set import ChangeSet
from reconciler.model.key import Key
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.records.sql import stored_key
from reconciler.records.store import Records
from reconciler.records.tables.desired import Entry
from reconciler.secrets.store import SecretStore


class SecretFiller:
    """Puts data that the records never hold into ``store``: that of encrypted secrets, and of those on this host.

    ``views`` make, by source, a view of its last good revision. Each method is called by a run, or while none is under
    way. All raise RecordsError; what cannot be opened is reported to the store and hurts no other secret.
    """

    def __init__(
        self, store: SecretStore, records: Records, views: Mapping[str, Callable[[], DesiredStateView]]
    ) -> None:
        self._store = store
        self._records = records
        self._views = views

    def fill(self) -> None:
        """Open every secret of the last good revisions, as a process that begins to run containers has to."""
        self._open(key for source in self._views for key in self._records.secret_data.missing(source))

    def accept(self, changes: ChangeSet) -> None:
        """Put the secrets of a revision that was accepted, which were opened already to read it."""
        for resource in changes.added.values():
            if resource.transient and resource.seal:
                self._store.put(resource)
        self.retry()

    def retry(self) -> None:
        """Open once more what could not be opened: the identity or the file may be back."""
        self._open(map(str, self._store.unopened()))

    def _open(self, keys: Iterable[str]) -> None:
        wanted: defaultdict[str, list[Entry]] = defaultdict(list)
        for key in keys:
            entry = self._records.desired.get(key)
            if entry is not None and entry.source in self._views and self._is_missing(entry):
                wanted[entry.source].append(entry)
        for source, entries in wanted.items():
            self._open_from(source, entries)

    def _is_missing(self, entry: Entry) -> bool:
        held = self._store.holds(stored_key(entry.key, "desired"), entry.digest)
        return not held and self._records.secret_data.get(entry.key, entry.digest) is None

    def _open_from(self, source: str, entries: list[Entry]) -> None:
        view: DesiredStateView | None = None
        for entry in entries:
            key = stored_key(entry.key, "desired")
            try:
                with contained(f"secret {key}"):
                    view = view or self._views[source]()
                    self._put(view, key)
            except SourceError as error:
                self._store.report(key, f"{key} cannot be read: {error}")

    def _put(self, view: DesiredStateView, key: Key) -> None:
        resource = view.bodies.resource(str(key))
        if resource is not None and resource.transient:
            self._store.put(resource)
