"""The replicas on this host and their usage, from the files of the host engine; needs no daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.settings import Settings

if TYPE_CHECKING:
    from reconciler.engines.host.reading.snapshot import HostSnapshot, ReplicaRow


class ReplicaReader:
    """Reads the replicas at the locations of the host engine, of ``gvc`` or (None) of all."""

    def __init__(self, settings: Settings, gvc: str | None = None) -> None:
        self._root = settings.state / "host"
        self._locations = sorted(name for name, bound in settings.locations.items() if bound.engine == "host")
        self._gvc = gvc
        self._before: dict[str, HostSnapshot] = {}

    @property
    def locations(self) -> tuple[str, ...]:
        """The locations that the settings bind to the host engine, sorted."""
        return tuple(self._locations)

    @property
    def has_locations(self) -> bool:
        """Whether the settings bind a location to the host engine."""
        return bool(self._locations)

    def read(self) -> list[ReplicaRow]:
        """The replicas now, in order of workload, location and name; CPU since the last call, None at the first.

        Blocks while it reads files. Raises PermissionError.
        """
        # An idle API has no use for the host engine, half a megabyte.
        from reconciler.engines.host.reading.snapshot import rows, take_snapshot

        before = self._before
        self._before = now = {name: take_snapshot(self._root / name, name) for name in self._locations}
        found = (row for name, taken in now.items() for row in rows(name, taken, before.get(name)))
        mine = (row for row in found if self._gvc in (None, row.replica.key.gvc))
        return sorted(mine, key=lambda row: (row.replica.key, row.location, row.replica.name))
