"""Checks of the audit log and of the records of audit contexts: that nobody changed or removed an entry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from reconciler.access.store import FILE, AccessStore
from reconciler.clock import Clock
from reconciler.doctor.check import Check, fine, problem
from reconciler.errors import RecordsError

SHOWN = 5
"""Numbers of broken entries in a message."""

_ABOUT = "audit log"
_ADVICE = "compare with an export or a backup, and find out who can write to the state directory"


def check_audit(state: Path, clock: Clock) -> Iterator[Check]:
    """Check the chain of hashes of the audit log in the directory ``state``, and of each audit context."""
    if not (state / FILE).exists():
        return
    try:
        with closing(AccessStore.open(state, clock.now, read_only=True)) as store:
            broken = list(_broken(_ABOUT, store.broken_audit()))
            for context in store.audit_records.contexts():
                broken += _broken(f"audit context {context}", store.audit_records.broken(context))
            yield from broken
            if not broken:
                last = store.last_audit()
                ends = f"; the last is {last.number}, with the hash {last.hash[:12]}" if last else ""
                yield fine(_ABOUT, f"every entry follows from the one before{ends}")
    except RecordsError as error:
        yield problem(_ABOUT, str(error), "see the message")


def _broken(about: str, numbers: Iterator[int]) -> Iterator[Check]:
    first = [str(number) for number in islice(numbers, SHOWN + 1)]
    if first:
        more = " and more" if len(first) > SHOWN else ""
        message = f"an entry was changed or removed at {', '.join(first[:SHOWN])}{more}"
        yield problem(about, message, _ADVICE)
