"""Checks of the audit log and of the records of audit contexts: that nobody changed or removed an entry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice

from reconciler.access.store import FILE, AccessStore
from reconciler.checks import Check, make_ok_check, make_problem, make_warning
from reconciler.clock import Clock
from reconciler.doctor.repositories import remote_tip
from reconciler.errors import ReconcilerError, RecordsError, SourceError
from reconciler.settings import Settings, SourceSettings
from reconciler.source.source import open_source
from reconciler.source.url import source_address
from reconciler.status.branch.anchors import AuditAnchor, read_anchors
from reconciler.times import format_duration

SHOWN = 5
"""Numbers of broken entries in a message."""

_ABOUT = "audit log"
_ADVICE = "compare with an export or a backup, and find out who can write to the state directory"
_RESTORED = "; after a restore of an older backup, commits from before it do not fit"


def check_audit(settings: Settings, clock: Clock) -> Iterator[Check]:
    """Check the chains of hashes of the audit log and of each audit context, and the hashes in the status branches."""
    state = settings.state
    if not (state / FILE).exists():
        return
    try:
        with closing(AccessStore.open(state, clock, read_only=True)) as store:
            broken = list(_check_broken_entries(_ABOUT, store.broken_audit()))
            for context in store.audit_records.contexts():
                broken += _check_broken_entries(f"audit context {context}", store.audit_records.find_broken(context))
            yield from broken
            if not broken:
                last = store.last_audit()
                ends = f"; the last is {last.number}, with the hash {last.hash[:12]}" if last else ""
                yield make_ok_check(_ABOUT, f"every entry follows from the one before{ends}")
            for source in settings.sources:
                yield from _check_anchors(settings, source, store, clock)
    except RecordsError as error:
        yield make_problem(_ABOUT, str(error), "see the message")


def _check_broken_entries(about: str, numbers: Iterator[int]) -> Iterator[Check]:
    first = [str(number) for number in islice(numbers, SHOWN + 1)]
    if first:
        more = " and more" if len(first) > SHOWN else ""
        message = f"an entry was changed or removed at {', '.join(first[:SHOWN])}{more}"
        yield make_problem(about, message, _ADVICE)


def _check_anchors(settings: Settings, source: SourceSettings, store: AccessStore, clock: Clock) -> Iterator[Check]:
    """Compare the log with the hashes that commits of the status branch of ``source`` have, oldest first."""
    branch = f"{source.status.branch} of {source.name}"
    try:
        anchors = _read_anchors(settings, source)
    except ReconcilerError as error:
        yield make_warning(_ABOUT, f"the hashes in {branch} cannot be read: {error}", "see the message")
        return
    last = 0
    for anchor in anchors:
        text = store.audit_hash(anchor.number)
        if text != anchor.hash:
            commit = f"commit {anchor.commit[:12]} of {branch}, {format_duration(clock.now() - anchor.at)} ago"
            fault = f"is missing: {commit}, has its" if text is None else f"has another hash: {commit}, has the former"
            before = f"; it is the first that does not fit, after entry {last}" if last else ""
            yield make_problem(_ABOUT, f"entry {anchor.number} {fault} hash{before}", _ADVICE + _RESTORED)
            return
        last = anchor.number
    if anchors:
        commits = f"{len(anchors)} commit{'s' if len(anchors) > 1 else ''}"
        yield make_ok_check(_ABOUT, f"the hashes in {commits} of {branch} fit, up to entry {last}")


def _read_anchors(settings: Settings, source: SourceSettings) -> list[AuditAnchor]:
    """The anchors in the status branch of ``source``, oldest first. Raises ReconcilerError."""
    local, tip = source_address(source).path is not None, ""
    if source.read_only or not (local or source.status.push):
        path = settings.state / "status" / f"{source.name}.git"
    elif local:
        path = open_source(source, settings.state).repository.commondir
    else:
        path = settings.state / "mirrors" / f"{source.name}.git"
        with suppress(SourceError):  # the check of the source says so
            tip = remote_tip(source, source.status.branch)
    if not os.path.isfile(path / "HEAD"):
        return []
    return list(read_anchors(path, source.status.branch, tip))[::-1]
