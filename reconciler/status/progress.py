"""Finds what is still in progress; `reconciler apply --wait` waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reconciler.engines.engine_state import message_of
from reconciler.model.key import PLACED, Key
from reconciler.model.record import Health, Record
from reconciler.records.store import Records

_WORDS = {
    Health.LOADING: "loading",
    Health.DELETING: "deleting",
    Health.UNHEALTHY: "not healthy",
    Health.UNKNOWN: "health is not known",
}


class UnhealthyResource(msgspec.Struct, frozen=True):
    """A resource that is not as desired at one location (``""``: none), and why; ``loads``: it is on its way."""

    key: Key
    location: str
    message: str
    loads: bool = False

    @property
    def target(self) -> str:
        """``workload/shop/api@local``."""
        return f"{self.key}@{self.location}" if self.location else str(self.key)


def recheck_at(records: Records) -> float | None:
    """When to check again what may recover by itself (seconds since the epoch; 0: soon); None if there is nothing.

    That is a failed step that waits for its retry, and every unhealthy resource. A resource without a location on this
    host never is, and neither is one that is no longer in Git and not being deleted: that waits for a person.
    """
    due = records.failures.next_attempt()
    if due is not None:
        return due
    return None if next(_not_healthy(records), None) is None else 0.0


def unhealthy_resources(records: Records) -> Iterator[UnhealthyResource]:
    """The reasons for ``recheck_at``: failed steps that wait for their retry, then unhealthy resources, each by key."""
    failed = set()
    for failure in records.failures.all() if records.failures.count() else ():
        if failure.retry:
            failed.add((failure.key, failure.location))
            yield UnhealthyResource(failure.key, failure.location, f"{failure.reason}: {failure.message}")
    for record in _not_healthy(records):
        if (record.key, record.location) not in failed:
            message = message_of(record.state) or _WORDS[record.health]
            yield UnhealthyResource(record.key, record.location, message, record.health is Health.LOADING)


def _not_healthy(records: Records) -> Iterator[Record]:
    ill = {kind for kind, health in records.applied.counts() if not health.is_good}
    for kind in sorted(ill):
        for record in records.applied.items(kind):
            is_bad = not record.health.is_good and (record.location or record.key.kind not in PLACED)
            if is_bad and (record.health is Health.DELETING or records.desired.get(record.key) is not None):
                yield record
