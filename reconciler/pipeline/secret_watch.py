"""Secrets whose values stand on this host: which of them have other values now than Git's last good revision had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from reconciler.bugs import internal_error
from reconciler.clock import Clock
from reconciler.errors import InternalError, RecordsError, SourceError
from reconciler.model.kinds.secret import CREDENTIAL, FILE
from reconciler.model.revision import FileChange
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.records.store import Records
from reconciler.records.tables.desired import Entry
from reconciler.records.tables.events import Event
from reconciler.records.tables.suspensions import source_target

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
    for entry in _host_backed_secrets(view) if view.host is not None else ():
        try:
            resource = view.resource(entry.key)
        except SourceError:
            found.lost.append(entry)
            continue
        if resource is not None and resource.digest != entry.digest:
            found.other.append(entry)
    return found


def _host_backed_secrets(view: DesiredStateView) -> Iterator[Entry]:
    """Secrets that may lead to the host. None of them is kept in the records, so these are the only ones to read."""
    for key in view.records.secret_data.missing(view.source):
        entry = view.records.desired.get(key)
        if entry is not None:
            raw = view.blobs.read(entry.blob)
            if any(mark in raw for mark in _MARKS):
                yield entry


def with_host_secret_files(view: DesiredStateView, changes: Sequence[FileChange]) -> list[FileChange]:
    """``changes``, and the unchanged files of secrets that have other values now. Raises SourceError."""
    known = {change.path for change in changes}
    others = {entry.path: entry.blob for entry in check_host_secrets(view).other}
    return [*changes, *(FileChange(path, blob, blob) for path, blob in others.items() if path not in known)]


class HostSecretMonitor:
    """Looks at what secrets take from this host. ``views`` make, by source, a view without a difference over it."""

    def __init__(self, records: Records, clock: Clock, views: Mapping[str, Callable[[], DesiredStateView]]) -> None:
        self._records = records
        self._clock = clock
        self._views = views
        self._lost: set[str] = set()
        self._bugs: dict[str, str] = {}

    def check(self) -> set[str]:
        """The sources whose secrets have other values now. What is lost is told, once. Raises RecordsError."""
        changed: set[str] = set()
        lost: dict[str, str] = {}
        for name, view in self._views.items():
            try:
                found = check_host_secrets(view())
            except SourceError:  # whoever polls the source tells of that
                continue
            except RecordsError:
                raise
            except Exception as error:  # noqa: BLE001 - the secrets of the other sources are read
                self._on_bug(name, internal_error(error, f"secrets of {name}"))
                continue
            changed |= {name} if found.other else set()
            lost |= {entry.key: f"{entry.path}:{entry.line}" for entry in found.lost}
        news, self._lost = sorted(lost.keys() - self._lost), set(lost)
        if news:
            words, now = "can no longer be read on this host; what was applied stays", self._clock.now()
            told = (Event(now, 0, key, "", "Warning", "SecretLost", f"{lost[key]}: {words}") for key in news)
            self._records.events.add_many(told)
        return changed

    def _on_bug(self, name: str, bug: InternalError) -> None:
        """Append the event of a bug, once for each source and place."""
        if self._bugs.get(name) != bug.place:
            self._bugs[name] = bug.place
            message = f"its secrets on this host cannot be watched: {bug}"
            event = Event(self._clock.now(), 0, source_target(name), "", "Warning", bug.reason, message)
            self._records.events.add_many([event])
