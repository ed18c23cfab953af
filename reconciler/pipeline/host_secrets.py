"""Finds secrets stored on this host whose values changed since the last good revision was applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from reconciler.errors import SourceError
from reconciler.model.kinds.secret import CREDENTIAL, FILE
from reconciler.model.revision import FileChange
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.records.tables.desired import DesiredEntry

_MARKS = (FILE.encode(), CREDENTIAL.encode())
"""Every manifest that refers to the host contains one of them."""


class HostSecretChanges(msgspec.Struct, frozen=True):
    """Index entries of secrets whose values changed (``other``), and of those whose values are ``lost``."""

    other: list[DesiredEntry]
    lost: list[DesiredEntry]


def check_host_secrets(view: DesiredStateView) -> HostSecretChanges:
    """Read again the values that secrets of the last good revision have on this host; ``view`` has no change set.

    Raises SourceError if Git cannot be read.
    """
    changes = HostSecretChanges([], [])
    for entry in _host_backed_secrets(view) if view.bodies.decoder.host is not None else ():
        try:
            resource = view.bodies.resource(entry.key)
        except SourceError:
            # One secret that cannot be read must not hide the changes of the others.
            changes.lost.append(entry)
            continue
        if resource is not None and resource.digest != entry.digest:
            changes.other.append(entry)
    return changes


def _host_backed_secrets(view: DesiredStateView) -> Iterator[DesiredEntry]:
    """Secrets that may refer to the host. Their values are never recorded, so only secrets without values are read."""
    records = view.index.records
    for key in records.secret_data.missing(view.index.source):
        entry = records.desired.get(key)
        if entry is not None:
            raw = view.bodies.decoder.blobs.read(entry.blob)
            if any(mark in raw for mark in _MARKS):
                yield entry


def with_host_secret_files(view: DesiredStateView, changes: Sequence[FileChange]) -> list[FileChange]:
    """``changes`` plus the unchanged files of secrets with changed values. Raises SourceError."""
    paths = {change.path for change in changes}
    others = {entry.path: entry.blob for entry in check_host_secrets(view).other}
    # Git sees no change in these files: the same blob before and after makes them be read again.
    return [*changes, *(FileChange(path, blob, blob) for path, blob in others.items() if path not in paths)]
