"""The daemon that writes a status branch: its identity, in the state directory and on the branch."""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from reconciler.errors import SourceError, StatusBranchTaken, UsageError
from reconciler.printable import escape_text
from reconciler.private_files import check_regular, make_directory, open_regular
from reconciler.status.yaml_text import quote_text, without_controls

IDENTITY_FILE = "daemon.json"
"""In the state directory: the identity of the daemon there, so that lost records do not change it."""

RUN_FILE = "reconciler.yaml"
"""On the branch: the file of the source as a whole, which names the writer."""

_MACHINE_FILES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_CONTAINER_MARKS = (Path("/run/.containerenv"), Path("/.dockerenv"))
"""In a container, the id of the machine is that of an image, and another one after an upgrade."""
_BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")
_WRITER = re.compile(r"\ndaemon:\n  id: (.+)\n  host: (.*)\n  state: (.*)\n")
_LONGEST = 200
"""The most characters of a field from a branch that are shown."""


class Writer(msgspec.Struct, frozen=True):
    """A daemon that writes status: its ``id``, and for people its ``host`` and state directory ``state``."""

    id: str
    host: str
    state: str

    def __str__(self) -> str:
        return f"the daemon {self.id} on {self.host} (state directory {self.state})"


class _Identity(msgspec.Struct, frozen=True):
    """What the file has; ``machine`` is a hash of the id of the machine, "" where it has none."""

    id: str
    machine: str
    directory: str


def identify_writer(state: Path) -> Writer:
    """The daemon with the state directory ``state``; the file of its identity is written if it is missing.

    A state directory that was copied, to this machine or to another one, has another identity: the original may still
    run. One that was moved on this machine, lost its records, or was emptied keeps it. Raises SourceError.
    """
    directory, machine = str(state.resolve()), _read_machine()
    stored = _read_identity(state / IDENTITY_FILE)
    if stored is not None and _is_same_machine(stored.machine, machine) and _is_same_directory(stored, directory):
        if stored.directory == directory:
            return Writer(stored.id, socket.gethostname(), directory)
        identity = _Identity(stored.id, machine, directory)
    else:
        identity = _Identity(_derive_id(machine, directory), machine, directory)
    _write_identity(state / IDENTITY_FILE, identity)
    return Writer(identity.id, socket.gethostname(), directory)


def format_writer(writer: Writer) -> list[str]:
    """The lines of ``writer`` in ``reconciler.yaml``."""
    return [
        "daemon:",
        f"  id: {quote_text(writer.id)}",
        f"  host: {quote_text(writer.host)}",
        f"  state: {quote_text(writer.state)}",
    ]


def read_writer(file: bytes | None) -> Writer | None:
    """The writer in a ``reconciler.yaml``; None if it names none, as those of earlier versions."""
    found = _WRITER.search((file or b"").decode(errors="replace"))
    return None if found is None else Writer(*map(_unquote_text, found.groups()))


def refuse_other_writer(file: bytes | None, writer: Writer, branch: str) -> None:
    """Raise SourceError if another daemon than ``writer`` wrote ``file``, the ``reconciler.yaml`` of ``branch``."""
    other = read_writer(file)
    if other is None or other.id == writer.id:
        return
    raise StatusBranchTaken(
        f"{other} writes the branch {branch}, so this one, {writer.id}, writes nothing there; give one of them another "
        "status.branch, or if that daemon is gone, take the branch over: reconciler apply --take-status-branch"
    )


def _read_machine() -> str:
    """A hash of the id of this machine; "" where it has none that lasts."""
    if "KUBERNETES_SERVICE_HOST" in os.environ or any(mark.exists() for mark in _CONTAINER_MARKS):
        return ""
    for file in _MACHINE_FILES:
        with suppress(OSError):
            if text := file.read_text().strip():
                return _hash_text(text)
    return ""


def _derive_id(machine: str, directory: str) -> str:
    """Equal for one directory of one machine, also if everything in it was lost; without an id, until it boots."""
    boot = ""
    if not machine:
        with suppress(OSError):
            boot = _BOOT_FILE.read_text().strip()
    return _hash_text("\0".join((machine or boot, socket.gethostname(), directory)))


def _hash_text(text: str) -> str:
    return blake2b(text.encode(errors="surrogateescape"), digest_size=6, person=b"reconciler").hexdigest()


def _is_same_machine(one: str, other: str) -> bool:
    return not one or not other or one == other


def _is_same_directory(stored: _Identity, directory: str) -> bool:
    """Whether the state directory is where it was, or was moved: at its old place is none with the same identity."""
    if stored.directory == directory:
        return True
    left = _read_identity(Path(stored.directory) / IDENTITY_FILE)
    return left is None or left.id != stored.id


def _read_identity(file: Path) -> _Identity | None:
    """The identity in ``file``; None where it is missing or damaged: the derived one is mostly the same."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=_Identity)
    return None


def _write_identity(file: Path, identity: _Identity) -> None:
    part = file.with_name(f"{file.name}.part")
    try:
        make_directory(file.parent)
        check_regular(file)
        with os.fdopen(open_regular(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as output:
            output.write(msgspec.json.encode(identity) + b"\n")
        part.replace(file)
    except UsageError as error:
        raise SourceError(str(error)) from None
    except OSError as error:
        raise SourceError(f"{file} cannot be written: {error.strerror or error}") from None


def _unquote_text(text: str) -> str:
    """A quoted text of the file, for people: without control characters, and not longer than it helps."""
    with suppress(ValueError):
        text = str(json.loads(text))
    return escape_text(without_controls(text))[:_LONGEST]
