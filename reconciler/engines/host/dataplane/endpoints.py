"""The ready replicas of each workload, for a data plane, and in a file for other programs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.engines.host.replica import Replica
from reconciler.errors import EngineError
from reconciler.model.key import Key

ENDPOINTS = "endpoints"
"""Name of the endpoints directory below the directory of a location."""

_FORMER = "pool"

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


_decode = msgspec.json.Decoder(_File).decode

Listener = Callable[[Key, tuple[Endpoint, ...]], None]


class Endpoints:
    """The ready replicas of each workload at one location, also as ``GVC/WORKLOAD.json`` below ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ready: dict[Key, tuple[Endpoint, ...]] = {}
        self._written: dict[Key, tuple[Endpoint, ...]] = {}
        self._listeners: list[Listener] = []

    def get(self, key: Key) -> tuple[Endpoint, ...]:
        """The ready replicas of ``key``, in order of their names."""
        return self._ready.get(key, ())

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` at every change, before anything is done to a removed replica."""
        self._listeners.append(listener)

    def previous_names(self, key: Key) -> list[str] | None:
        """Names of the replicas in the file that an earlier daemon wrote for ``key``; None if it cannot be read."""
        try:
            return [each.name for each in _decode(self._path(key).read_bytes()).replicas]
        except (OSError, msgspec.DecodeError):
            return None

    def publish(self, key: Key, replicas: Iterable[Replica]) -> None:
        """Set the endpoints of ``key`` to the ready ones of ``replicas``.

        Raises EngineError if the file cannot be written. The file then lists only those of its replicas that are still
        ready, or it is deleted.
        """
        ready = tuple(_endpoint(each) for each in sorted(replicas, key=_name) if each.ready and each.ports)
        if ready != self._ready.get(key):
            self._ready[key] = ready
            for listener in self._listeners:
                listener(key, ready)
        if ready == self._written.get(key):
            return
        try:
            self._write(key, ready)
        except EngineError:
            self._shrink(key, ready)
            raise

    def is_lost(self, key: Key) -> bool:
        """Whether the file of ``key`` was written and is missing now; ``publish`` then writes it again."""
        lost = key in self._written and not self._path(key).exists()
        if lost:
            del self._written[key]
        return lost

    def remove(self, key: Key) -> None:
        """Forget a deleted workload."""
        for listener in self._listeners if self._ready.pop(key, ()) else ():
            listener(key, ())
        self._delete(key)

    def _write(self, key: Key, ready: tuple[Endpoint, ...]) -> None:
        write_atomic(self._path(key), msgspec.json.encode(_File(ready)), 0o644, 0o755)
        self._written[key] = ready

    def _shrink(self, key: Key, ready: tuple[Endpoint, ...]) -> None:
        """Remove replicas that are not ready from the file: a shorter list needs no additional space, an empty one no
        file.
        """
        still = tuple(each for each in self._written.get(key, ()) if each in ready)
        try:
            self._write(key, still)
        except EngineError:
            self._delete(key)

    def _delete(self, key: Key) -> None:
        self._written.pop(key, None)
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: Key) -> Path:
        return self._directory / key.gvc / f"{key.name}.json"


def move_endpoints(root: Path) -> None:
    """Move the endpoints files of a location below ``root`` from their former directory to the current one, once.

    A link at the former path serves replicas that know only that path; remove it together with RECONCILER_POOL. If a
    step fails, the next start of the engine tries again.
    """
    former, here, link = root / _FORMER, root / ENDPOINTS, root / f".{_FORMER}.part"
    with suppress(OSError):
        if former.is_dir() and not former.is_symlink():
            if not link.is_symlink():
                link.symlink_to(ENDPOINTS)
            shutil.rmtree(here, ignore_errors=True)
            former.rename(here)
        if link.is_symlink():
            link.rename(former)


def _name(replica: Replica) -> str:
    return replica.name


def _endpoint(replica: Replica) -> Endpoint:
    ports = {str(declared): f"{ADDRESS}:{port}" for declared, port in replica.ports.items()}
    return Endpoint(replica.name, next(iter(ports.values())), ports, replica.version)
