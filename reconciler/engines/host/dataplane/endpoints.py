"""The ready replicas of each workload, for a data plane, and in a file for other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.disk.atomic import write_atomic, write_error
from reconciler.engines.host.disk.directories import LISTED, make_traversable
from reconciler.errors import EngineError
from reconciler.model.key import Key

ENDPOINTS = "endpoints"
"""Name of the endpoints directory below the directory of a location."""

CONTAINER_ENDPOINTS = "container-endpoints"
"""Name of the one that containers with a network of their own read."""


ADDRESS = "127.0.0.1"
"""The address that replicas listen on; a data plane forwards outside traffic to it."""


class Endpoint(msgspec.Struct, frozen=True):
    """A ready replica. ``ports`` maps each declared port to ``address:port``; ``address`` is that of the first port."""

    name: str
    address: str
    ports: dict[str, str]
    version: int


class _File(msgspec.Struct, frozen=True):
    replicas: tuple[Endpoint, ...]


Listener = Callable[[Key, tuple[Endpoint, ...]], None]
Addresses = Callable[[Key, str, Mapping[int, int]], Mapping[int, str] | None]
"""Runtime.addresses."""


Publish = Callable[[Key, Mapping[str, Mapping[int, str]]], None]
"""Runtime.publish."""


def _on_this_host(_key: Key, _replica: str, _ports: Mapping[int, int]) -> None:
    """The addresses for containers that have no network of their own."""


class EndpointFiles:
    """Files ``GVC/WORKLOAD.json`` below ``directory``, each with the ready replicas of one workload."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: dict[Key, tuple[Endpoint, ...]] = {}

    def names(self, key: Key) -> list[str] | None:
        """Names of the replicas in the file of ``key``, also of an earlier daemon; None if it cannot be read."""
        try:
            return [replica.name for replica in msgspec.json.decode(self._path(key).read_bytes(), type=_File).replicas]
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, key: Key, ready: tuple[Endpoint, ...]) -> None:
        """Write the file of ``key``, unless it is up to date.

        Raises EngineError. The file then lists only those of its replicas that are still ready, or it is deleted.
        """
        if ready == self._written.get(key):
            return
        try:
            self._replace(key, ready)
        except EngineError:
            self._shrink(key, ready)
            raise

    def is_lost(self, key: Key) -> bool:
        """Whether the file of ``key`` was written and is missing now; ``write`` then writes it again."""
        lost = key in self._written and not self._path(key).exists()
        if lost:
            del self._written[key]
        return lost

    def delete(self, key: Key) -> None:
        """Delete the file of ``key``, if possible."""
        self._written.pop(key, None)
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _replace(self, key: Key, ready: tuple[Endpoint, ...]) -> None:
        path = self._path(key)
        try:
            make_traversable(self._directory.parent, path.parent, LISTED)
        except OSError as error:
            raise write_error(f"{path} cannot be written", error) from None
        write_atomic(path, msgspec.json.encode(_File(ready)), 0o644)
        self._written[key] = ready

    def _shrink(self, key: Key, ready: tuple[Endpoint, ...]) -> None:
        """Remove replicas that are not ready from the file: a shorter list needs no additional space, an empty one no
        file.
        """
        still = tuple(endpoint for endpoint in self._written.get(key, ()) if endpoint in ready)
        try:
            self._replace(key, still)
        except EngineError:
            self.delete(key)

    def _path(self, key: Key) -> Path:
        return self._directory / key.gvc / f"{key.name}.json"


class Endpoints:
    """The ready replicas of each workload at one location, also in files.

    Those below ``directory`` have addresses for programs of this host. Beside it, ``container-endpoints`` has the ones
    for containers with a network of their own, as ``addresses`` returns them; ``publish`` gets these, too.
    """

    def __init__(
        self, directory: Path, addresses: Addresses = _on_this_host, publish: Publish = lambda _key, _ready: None
    ) -> None:
        self._addresses = addresses
        self._publish = publish
        self._of_host = EndpointFiles(directory)
        self._of_containers = EndpointFiles(directory.with_name(CONTAINER_ENDPOINTS))
        self._ready: dict[Key, tuple[Endpoint, ...]] = {}
        self._listeners: list[Listener] = []

    def get(self, key: Key) -> tuple[Endpoint, ...]:
        """The ready replicas of ``key``, in order of their names."""
        return self._ready.get(key, ())

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` at every change, before anything is done to a removed replica."""
        self._listeners.append(listener)

    def previous_names(self, key: Key) -> list[str] | None:
        """Names of the replicas in the file that an earlier daemon wrote for ``key``; None if it cannot be read."""
        return self._of_host.names(key)

    def publish(self, key: Key, replicas: Iterable[Replica]) -> None:
        """Set the endpoints of ``key`` to the ready ones of ``replicas``.

        Raises EngineError if a file cannot be written; it then lists no replica that is not ready.
        """
        serving = [replica for replica in sorted(replicas, key=_get_name) if replica.ready and replica.served_ports]
        ready = tuple(_make_endpoint(replica, _on_localhost(replica)) for replica in serving)
        if ready != self._ready.get(key):
            self._ready[key] = ready
            for listener in self._listeners:
                listener(key, ready)
        try:
            self._of_host.write(key, ready)
        finally:
            self._publish_to_containers(key, serving)

    def is_lost(self, key: Key) -> bool:
        """Whether a file of ``key`` was written and is missing now; ``publish`` then writes it again."""
        return self._of_host.is_lost(key) | self._of_containers.is_lost(key)

    def remove(self, key: Key) -> None:
        """Forget a deleted workload."""
        for listener in self._listeners if self._ready.pop(key, ()) else ():
            listener(key, ())
        self._publish(key, {})
        self._of_host.delete(key)
        self._of_containers.delete(key)

    def _publish_to_containers(self, key: Key, serving: list[Replica]) -> None:
        if self._addresses(key, "", {}) is None:
            return
        candidates = ((replica, self._addresses(key, replica.name, replica.served_ports)) for replica in serving)
        reached = [(replica, addresses) for replica, addresses in candidates if addresses]
        self._publish(key, {replica.name: addresses for replica, addresses in reached})
        self._of_containers.write(key, tuple(_make_endpoint(replica, addresses) for replica, addresses in reached))


def _get_name(replica: Replica) -> str:
    return replica.name


def _on_localhost(replica: Replica) -> dict[int, str]:
    return {declared: f"{ADDRESS}:{port}" for declared, port in replica.served_ports.items()}


def _make_endpoint(replica: Replica, addresses: Mapping[int, str]) -> Endpoint:
    ports = {str(declared): address for declared, address in addresses.items()}
    return Endpoint(replica.name, next(iter(ports.values())), ports, replica.version)
