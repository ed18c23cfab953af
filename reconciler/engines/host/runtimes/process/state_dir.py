"""The directory of each container on disk: what was started, what it writes, and how it ended.

Nothing here is synced: what a power cut takes away is about processes that it has ended too. Nothing is secret.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.host.state_migration import current_start_record
from reconciler.model.key import Key, Kind
from reconciler.private_files import make_directory

_RECORD, _CODE, _OUTPUT = "record.json", "code", "output"
_FRESH = f"{_RECORD}.new"
_NEVER = "never"
"""What stands in the file of the code until the wrapper has its script, and so keeps room for it on a full disk."""
_BEGAN = "-"
"""What the wrapper writes first."""


class StartRecord(msgspec.Struct, frozen=True):
    """A start of a container: the wrapper's number, start time in ticks and boot, and what was started.

    ``started`` in seconds of the monotonic clock. ``groups`` are its directories in the cgroup file systems.
    """

    place: ContainerId
    version: int
    config_hash: str
    index: int
    pid: int
    start: int
    boot: str
    started: float
    groups: tuple[str, ...] = ()
    ports: dict[int, int] = {}


class Code(msgspec.Struct, frozen=True):
    """What a wrapper has recorded: the exit code, None where nobody saw it; ``failed``: the program never began."""

    number: int | None
    failed: bool = False


_decoder = msgspec.json.Decoder(StartRecord)


class StateDirectory(msgspec.Struct, frozen=True):
    """The directories of one location, below ``top``."""

    top: Path

    def of(self, place: ContainerId) -> Path:
        """The directory of a container."""
        return self.replica(place.key, place.replica) / place.container

    def replica(self, key: Key, replica: str) -> Path:
        """The directory of a replica."""
        return self.top / key.gvc / key.name / replica

    def output(self, place: ContainerId) -> Path:
        """What the container has written."""
        return self.of(place) / _OUTPUT

    def prepare(self, place: ContainerId) -> tuple[int, int]:
        """Make room for a start; returns files for the output and the code, to be closed. Raises OSError."""
        folder = self.of(place)
        make_directory(folder)
        with suppress(FileNotFoundError):
            # The file of the last start becomes that of the next one: on a full disk there is no room for another.
            (folder / _RECORD).rename(folder / _FRESH)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        code = os.open(folder / _CODE, flags, 0o600)
        try:
            os.write(code, _NEVER.encode())
            os.ftruncate(code, len(_NEVER))
            os.lseek(code, 0, os.SEEK_SET)
            return os.open(folder / _OUTPUT, flags | os.O_APPEND, 0o600), code
        except OSError:
            os.close(code)
            raise

    def write(self, begun: StartRecord) -> None:
        """Record a start, whole or not at all. Raises OSError."""
        folder = self.of(begun.place)
        content = msgspec.json.encode(begun)
        with open(os.open(folder / _FRESH, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb", buffering=0) as file:
            file.write(content)
            file.truncate()
        (folder / _FRESH).replace(folder / _RECORD)

    def every(self) -> Iterator[StartRecord]:
        """All starts that are recorded; what cannot be read was never followed by a program."""
        for path in sorted(self.top.glob(f"*/*/*/*/{_RECORD}")):
            try:
                begun = _decoder.decode(current_start_record(path.read_bytes()))
            except (OSError, msgspec.DecodeError):
                continue
            yield begun

    def began(self, place: ContainerId) -> bool:
        """Whether the wrapper of the last start has got its script."""
        return self._written(place) != _NEVER

    def containers(self, key: Key, replica: str) -> list[str]:
        """The names of the containers of a replica that have directories."""
        folder = self.replica(key, replica)
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def replicas(self) -> list[tuple[Key, str]]:
        """The workload and name of each replica that has a directory."""
        found = (path.relative_to(self.top).parts for path in self.top.glob("*/*/*"))
        return sorted((Key(Kind.WORKLOAD, gvc, workload), replica) for gvc, workload, replica in found)

    def code(self, place: ContainerId) -> Code:
        """How the last start ended."""
        text = self._written(place).removeprefix(_BEGAN)
        number = text.removesuffix("!")
        return Code(int(number), number != text) if number.isdigit() else Code(None)

    def _written(self, place: ContainerId) -> str:
        try:
            return (self.of(place) / _CODE).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def write_code(self, place: ContainerId, code: int) -> None:
        """Record how a container ended that could not do it itself; nothing where there is no room."""
        try:
            with (self.of(place) / _CODE).open("r+b") as file:
                file.write(f"{_BEGAN}{code:<4}".encode())
        except OSError:
            return

    def remove(self, key: Key, replica: str) -> None:
        """Forget a replica, and its workload and GVC where nothing else of them is left. Raises OSError."""
        folder = self.replica(key, replica)
        if folder.exists():
            shutil.rmtree(folder)
        for parent in (folder.parent, folder.parent.parent):
            try:
                parent.rmdir()
            except OSError:
                return
