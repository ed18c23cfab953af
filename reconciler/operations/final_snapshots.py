"""Deletes the final snapshot of a deleted volume, which nothing else ever does."""

from __future__ import annotations

from reconciler.errors import NotFoundError, RefusedError
from reconciler.model.key import Key
from reconciler.queries.existence import did_you_mean
from reconciler.queries.snapshots import find_final_snapshots
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.settings import Settings


class FinalSnapshot:
    """The final snapshot ``name`` of a deleted volume of ``key``, at ``location`` or at the only one that has it.

    Raises NotFoundError if there is none, RefusedError if several locations have one, and EngineError.
    """

    def __init__(self, settings: Settings, key: Key, name: str, location: str) -> None:
        snapshots = list(find_final_snapshots(settings, key))
        matches = [pair for pair in snapshots if pair[1].snapshot.name == name and location in ("", pair[1].location)]
        if not matches:
            there = [snapshot.snapshot.name for _, snapshot in snapshots]
            hint = did_you_mean(name, there) or f"; see: reconciler snapshots {key} --deleted"
            raise NotFoundError(f"{key} has no final snapshot {name}{hint}")
        if len(matches) > 1:
            places = ", ".join(snapshot.location for _, snapshot in matches)
            raise RefusedError(f"{places} have a final snapshot {name} of {key}; name one with --location")
        [(self._reader, self._found)] = matches

    def __str__(self) -> str:
        snapshot = self._found
        volume = f"volume {snapshot.index} of {snapshot.key} at {snapshot.location}"
        return f"the final snapshot {snapshot.snapshot.name} of {volume}"

    def delete(self, records: Records, by: str) -> str:
        """Delete it, with an event; returns the message for the operator. Raises EngineError."""
        snapshot = self._found
        self._reader.delete_final_snapshot(snapshot)
        message = f"{by}: {snapshot.snapshot.name}"
        records.events.append(snapshot.key, Reason.FINAL_SNAPSHOT_DELETED, message, location=snapshot.location)
        return f"{self} is deleted"
