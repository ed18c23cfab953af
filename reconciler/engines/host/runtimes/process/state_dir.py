"""The directory of each container on disk: its start record, its output and its exit code.

Nothing here is synced: a power cut also ends the processes that the files describe. Nothing is secret.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.runtimes.outputs import OUTPUT
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind
from reconciler.private_files import make_directory

_RECORD, _CODE = "record.json", "code"
_FRESH = f"{_RECORD}.new"
_NEVER = "never"
"""Content of the code file until the wrapper has its script; it also reserves room for the code on a full disk."""
_BEGAN = "-"
"""The first character that the wrapper writes."""
_EXIT_CODE, _LONGEST_CODE = re.compile(r"[0-9]{1,3}"), 64


class StartRecord(msgspec.Struct, frozen=True):
    """A start of a container: the wrapper's process number, start time in ticks and boot, and the container.

    ``started`` is in seconds of the monotonic clock. ``groups`` are its directories in the cgroup file systems.
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
    """The recorded exit code, None if there is none; ``failed``: the program never started."""

    number: int | None
    failed: bool = False


def _read_record(path: Path) -> StartRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=StartRecord)
    except (OSError, msgspec.DecodeError):
        return None


class StateDirectory(msgspec.Struct, frozen=True):
    """The directories of one location, below ``top``."""

    top: Path

    def of(self, container_id: ContainerId) -> Path:
        """The directory of a container."""
        return self.replica(container_id.key, container_id.replica) / container_id.container

    def replica(self, key: Key, replica: str) -> Path:
        """The directory of a replica."""
        return self.top / key.gvc / key.name / replica

    def output(self, container_id: ContainerId) -> Path:
        """The output file of the container."""
        return self.of(container_id) / OUTPUT

    def prepare(self, container_id: ContainerId) -> tuple[int, int]:
        """Prepare a start; returns open files for the output and the code, which the caller closes. Raises OSError."""
        folder = self.of(container_id)
        make_directory(folder)
        with suppress(FileNotFoundError):
            # Reuse the file of the last start: a full disk has no room for another one.
            (folder / _RECORD).rename(folder / _FRESH)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        code = os.open(folder / _CODE, flags, 0o600)
        try:
            os.write(code, _NEVER.encode())
            os.ftruncate(code, len(_NEVER))
            os.lseek(code, 0, os.SEEK_SET)
            output = os.open(folder / OUTPUT, flags | os.O_APPEND, 0o600)
        except OSError:
            os.close(code)
            raise
        with suppress(OSError):
            # The program of another user opens it again as /dev/stdout; all others have no way to it, since the
            # directory of all starts is closed to them.
            os.fchmod(output, 0o622)
        return output, code

    def write(self, begun: StartRecord) -> None:
        """Record a start, completely or not at all. Raises OSError."""
        folder = self.of(begun.place)
        content = msgspec.json.encode(begun)
        with open(os.open(folder / _FRESH, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb", buffering=0) as file:
            file.write(content)
            file.truncate()
        (folder / _FRESH).replace(folder / _RECORD)

    def records(self) -> Iterator[StartRecord]:
        """All recorded starts; an unreadable record belongs to no program that ever ran."""
        for path in list_paths(self.top, f"*/*/*/*/{_RECORD}"):
            if (begun := _read_record(path)) is not None:
                yield begun

    def records_of(self, key: Key) -> Iterator[StartRecord]:
        """The recorded starts of one workload."""
        for path in list_paths(self.top / key.gvc / key.name, f"*/*/{_RECORD}"):
            if (begun := _read_record(path)) is not None:
                yield begun

    def record(self, container_id: ContainerId) -> StartRecord | None:
        """The last recorded start of a container; None without one."""
        return _read_record(self.of(container_id) / _RECORD)

    def began(self, container_id: ContainerId) -> bool:
        """Whether the wrapper of the last start has received its script."""
        return self._read_code(container_id) != _NEVER

    def containers(self, key: Key, replica: str) -> list[str]:
        """The names of the containers of a replica that have directories."""
        return [path.name for path in list_paths(self.replica(key, replica), "*")]

    def replicas(self) -> list[tuple[Key, str]]:
        """The workload and name of each replica that has a directory."""
        parts = (path.relative_to(self.top).parts for path in list_paths(self.top, "*/*/*"))
        return sorted((Key(Kind.WORKLOAD, gvc, workload), replica) for gvc, workload, replica in parts)

    def code(self, container_id: ContainerId) -> Code:
        """How the last start ended."""
        text = self._read_code(container_id).removeprefix(_BEGAN)
        number = text.removesuffix("!")
        # The wrapper has the user of the workload, which can write whatever it likes.
        return Code(int(number), number != text) if _EXIT_CODE.fullmatch(number) else Code(None)

    def _read_code(self, container_id: ContainerId) -> str:
        try:
            with (self.of(container_id) / _CODE).open("rb") as file:
                return file.read(_LONGEST_CODE).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def write_code(self, container_id: ContainerId, code: int) -> None:
        """Record the exit code of a container whose wrapper could not; does nothing on a full disk."""
        try:
            with (self.of(container_id) / _CODE).open("r+b") as file:
                file.write(f"{_BEGAN}{code:<4}".encode())
        except OSError:
            return

    def remove(self, key: Key, replica: str) -> None:
        """Delete a replica, and its workload and GVC directories if they are empty. Raises OSError."""
        folder = self.replica(key, replica)
        if folder.exists():
            shutil.rmtree(folder)
        for parent in (folder.parent, folder.parent.parent):
            try:
                parent.rmdir()
            except OSError:
                return
