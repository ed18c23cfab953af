"""The backends that this host can have, and the one that a new volume gets."""

from __future__ import annotations

from pathlib import Path

from reconciler.engines.host.volumes.directory import DirectoryBackend
from reconciler.engines.host.volumes.layout import VolumeRecord
from reconciler.engines.host.volumes.protocol import Backend, BackendName, VolumeSpec


class Backends:
    """All backends. ``setting`` is auto or the BackendName for new volumes."""

    def __init__(self, root: Path, setting: str) -> None:
        self._all: dict[BackendName, Backend] = {BackendName.DIRECTORY: DirectoryBackend()}
        self._setting = setting
        self._root = root

    def probe(self) -> tuple[str, ...]:
        """Find out which backends work on this host; return what an operator must know."""
        return ("volumes are directories, which do not enforce their capacity",)

    def choose(self, wanted: VolumeSpec) -> BackendName:  # noqa: ARG002
        """The backend of a new volume."""
        return BackendName.DIRECTORY

    def named(self, name: BackendName) -> Backend:
        """The backend ``name``."""
        return self._all[name]

    def of(self, record: VolumeRecord) -> Backend:
        """The backend of a volume with ``record``."""
        return self.named(BackendName(record.backend))
