"""Inhibition: nothing is said about members while what they belong to is held, or cannot be reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reconciler.notifications.message import EventType
from reconciler.notifications.rules import gvc_of
from reconciler.reasons import Reason
from reconciler.records.notifications.troubles import Trouble
from reconciler.records.store import Records
from reconciler.records.tables.suspensions import source_target

_AT_LOCATIONS = frozenset({EventType.HEALTH, EventType.DRIFT, EventType.CRON, EventType.VOLUME})
"""Events about what runs at a location: while it does not answer, nobody knows how that is."""


class Inhibition(NamedTuple):
    """What is ``suspended`` (targets as text), and the ``locations`` that do not answer."""

    suspended: frozenset[str]
    locations: frozenset[str]

    def covers(self, trouble: Trouble) -> bool:
        """Whether nothing is said about ``trouble`` now."""
        if trouble.location in self.locations and EventType(trouble.event) in _AT_LOCATIONS:
            return True
        return self.covers_key(trouble.key, trouble.source)

    def covers_key(self, key: str, source: str) -> bool:
        """Whether the resource ``key`` of ``source`` is suspended, or its GVC, or the source."""
        if not self.suspended:
            return False
        return not self.suspended.isdisjoint({key, f"gvc/{gvc_of(key)}", source_target(source)})


def read_inhibition(records: Records, returning: Mapping[str, float]) -> Inhibition:
    """What inhibits messages now; locations that are ``returning`` answer again, and are observed soon."""
    suspended = frozenset(suspension.target for suspension in records.suspensions.all())
    lost = records.troubles.list_keys(str(EventType.DAEMON), str(Reason.LOCATION_UNREACHABLE))
    locations = {key.removeprefix("location/") for key in lost if key.startswith("location/")}
    return Inhibition(suspended, frozenset(locations | returning.keys()))
