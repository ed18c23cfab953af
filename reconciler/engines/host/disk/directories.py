"""Directories that the users of containers traverse: created with their parents, and replaced whole."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from reconciler.engines.host.disk.removal import remove
from reconciler.private_files import check_state_exists


def file_name(name: str) -> str:
    """``name`` as a file name. Raises OSError if it would lead to another directory."""
    if "/" in name or name in ("", ".", "..") or "\0" in name:
        raise OSError(0, f"{name[:60]!r} is not the name of a file")
    return name


def make_traversable(path: Path) -> None:
    """Create ``path`` and its parents, which others can traverse but not list. Raises OSError."""
    if not path.is_dir():
        check_state_exists(path)
        make_traversable(path.parent)
        path.mkdir(mode=0o711, exist_ok=True)


def make_replacement(path: Path) -> Path:
    """Create an empty temporary directory beside ``path``, for ``replace_directory``. Raises OSError."""
    make_traversable(path.parent)
    fresh = path.with_name(f".{path.name}.new")
    remove(fresh)
    fresh.mkdir(mode=0o711)
    return fresh


def replace_directory(path: Path, fresh: Path) -> None:
    """Replace ``path``, if it exists, with ``fresh``. Raises OSError."""
    old = path.with_name(f".{path.name}.old")
    remove(old)
    with suppress(FileNotFoundError):
        path.rename(old)
    fresh.rename(path)
    remove(old)


def remove_empty(path: Path, base: Path) -> None:
    """Remove ``path`` and its parents up to ``base``, as long as they are empty."""
    with suppress(OSError):
        while path.is_relative_to(base):
            path.rmdir()
            path = path.parent
