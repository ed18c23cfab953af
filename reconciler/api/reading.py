"""What requests read: the records, and what is derived from them, made anew when the daemon has written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from reconciler.access.rules import AccessRules, built_in_grants, policy_grants
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.group import Group
from reconciler.model.record import Record
from reconciler.records.store import FILE, Records
from reconciler.settings import Settings
from reconciler.status.facts import FactsReader

_OF_ACCESS = (Kind.GROUP, Kind.POLICY, Kind.USER)


class Reader:
    """Reads on one connection of one thread. Raises RecordsError."""

    def __init__(self, settings: Settings, now: Callable[[], float]) -> None:
        self._settings = settings
        self.records = Records.open(settings.state / FILE, read_only=True, clock_now=now)
        self._version = -1
        self._in_snapshot = False
        self._facts: FactsReader | None = None
        self._access: AccessRules | None = None
        self._compiled: AccessRules | None = None
        self._fingerprint: tuple[tuple[str, str], ...] = ()

    def close(self) -> None:
        """Close the connection."""
        self.records.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Reads within it see a single moment, and cost less than separate ones."""
        with self.records.snapshot():
            self._refresh()
            self._in_snapshot = True
            try:
                yield
            finally:
                self._in_snapshot = False

    def facts(self) -> FactsReader:
        """Facts of this moment; shared data is read again after each write of the daemon."""
        self._refresh()
        if self._facts is None:
            self._facts = FactsReader(self.records, self._settings)
        return self._facts

    def access(self) -> AccessRules:
        """The rules of access of this moment, compiled again when a policy, group or user changes."""
        self._refresh()
        if self._access is None:
            fingerprint = self.records.applied.fingerprint(_OF_ACCESS)
            if self._compiled is None or fingerprint != self._fingerprint:
                self._compiled, self._fingerprint = self._compile(), fingerprint
            self._access = self._compiled
        return self._access

    def _refresh(self) -> None:
        version = self._version if self._in_snapshot else self.records.data_version()
        if version != self._version:
            self._version, self._facts, self._access = version, None, None

    def _compile(self) -> AccessRules:
        org = self._settings.org
        grants = list(built_in_grants())
        for key, body in self._bodies(Kind.POLICY).items():
            grants += policy_grants(key, body, org)
        groups = {key: msgspec.convert(body, Group) for key, body in self._bodies(Kind.GROUP).items()}
        users = {str(key): body for key, body in self._bodies(Kind.USER).items()}
        return AccessRules(grants, groups, users, org)

    def _bodies(self, kind: Kind) -> dict[Key, Mapping[str, Any]]:
        return {record.key: body_of(record) for record in self.records.applied.items(kind)}


def body_of(record: Record) -> dict[str, Any]:
    """The manifest as last applied, in normal form."""
    body: dict[str, Any] = msgspec.json.decode(record.body)
    return body
