"""Stores each replica in a file, from which the next daemon continues. The files contain no secrets."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.disk.atomic import write_atomic, write_error
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class _ReplicaFile(msgspec.Struct, frozen=True):
    """A replica, and the boot id for which its times are valid."""

    boot: str
    replica: Replica


class ReplicaStore:
    """The replicas of one location below ``root``. Methods that write raise EngineError (DiskFull and the like).

    ``boots`` are further boot ids whose replicas are valid.
    """

    def __init__(self, root: Path, boots: Collection[str] = ()) -> None:
        self.root = root
        self.boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
        self._boots = {self.boot, *boots}

    def load(self) -> tuple[list[Replica], list[tuple[Key, str]]]:
        """Read the replicas of this boot, and (key, name) of files that are from an earlier one or unreadable.

        Nothing runs of an earlier boot. A replica whose file cannot be read may run, and its labels identify it.
        """
        here: list[Replica] = []
        gone: list[tuple[Key, str]] = []
        for path in list_paths(self.root, "*/*/*.json"):
            key = Key(Kind.WORKLOAD, path.parent.parent.name, path.parent.name)
            replica = self._read(path)
            if replica is None:
                gone.append((key, path.stem))
            else:
                here.append(replica)
        return here, gone

    def save(self, replica: Replica) -> None:
        """Write the file of ``replica``, completely or not at all."""
        file = _ReplicaFile(self.boot, replica)
        write_atomic(self._path(replica.key, replica.name), msgspec.json.encode(file), 0o600)

    def holds(self, key: Key, name: str) -> bool:
        """Whether the replica has a file."""
        return self._path(key, name).exists()

    def remove(self, key: Key, name: str) -> None:
        """Delete the file of a replica, if it exists."""
        try:
            self._path(key, name).unlink(missing_ok=True)
        except OSError as error:
            raise write_error(f"the state of {name} cannot be removed", error) from None

    def _path(self, key: Key, name: str) -> Path:
        return self.root / key.gvc / key.name / f"{name}.json"

    def _read(self, path: Path) -> Replica | None:
        try:
            file = msgspec.json.decode(path.read_bytes(), type=_ReplicaFile)
        except (OSError, msgspec.DecodeError):
            return None
        return file.replica if file.boot in self._boots else None
