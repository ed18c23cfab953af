"""Mounts of containers, and where nothing can be mounted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reconciler.model.platform import RESERVED_PATHS, VOLUMESET_URI


class Mount(NamedTuple):
    """A mount: the URI and the path of a file or directory."""

    uri: str
    path: str


def is_volumeset(mount: Mount) -> bool:
    """Whether ``mount`` is a volume set."""
    return mount.uri.startswith(VOLUMESET_URI)


def refused(path: str, before: Sequence[Mount]) -> str:
    """Why ``path`` cannot be mounted in addition to the mounts ``before``, "" where it can."""
    if path == "/":
        return "is the root"
    if path in RESERVED_PATHS:
        return "is reserved"
    for other in before:
        if other.path == path:
            return f"is taken by {other.uri}"
        if f"{path}/".startswith(f"{other.path}/") or f"{other.path}/".startswith(f"{path}/"):
            return f"is inside or above the mount {other.path}"
    return ""
