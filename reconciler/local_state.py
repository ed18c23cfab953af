"""Where `reconciler up` keeps the settings and the state of a repository, for all commands that look for its daemon."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

SETTINGS_FILE = "settings.yaml"
ORIGIN_FILE = "origin"
"""In the state directory of what is converted: the directory that the files are in."""
_ROOT_BASE = Path("/var/lib/reconciler-up")
"""For root: other users may enter it, as replicas of the default user have to, unlike root's home."""
_SHORTENED = 8
_LONGEST_NAME = 12
"""Sockets are below the state directory, and the path of a socket has at most 107 bytes."""


def find_state_base() -> Path:
    """The directory that has one directory for each repository: of this user, or of root."""
    if named := os.environ.get("XDG_STATE_HOME"):
        return Path(named) / "reconciler"
    return _ROOT_BASE if os.geteuid() == 0 else Path.home() / ".local" / "state" / "reconciler"


def find_state(key: str) -> Path:
    """The state directory for ``key``: the URL of a repository, or another name of what is followed."""
    digest = hashlib.blake2b(key.encode(), digest_size=_SHORTENED // 2).hexdigest()
    name = re.sub(r"(\.git)?/*$", "", key).rpartition("/")[2] or "repository"
    return find_state_base() / f"{name[:_LONGEST_NAME]}-{digest}"


def find_settings_here() -> Path | None:
    """The settings that `up` wrote for the working directory; None where there are none."""
    try:
        return find_settings_of(Path.cwd())
    except FileNotFoundError:
        return None


def find_settings_of(directory: Path) -> Path | None:
    """The settings that `up` wrote for the repository of ``directory``, or for files in it or in a directory above.

    Of several those that were written last; None where there are none.
    """
    roots = [folder for folder in (directory, *directory.parents) if (folder / ".git").exists()]
    states = [find_state(str(folder)) for folder in roots[:1]]
    for file in find_state_base().glob(f"*/{ORIGIN_FILE}") if os.access(find_state_base(), os.R_OK) else ():
        origin = find_origin(file.parent)
        if origin and (directory.is_relative_to(origin) or (roots and origin.is_relative_to(roots[0]))):
            states.append(file.parent)
    files = [state / SETTINGS_FILE for state in states if os.access(state / SETTINGS_FILE, os.R_OK)]
    return max(files, key=lambda file: file.stat().st_mtime, default=None)


def find_origin(state: Path) -> Path | None:
    """The directory of the files that `up` converts into the state directory ``state``; None where it converts none."""
    with suppress(OSError):
        return Path((state / ORIGIN_FILE).read_text(encoding="utf-8").removesuffix("\n"))
    return None
