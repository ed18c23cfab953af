"""The replicas of one workload: in memory, in their files, and in the file of its endpoints.

A file that cannot be written is written later. Neither a start nor an end waits for it, so that what has died is
restarted on a full disk too.
"""

from __future__ import annotations

from collections.abc import Callable

from reconciler.engines.host.action_errors import ENDPOINTS, STORE, ActionErrors
from reconciler.engines.host.endpoints import Endpoints
from reconciler.engines.host.replica import Replica
from reconciler.engines.host.replica_store import Store
from reconciler.errors import EngineError
from reconciler.model.key import Key


class WorkloadReplicas:
    """``by_name`` is what is known; ``changed`` is called when it changes. Failures go to ``errors``."""

    def __init__(
        self, key: Key, store: Store, endpoints: Endpoints, errors: ActionErrors, changed: Callable[[], None]
    ) -> None:
        self.by_name: dict[str, Replica] = {}
        self._key = key
        self._store = store
        self._endpoints = endpoints
        self._errors = errors
        self._changed = changed
        self._unwritten: set[str] = set()

    def add(self, replica: Replica) -> None:
        """Take over a new replica, which is written first. Raises EngineError, and it is not taken over.

        After a crash its ports would be unknown, so one that cannot be written is not made.
        """
        self._store.save(replica)
        self.by_name[replica.name] = replica
        self._changed()

    def adopt(self, replica: Replica, *, written: bool) -> None:
        """Take over a replica that a former daemon left; ``written`` says whether its file is as it is."""
        self.by_name[replica.name] = replica
        if not written:
            self._unwritten.add(replica.name)

    def set(self, replica: Replica) -> None:
        """Take over what has become of a replica; ``write`` writes it."""
        if self.by_name.get(replica.name) != replica:
            self.by_name[replica.name] = replica
            self._unwritten.add(replica.name)
            self._changed()

    def remove(self, name: str) -> None:
        """Forget a replica and its file. Raises EngineError."""
        self._store.remove(self._key, name)
        del self.by_name[name]
        self._changed()

    def find_lost(self) -> bool:
        """Whether files are gone that were written; ``write`` and ``publish`` then write them again."""
        lost = {name for name in self.by_name if not self._store.holds(self._key, name)}
        self._unwritten |= lost
        return self._endpoints.is_lost(self._key) or bool(lost)

    def write(self) -> None:
        """Write what has changed, as far as it can be written."""
        error: EngineError | None = None
        self._unwritten &= self.by_name.keys()
        for name in sorted(self._unwritten):
            try:
                self._store.save(self.by_name[name])
                self._unwritten.discard(name)
            except EngineError as failure:
                error = failure
        self._note(STORE, error)

    def publish(self) -> None:
        """Let the endpoints be the ready replicas."""
        error: EngineError | None = None
        try:
            self._endpoints.publish(self._key, self.by_name.values())
        except EngineError as failure:
            error = failure
        self._note(ENDPOINTS, error)

    def _note(self, name: str, error: EngineError | None) -> None:
        if error is None:
            self._errors.succeeded(name)
        elif self._errors.is_due(name):
            self._errors.failed(name, f"{error.reason}: {error}")
