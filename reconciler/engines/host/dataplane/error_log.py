"""Requests that the data plane itself answered with an error, as lines of their workload's logs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from reconciler.clock import Clock
from reconciler.engines.host.logs.collector import Collector
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind
from reconciler.private_files import make_directory

REPLICA, CONTAINER = "ingress", "haproxy"
"""The names of replica and container that the lines have."""

MOST = 50
"""Lines of a workload in one second; further ones are dropped, so that a flood fills no log."""

_SUFFIX = ".log"


class ErrorLog:
    """Appends lines to files below ``directory``, which ``collector`` stores."""

    def __init__(self, directory: Path, collector: Collector, clock: Clock) -> None:
        self._directory = directory
        self._collector = collector
        self._clock = clock
        self._known: set[Key] = set()
        self._second = 0
        self._lines: dict[Key, int] = {}

    def open(self) -> None:
        """Go on with the files of an earlier daemon."""
        for key in self._list_workloads():
            self._watch(key)

    def write(self, key: Key, line: str) -> None:
        """Append ``line`` to the log of a workload, as far as that is possible."""
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second = second
            self._lines.clear()
        count = self._lines[key] = self._lines.get(key, 0) + 1
        if count > MOST:
            return
        with suppress(OSError):
            self._append(key, line)

    def forget(self, key: Key) -> None:
        """Remove the file of a deleted workload; what is stored of it stays."""
        self._known.discard(key)
        self._collector.abandon(_make_container_id(key))
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _append(self, key: Key, line: str) -> None:
        path = self._path(key)
        if key not in self._known:
            make_directory(path.parent)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(file, f"{line}\n".encode())
        finally:
            os.close(file)
        self._watch(key)

    def _watch(self, key: Key) -> None:
        self._known.add(key)
        self._collector.watch(_make_container_id(key), self._path(key))

    def _list_workloads(self) -> Iterator[Key]:
        for path in list_paths(self._directory, f"*/*{_SUFFIX}"):
            yield Key(Kind.WORKLOAD, path.parent.name, path.name.removesuffix(_SUFFIX))

    def _path(self, key: Key) -> Path:
        return self._directory / key.gvc / f"{key.name}{_SUFFIX}"


def _make_container_id(key: Key) -> ContainerId:
    return ContainerId(key, REPLICA, CONTAINER)
