"""Mounts of containers, and where nothing can be mounted."""

from __future__ import annotations

from typing import NamedTuple

from reconciler.model.platform import RESERVED_PATHS, VOLUMESET_URI


class ConvertedMount(NamedTuple):
    """A mount: the URI and the path of a file or directory."""

    uri: str
    path: str


def is_volumeset(mount: ConvertedMount) -> bool:
    """Whether ``mount`` is a volume set."""
    return mount.uri.startswith(VOLUMESET_URI)


class _Folder:
    """A name of paths: the mount there, the first one below it, and the names below."""

    __slots__ = ("below", "first", "mount")

    def __init__(self) -> None:
        self.mount: ConvertedMount | None = None
        self.first: ConvertedMount | None = None
        self.below: dict[str, _Folder] = {}

    def inner(self, name: str, mount: ConvertedMount) -> _Folder:
        """The folder ``name`` below this one, on the way to ``mount``."""
        self.first = self.first or mount
        return self.below.setdefault(name, _Folder())

    def take(self, mount: ConvertedMount) -> None:
        """``mount`` is here."""
        self.mount = mount


class MountPaths:
    """The paths at which a container has mounts; each may be long, and there may be many."""

    def __init__(self) -> None:
        self._root = _Folder()

    def refusal(self, path: str) -> str:
        """Why ``path`` cannot be mounted too, "" where it can."""
        if path == "/":
            return "is the root"
        if path in RESERVED_PATHS:
            return "is reserved"
        folder = self._root
        for name in path.split("/"):
            if folder.mount is not None:
                return f"is inside or above the mount {folder.mount.path}"
            if name not in folder.below:
                return ""
            folder = folder.below[name]
        if folder.mount is not None:
            return f"is taken by {folder.mount.uri}"
        return f"is inside or above the mount {folder.first.path}" if folder.first is not None else ""

    def add(self, mount: ConvertedMount) -> None:
        """Remember ``mount``, whose path was not refused."""
        folder = self._root
        for name in mount.path.split("/"):
            folder = folder.inner(name, mount)
        folder.take(mount)
