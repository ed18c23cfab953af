"""Checks from the records: of the daemon, its last runs, and the locations that manifests use."""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from reconciler.checks import Check, fine, problem, warning
from reconciler.errors import RecordsError
from reconciler.model.key import Kind
from reconciler.planning.placement import locations_of
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import FILE, Records
from reconciler.records.tables.conditions import HOST, ScopeCondition
from reconciler.records.tables.runs import Run
from reconciler.settings import Settings
from reconciler.status.waiting import suspended_by
from reconciler.times import ago

SKEW = 60.0
"""Seconds that a record's time may be ahead of the clock."""
SILENCE = 60.0
"""Seconds in which a daemon starts the request of an operator."""

_ADVICE = {
    Reason.INVALID_REVISION: "see: reconciler validate",
    Reason.INVALID_FILES: "see: reconciler validate",
    Reason.APPROVAL_REQUIRED: "see: reconciler plan",
    Reason.STEPS_FAILED: "see: reconciler get",
}

_PROBLEMS = (
    (ConditionType.SOURCE_REACHABLE, ConditionType.SOURCE_STALE),
    (ConditionType.STATUS_PUSHED, ConditionType.STATUS_STALE),
    (ConditionType.READY, None),
)
"""Conditions that are problems where they are false, each with the one that says that it lasts."""


def check_records(settings: Settings, holder: str, now: float) -> Iterator[Check]:
    """Check the records and the daemon: ``holder`` describes the holder of the state lock, "" if there is none.

    ``now`` in seconds since the epoch.
    """
    path = settings.state / FILE
    try:
        records = Records.open(path, read_only=True)
    except RecordsError as error:
        if _missing(path):
            yield _daemon(holder, "nothing is recorded yet")
        else:
            yield problem("records", str(error), "see the message")
        return
    try:
        yield _daemon(holder, _progress(records, now))
        yield from _settings(records, now)
        yield from _requests(records, holder, now)
        yield from _future(records, now)
        for source in settings.sources:
            yield from _source(records, source.name, now)
        yield from _suspended_resources(records)
        yield from _locations(records, settings)
    except RecordsError as error:
        yield problem("records", str(error), "see the message")
    finally:
        records.close()


def _missing(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ENOENT
    return False


def _daemon(holder: str, progress: str) -> Check:
    if not holder:
        return warning("daemon", f"no daemon runs; {progress}", "start it: systemctl start reconciler")
    return fine("daemon", f"{holder}; {progress}")


def _progress(records: Records, now: float) -> str:
    last = next(iter(records.runs.list(1)), None)
    if last is None:
        return "no run was ever needed"
    if last.finished is None:
        return f"a run of {last.source} began {ago(now - last.started)} ago and has not ended"
    return f"the last run in the history ended {ago(now - last.finished)} ago ({last.source}: {last.outcome})"


def _requests(records: Records, holder: str, now: float) -> Iterator[Check]:
    waiting = [each for each in records.requests.open() if now - each.at > SILENCE]
    if waiting and holder:
        first = waiting[0]
        message = f"it has not answered `{first.kind}` of {first.by} for {ago(now - first.at)}"
        yield warning("daemon", message, "see its log; it may be busy with a long run")


def _settings(records: Records, now: float) -> Iterator[Check]:
    for each in records.conditions.get(HOST):
        if each.type == ConditionType.SETTINGS_LOADED and not each.status:
            message = f"the daemon has used former settings for {ago(now - each.since)}: {each.message}"
            yield problem("settings", message, "correct them; the daemon then loads them")


def _future(records: Records, now: float) -> Iterator[Check]:
    last = next(iter(records.runs.list(1)), None)
    if last is not None and last.started - now > SKEW:
        message = f"the last run was recorded {ago(last.started - now)} from now: the clock was set back"
        yield warning("clock", message, "set the clock; retries and suspensions wait for it otherwise")


def _source(records: Records, name: str, now: float) -> Iterator[Check]:
    about = f"source {name}"
    found = {each.type: each for each in records.conditions.get(name)}
    row = records.sources.get(name)
    if row is None:
        yield warning(about, "no revision of it was ever applied", "start the daemon, or: reconciler apply")
    troubles = list(_troubles(about, found, now))
    yield from troubles
    if row is not None and not troubles:
        last = records.runs.last(name)
        ended = f", its last run {_when(last, now)}" if last else ""
        yield fine(about, f"{row.ref} at {row.commit[:12]} is applied{ended}")


def _when(run: Run, now: float) -> str:
    return f"{ago(now - (run.finished or run.started))} ago: {run.outcome or 'unfinished'}"


def _troubles(about: str, found: dict[str, ScopeCondition], now: float) -> Iterator[Check]:
    for kind, long in _PROBLEMS:
        bad = found.get(kind)
        if bad is None or bad.status:
            continue
        message = f"{bad.reason} for {ago(now - bad.since)}: {bad.message}"
        grave = bad.reason == Reason.INVALID_REVISION or (long in found and found[long].status)
        yield (problem if grave else warning)(about, message, _ADVICE.get(Reason.stored(bad.reason), "see the message"))
    for kind in (ConditionType.SUSPENDED, ConditionType.PINNED):
        if kind in found and found[kind].status:
            yield warning(about, found[kind].message, f"to end that: reconciler resume {about.split()[1]}")


def _suspended_resources(records: Records) -> Iterator[Check]:
    """Check for suspended resources that an operator may have forgotten."""
    for each in records.suspensions.all():
        if not each.target.startswith("source/"):
            yield warning(each.target, suspended_by(each), f"to end that: reconciler resume {each.target}")


def _locations(records: Records, settings: Settings) -> Iterator[Check]:
    known = [_body(each.body) for each in records.applied.items(Kind.LOCATION)]
    asked: dict[str, list[str]] = defaultdict(list)
    for gvc in records.applied.items(Kind.GVC):
        for place in locations_of(_body(gvc.body), lambda: known, settings.org):
            asked[place].append(gvc.key.name)
    for place in sorted(asked.keys() - settings.locations.keys()):
        message = f"{', '.join(sorted(asked[place])[:5])} uses {place}, and the settings bind no engine to it"
        yield warning("locations", message, f"add it under `locations`, or leave {place} to the host that has it")
    idle = sorted(settings.locations.keys() - asked.keys())
    bound = sorted(settings.locations.keys() & asked.keys())
    words = [f"{', '.join(bound)} in use"] if bound else []
    words += [f"no applied GVC uses {', '.join(idle)}"] if idle else []
    if words:
        yield fine("locations", "; ".join(words))
    else:
        yield warning("locations", "the settings bind no location", "add one under `locations`; else nothing is placed")


def _body(body: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(body)
    return decoded
