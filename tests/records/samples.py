"""Short ways to write a record, an entry, a failure, an event."""

from __future__ import annotations

from reconciler.model.key import Key
from reconciler.model.record import Failure, Health, Record
from reconciler.model.resource import Reference
from reconciler.reasons import Reason
from reconciler.records.tables.desired import DesiredEntry
from reconciler.records.tables.events import NewEvent


def record(
    key: str, location: str = "", *, source: str = "main", digest: str = "d1", health: Health = Health.HEALTHY
) -> Record:
    return Record(
        key=Key.parse(key),
        location=location,
        source=source,
        digest=digest,
        body=b'{"name":"x"}',
        version=3,
        engine="recorded",
        health=health,
        state=b'{"ready":true}',
        alias="abcdefghijklm" if key.startswith("gvc/") else "",
        revision="c0ffee",
        applied_at=12.5,
    )


def entry(
    key: str, path: str, *targets: str, source: str = "main", digest: str = "d1", position: int = 0
) -> DesiredEntry:
    references = tuple(Reference(target, f"/spec/{n}") for n, target in enumerate(targets))
    return DesiredEntry(key, source, path, position, 1 + position, f"blob of {path}", digest, references)


def failure(key: str, location: str = "", *, next_attempt: float = 5.0, retry: bool = True) -> Failure:
    return Failure(Key.parse(key), location, Reason.ENGINE_FAILED, "no answer", 2, 1.0, next_attempt, retry)


def event(key: str, message: str = "as asked") -> NewEvent:
    return NewEvent(key, Reason.CREATED, message, run=7)
