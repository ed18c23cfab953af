"""The versions of a resource in Git, and the fields that each wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reconciler.model.key import Key


class ResourceVersion(NamedTuple):
    """A commit that changed a resource: who wrote it and when (seconds since the epoch), and the fields it changed.

    ``fields`` is empty for a commit that ``added`` or ``removed`` the resource as a whole.
    """

    commit: str
    author: str
    subject: str
    at: float
    path: str
    fields: Sequence[str] = ()
    added: bool = False
    removed: bool = False


class BlamedField(NamedTuple):
    """A field that the file has: its line there, and the version that wrote it, None if it is older than the search.

    Values of secrets show as ``***``.
    """

    path: str
    value: Any
    line: int
    version: ResourceVersion | None


class ResourceHistory(NamedTuple):
    """Versions of a resource, newest first, and its fields in order of their lines.

    ``commits`` is how many commits were searched; ``is_whole`` whether that is the whole history of the file ``path``.
    """

    key: Key
    source: str
    path: str
    versions: Sequence[ResourceVersion]
    fields: Sequence[BlamedField]
    commits: int
    is_whole: bool
