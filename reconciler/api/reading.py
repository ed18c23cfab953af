"""What requests read: the records, and what is derived from them, made anew when the daemon has written."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import msgspec

from reconciler.access.rules import AccessRules, Grant, built_in_grants, policy_grants
from reconciler.access.selections import Selections
from reconciler.clock import Clock
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.group import Group
from reconciler.model.kinds.org import Org
from reconciler.model.record import Record
from reconciler.records.store import FILE, Records
from reconciler.settings import Settings
from reconciler.status.facts import FactsReader

_OF_ACCESS = (Kind.GROUP, Kind.POLICY, Kind.USER)


class RulesCache:
    """The rules of access, compiled once for all readers; after a change, only what it is about is read again."""

    def __init__(self, org: str) -> None:
        self._org = org
        self.selections = Selections()
        self._lock = threading.Lock()
        self._position = -1
        self._rules: AccessRules | None = None
        self._bodies: dict[str, Mapping[str, Any]] = {}
        self._grants: dict[str, tuple[Grant, ...]] = {}

    def rules(self, records: Records) -> AccessRules:
        """The rules as ``records`` show them, or newer ones; the same value until a policy, group or user changes."""
        newest = records.changes.newest()
        with self._lock:
            # A reader in a snapshot may be behind another one.
            if self._rules is None or newest > self._position:
                self._rules = self._update(records)
                self._position = newest
            return self._rules

    def _update(self, records: Records) -> AccessRules:
        if self._rules is None or not records.changes.has_all_after(self._position):
            self._bodies.clear()
            self._grants.clear()
            self._read({str(record.key): record for kind in _OF_ACCESS for record in records.applied.items(kind)})
            # The collector would search thousands of policies for cycles again and again: pauses of 40 ms.
            gc.freeze()
        elif changed := records.changes.list_edited(self._position, _OF_ACCESS):
            many = records.applied.get_many(changed)
            self._read({key: many[key][0] if key in many else None for key in changed})
        else:
            return self._rules
        grants = chain(built_in_grants(), *self._grants.values())
        users = {key: body for key, body in self._bodies.items() if key.startswith(f"{Kind.USER}/")}
        groups = {
            Key.parse(key): msgspec.convert(body, Group) for key, body in self._bodies.items() if key not in users
        }
        return AccessRules(grants, groups, users, self._org)

    def _read(self, changed: Mapping[str, Record | None]) -> None:
        """Read what ``changed``; None is what is gone."""
        for key, record in changed.items():
            self._bodies.pop(key, None)
            self._grants.pop(key, None)
            if record is None:
                continue
            if record.key.kind is Kind.POLICY:
                self._grants[key] = tuple(policy_grants(record.key, body_of(record), self._org))
            else:
                self._bodies[key] = body_of(record)


class Reader:
    """Reads on one connection of one thread. Raises RecordsError."""

    def __init__(self, settings: Settings, clock: Clock, rules: RulesCache) -> None:
        self._settings = settings
        self._rules = rules
        self.selections = rules.selections
        self.records = Records.open(settings.state / FILE, read_only=True, clock_now=clock.now, expiry=clock.expiry)
        self._version = -1
        self._in_snapshot = False
        self._facts: FactsReader | None = None
        self._access: AccessRules | None = None

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
        """The rules of access of this moment."""
        self._refresh()
        if self._access is None:
            self._access = self._rules.rules(self.records)
        return self._access

    def _refresh(self) -> None:
        version = self._version if self._in_snapshot else self.records.data_version()
        if version != self._version:
            self._version, self._facts, self._access = version, None, None


def body_of(record: Record) -> dict[str, Any]:
    """The manifest as last applied, in normal form."""
    body: dict[str, Any] = msgspec.json.decode(record.body)
    return body


def org_of(records: Records, org: str) -> Org:
    """The manifest of the org as applied; its defaults if there is none."""
    for record in records.applied.get(Key(Kind.ORG, "", org)):
        return msgspec.json.decode(record.body, type=Org)
    return Org()
