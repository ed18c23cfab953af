"""Deletes the final snapshot of a deleted volume, which nothing else ever does."""

from __future__ import annotations

from reconciler.clock import Clock
from reconciler.engines.host.volumes.store import VolumeStore
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
        known = list(find_final_snapshots(settings, key))
        found = [each for each in known if each[1].name == name and location in ("", each[0].name)]
        if not found:
            there = [each.name for _, each in known]
            hint = did_you_mean(name, there) or f"; see: reconciler snapshots {key} --deleted"
            raise NotFoundError(f"{key} has no final snapshot {name}{hint}")
        if len(found) > 1:
            places = ", ".join(root.name for root, _ in found)
            raise RefusedError(f"{places} have a final snapshot {name} of {key}; name one with --location")
        [(self._root, self._volume)] = found

    def __str__(self) -> str:
        volume = self._volume
        return f"the final snapshot {volume.name} of volume {volume.index} of {volume.volumeset} at {self._root.name}"

    def delete(self, records: Records, clock: Clock, by: str) -> str:
        """Delete it, with an event; returns the message for the operator. Raises EngineError."""
        VolumeStore(self._root, "auto", clock).delete_final_snapshot(self._volume)
        key, location = self._volume.volumeset, self._root.name
        records.events.append(key, Reason.FINAL_SNAPSHOT_DELETED, f"{by}: {self._volume.name}", location=location)
        return f"{self} is deleted"
