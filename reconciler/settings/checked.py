"""Remembers which settings fit their schema: that check is a fifth of what a command beside a daemon costs."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from reconciler import __version__
from reconciler.errors import UsageError
from reconciler.private_files import open_regular

FILE = "settings.checked"
"""In the state directory: the digest of settings that fit. A torn or lost file costs a check, and nothing else."""


def was_checked(raw: bytes, state: Path) -> bool:
    """Whether the daemon of the directory ``state`` has found that the settings ``raw`` fit their schema."""
    try:
        file = open_regular(state / FILE, os.O_RDONLY)
    except (OSError, UsageError):
        return False
    digest = _digest(raw)
    with open(file, "rb") as stored:
        return stored.read(len(digest) + 1) == digest


def remember_checked(path: Path, state: Path) -> None:
    """Check the settings at ``path``, and remember in the directory ``state``, whose lock is held, that they fit.

    Does nothing if they do not fit, or if a file cannot be read or written.
    """
    from reconciler.documents.limits import read_within
    from reconciler.documents.reader import read
    from reconciler.documents.schema.validator import is_valid

    with suppress(OSError, UsageError):
        raw = read_within(path)
        if was_checked(raw, state):
            return
        reading = read(raw)
        if not reading.faults and len(reading.documents) == 1 and is_valid("settings", reading.documents[0].value):
            with open(open_regular(state / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                file.write(_digest(raw))


def _digest(raw: bytes) -> bytes:
    """Of ``raw``, and of what it was checked against."""
    from reconciler.documents.schema.loader import schema_path

    schema = schema_path("settings").read_bytes()
    known = hashlib.blake2b(digest_size=32)
    for part in (__version__.encode(), schema, raw):
        known.update(b"%d:%b" % (len(part), part))
    return known.hexdigest().encode()
