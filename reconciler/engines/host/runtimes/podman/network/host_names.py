"""The names of workloads that containers resolve, in the file of host names of each container.

The file lists ready replicas only, and follows them while its container runs. It needs no server, so the names work
while no daemon runs. A resolver returns all addresses of a name; their order differs from container to container, which
spreads the load.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind

_MARK = "# Ready replicas of the workloads at this location"
_IDENTITY = re.compile(r"-\d+")
_LOCALHOST = "127.0.0.1 localhost"


class HostName(NamedTuple):
    """One line of a file: an address and its names."""

    address: str
    names: tuple[str, ...]


class _Replica(msgspec.Struct):
    name: str
    ports: dict[int, str]


class _File(msgspec.Struct):
    replicas: tuple[_Replica, ...]


class HostNames:
    """The ready replicas of a location, whose endpoints files for containers are in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ready: dict[Key, dict[str, str]] = {}
        self._lines: dict[str, tuple[HostName, ...]] = {}
        self._written: dict[ContainerId, tuple[HostName, ...]] = {}
        self._files = threading.Lock()

    def load(self) -> None:
        """Begin with the endpoints files of an earlier daemon, until ``set`` replaces them one by one. Blocks."""
        for path in list_paths(self._directory, "*/*.json"):
            with suppress(OSError, msgspec.DecodeError):
                file = msgspec.json.decode(path.read_bytes(), type=_File, strict=False)
                ready = {replica.name: replica.ports for replica in file.replicas}
                self.set(Key(Kind.WORKLOAD, path.parent.name, path.stem), ready)

    def set(self, key: Key, ready: Mapping[str, Mapping[int, str]]) -> None:
        """Set the ready replicas of ``key``, each with the ``address:port`` of each declared port."""
        addresses = {name: address for name, ports in sorted(ready.items()) if (address := _own_address(ports))}
        if addresses != self._ready.get(key, {}):
            self._ready[key] = addresses
            self._lines = {}

    def lines(self, gvc: str) -> tuple[HostName, ...]:
        """The lines for the containers of a GVC."""
        if gvc not in self._lines:
            self._lines[gvc] = tuple(
                HostName(address, tuple(_list_names(key, replica, gvc)))
                for key, ready in sorted(self._ready.items())
                for replica, address in ready.items()
            )
        return self._lines[gvc]

    def find_outdated(self, places: Collection[ContainerId]) -> list[ContainerId]:
        """Those of the running containers ``places`` whose file has to change; forgets all other containers."""
        self._written = {container_id: lines for container_id, lines in self._written.items() if container_id in places}
        return [
            container_id
            for container_id in places
            if self._written.get(container_id) != self.lines(container_id.key.gvc)
        ]

    def create(self, path: Path, container_id: ContainerId, own: str) -> None:
        """Write the file of a container that starts: its ``own`` names, and those of workloads. Raises OSError."""
        lines = self.lines(container_id.key.gvc)
        with self._files:
            path.write_text(_with_lines(own, lines, container_id), encoding="utf-8")
            # Users of the container read it, whatever the umask of the daemon is.
            path.chmod(0o644)
            self._written[container_id] = lines

    def update(self, path: Path, container_id: ContainerId) -> None:
        """Write the file of a running container anew, in place since it is mounted. Blocks. Raises OSError."""
        lines = self.lines(container_id.key.gvc)
        with self._files:
            with suppress(FileNotFoundError):
                own, _, _ = path.read_text(encoding="utf-8", errors="replace").partition(_MARK)
                if own.startswith(_LOCALHOST):
                    _overwrite_file(path, _with_lines(own, lines, container_id).encode())
            self._written[container_id] = lines


def _with_lines(own: str, lines: Collection[HostName], container_id: ContainerId) -> str:
    """A file; names in ``own`` have precedence, as those of the other containers of the replica."""
    taken = {name for line in own.splitlines() for name in line.split()[1:]}
    entries = [(line.address, [name for name in line.names if name not in taken]) for line in lines]
    texts = [f"{address} {' '.join(names)}" for address, names in entries if names]
    # Many programs connect to the first address only, so each replica has another one there.
    first = crc32(f"{container_id.key} {container_id.replica}".encode()) % max(1, len(texts))
    return "\n".join([own.rstrip("\n"), *([_MARK, *texts[first:], *texts[:first]] if texts else []), ""])


def _list_names(key: Key, replica: str, gvc: str) -> Iterator[str]:
    """The names of a replica of ``key`` for the containers of ``gvc``."""
    if key.gvc == gvc:
        yield key.name
    yield f"{key.name}.{key.gvc}.platform.local"
    if key.gvc == gvc and _IDENTITY.fullmatch(replica.removeprefix(key.name)):
        yield f"{replica}.{key.name}"


def _own_address(ports: Mapping[int, str]) -> str:
    """The address of a replica that has its declared ports there; "" for a program of this host, which has others."""
    names = {at.removesuffix(f":{declared}") for declared, at in ports.items()}
    address = names.pop() if len(names) == 1 else ""
    return address if ":" not in address else ""


def _overwrite_file(path: Path, content: bytes) -> None:
    """Replace the content by a single write: a reader sees no half of a line. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        before = os.fstat(descriptor).st_size
        # Empty lines cover the old end until the file is cut.
        os.pwrite(descriptor, content.ljust(before, b"\n"), 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)
