"""Secrets whose values stand on this host: which of them have other values now than Git's last good revision had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from reconciler.errors import SourceError
from reconciler.model.kinds.secret import CREDENTIAL, FILE
from reconciler.model.revision import FileChange
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.records.tables.desired import Entry

_MARKS = (FILE.encode(), CREDENTIAL.encode())
"""One of them is in every manifest that leads to the host."""


class HostSecretChanges(msgspec.Struct, frozen=True):
    """What was found: secrets with ``other`` values than before, and those whose values are ``lost``."""

    other: list[Entry]
    lost: list[Entry]


def check_host_secrets(view: DesiredStateView) -> HostSecretChanges:
    """Read again what the secrets of the last good revision take from this host; ``view`` has no difference over it.

    Raises SourceError where Git cannot be read.
    """
    found = HostSecretChanges([], [])
    for entry in _host_backed_secrets(view) if view.bodies.decoder.host is not None else ():
        try:
            resource = view.bodies.resource(entry.key)
        except SourceError:
            found.lost.append(entry)
            continue
        if resource is not None and resource.digest != entry.digest:
            found.other.append(entry)
    return found


def _host_backed_secrets(view: DesiredStateView) -> Iterator[Entry]:
    """Secrets that may lead to the host. None of them is kept in the records, so these are the only ones to read."""
    records = view.index.records
    for key in records.secret_data.missing(view.index.source):
        entry = records.desired.get(key)
        if entry is not None:
            raw = view.bodies.decoder.blobs.read(entry.blob)
            if any(mark in raw for mark in _MARKS):
                yield entry


def with_host_secret_files(view: DesiredStateView, changes: Sequence[FileChange]) -> list[FileChange]:
    """``changes``, and the unchanged files of secrets that have other values now. Raises SourceError."""
    known = {change.path for change in changes}
    others = {entry.path: entry.blob for entry in check_host_secrets(view).other}
    return [*changes, *(FileChange(path, blob, blob) for path, blob in others.items() if path not in known)]
