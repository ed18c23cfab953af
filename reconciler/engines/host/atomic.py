"""Small files, written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from reconciler.errors import EngineError


def write_atomic(path: Path, content: bytes, mode: int, folder: int = 0o700) -> None:
    """Put ``content`` in the place of what is at ``path``; its folder is made with mode ``folder`` where it is missing.

    It outlives a kill of the daemon, not a power cut, which ends all that it is about. Raises EngineError.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=folder)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
        part.replace(path)
    except OSError as error:
        raise failed(f"{path} cannot be written", error) from None


def failed(what: str, error: OSError) -> EngineError:
    """``what``, and why: with the reason DiskFull where there is no room, NoRights where that is what is missing."""
    reason = {errno.ENOSPC: "DiskFull", errno.EDQUOT: "DiskFull", errno.EACCES: "NoRights", errno.EPERM: "NoRights"}
    return EngineError(f"{what}: {error.strerror}", reason=reason.get(error.errno or 0, "StateFailed"))
