"""Checks from the records: of the daemon, its last runs, and the locations that manifests use."""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from reconciler.checks import Check, make_ok_check, make_problem, make_warning
from reconciler.errors import RecordsError
from reconciler.model.key import Kind
from reconciler.model.revision import revision_text, shorten_revision
from reconciler.planning.placement import locations_of
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import FILE, Records
from reconciler.records.tables.conditions import CHANNEL, HOST, ScopeCondition
from reconciler.records.tables.runs import Run
from reconciler.render.sources import trouble_sentence
from reconciler.settings import Settings
from reconciler.status.backups import find_backup_trouble
from reconciler.status.source_status import SourceStatus, read_source_status
from reconciler.status.waiting import suspended_by
from reconciler.times import ExpiryTime, format_duration

SKEW = 60.0
"""Seconds that a record's time may be ahead of the clock."""
SILENCE = 60.0
"""Seconds in which a daemon starts the request of an operator."""

_ADVICE = {
    Reason.INVALID_FILES: "see: reconciler validate",
    Reason.APPROVAL_REQUIRED: "see: reconciler plan",
    Reason.APPROVAL_REFUSED: "see: reconciler plan",
    Reason.STEPS_FAILED: "see: reconciler get",
    Reason.STATUS_BRANCH_TAKEN: "give it another status.branch, or: reconciler apply --take-status-branch",
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
        if _is_path_missing(path):
            yield _check_daemon(holder, "nothing is recorded yet")
        else:
            yield make_problem("records", str(error), "see the message")
        return
    try:
        yield _check_daemon(holder, _describe_progress(records, now))
        yield from _check_settings(records, now)
        yield from _check_channels(records, now)
        yield from _check_backups(records, settings, now)
        yield from _check_requests(records, holder, now)
        yield from _check_future_runs(records, now)
        for source in settings.sources:
            yield from _check_source(records, source.name, now)
        yield from _suspended_resources(records)
        yield from _check_locations(records, settings)
    except RecordsError as error:
        yield make_problem("records", str(error), "see the message")
    finally:
        records.close()


def _is_path_missing(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ENOENT
    return False


def _check_daemon(holder: str, progress: str) -> Check:
    if not holder:
        return make_warning("daemon", f"no daemon runs; {progress}", "start it: its service, or `reconciler run`")
    return make_ok_check("daemon", f"{holder}; {progress}")


def _describe_progress(records: Records, now: float) -> str:
    last = next(iter(records.runs.list(1)), None)
    if last is None:
        return "no run was ever needed"
    if last.finished is None:
        return f"a run of {last.source} began {format_duration(now - last.started)} ago and has not ended"
    return (
        f"the last run in the history ended {format_duration(now - last.finished)} ago ({last.source}: {last.outcome})"
    )


def _check_requests(records: Records, holder: str, now: float) -> Iterator[Check]:
    waiting = [request for request in records.requests.open() if now - request.at > SILENCE]
    if waiting and holder:
        first = waiting[0]
        message = f"it has not answered `{first.kind}` of {first.by} for {format_duration(now - first.at)}"
        yield make_warning("daemon", message, "see its log; it may be busy with a long run")


def _check_settings(records: Records, now: float) -> Iterator[Check]:
    for condition in records.conditions.get(HOST):
        if condition.type == ConditionType.SETTINGS_LOADED and not condition.status:
            message = (
                f"the daemon has used former settings for {format_duration(now - condition.since)}: {condition.message}"
            )
            yield make_problem("settings", message, "correct them; the daemon then loads them")


def _check_channels(records: Records, now: float) -> Iterator[Check]:
    for scope in records.conditions.scopes_below(CHANNEL):
        for condition in records.conditions.get(scope):
            if not condition.status:
                name, since = scope.removeprefix(CHANNEL), format_duration(now - condition.since)
                message = f"messages have not arrived for {since}: {condition.message}"
                yield make_problem(
                    f"channel {name}", message, "see: reconciler notify list; then try it: reconciler notify test"
                )


def _check_backups(records: Records, settings: Settings, now: float) -> Iterator[Check]:
    if settings.backups is None:
        return
    times = records.backups.get()
    trouble = find_backup_trouble(times, settings.backups, ExpiryTime(now, now))
    if trouble is not None:
        yield make_problem("backups", trouble.message, "if a timer makes them, see the log of its service")
    elif times.taken is None:
        yield make_warning("backups", "no backup of the records is known", "make one: reconciler backup FILE")
    else:
        yield make_ok_check("backups", f"the newest one was made {format_duration(now - times.taken)} ago")


def _check_future_runs(records: Records, now: float) -> Iterator[Check]:
    last = next(iter(records.runs.list(1)), None)
    if last is not None and last.started - now > SKEW:
        message = f"the last run was recorded {format_duration(last.started - now)} from now: the clock was set back"
        yield make_warning("clock", message, "set the clock; retries and suspensions wait for it otherwise")


def _check_source(records: Records, name: str, now: float) -> Iterator[Check]:
    about = f"source {name}"
    conditions = {condition.type: condition for condition in records.conditions.get(name)}
    row = records.sources.get(name)
    if row is None:
        yield make_warning(about, "no revision of it was ever applied", "start the daemon, or: reconciler apply")
    refused = _check_refusal(about, read_source_status(records, name))
    if refused is not None:
        del conditions[ConditionType.READY]
    troubles = [*([refused] if refused is not None else []), *_check_conditions(about, conditions, now)]
    yield from troubles
    if row is not None and not troubles:
        last = records.runs.last(name)
        ended = f", its last run {_describe_run_time(last, now)}" if last else ""
        yield make_ok_check(about, f"{shorten_revision(revision_text(row.ref, row.commit))} is applied{ended}")


def _check_refusal(about: str, status: SourceStatus) -> Check | None:
    """A problem where the newest commit is refused: which one, why, what is live instead, and what ends it."""
    run, trouble = status.refused, status.trouble
    if run is None or trouble is None or trouble.reason != Reason.INVALID_REVISION:
        return None
    live = f"{status.applied.commit[:12]} stays live" if status.applied is not None else "nothing is live yet"
    advice = (
        f"for all of it: reconciler validate; then push a correction, or take it back: git revert {run.commit[:12]}"
    )
    return make_problem(about, f"{trouble_sentence(status, trouble)}; {live}", advice)


def _describe_run_time(run: Run, now: float) -> str:
    return f"{format_duration(now - (run.finished or run.started))} ago: {run.outcome or 'unfinished'}"


def _check_conditions(about: str, conditions: dict[str, ScopeCondition], now: float) -> Iterator[Check]:
    for kind, long in _PROBLEMS:
        bad = conditions.get(kind)
        if bad is None or bad.status:
            continue
        message = f"{bad.reason} for {format_duration(now - bad.since)}: {bad.message}"
        grave = long in conditions and conditions[long].status
        yield (make_problem if grave else make_warning)(
            about, message, _ADVICE.get(Reason.from_stored(bad.reason), "see the message")
        )
    for kind in (ConditionType.SUSPENDED, ConditionType.PINNED):
        if kind in conditions and conditions[kind].status:
            yield make_warning(about, conditions[kind].message, f"to end that: reconciler resume {about.split()[1]}")


def _suspended_resources(records: Records) -> Iterator[Check]:
    """Check for suspended resources that an operator may have forgotten."""
    for suspension in records.suspensions.all():
        if not suspension.target.startswith("source/"):
            yield make_warning(
                suspension.target, suspended_by(suspension), f"to end that: reconciler resume {suspension.target}"
            )


def _check_locations(records: Records, settings: Settings) -> Iterator[Check]:
    bodies = [_decode_body(record.body) for record in records.applied.items(Kind.LOCATION)]
    asked: dict[str, list[str]] = defaultdict(list)
    for gvc in records.applied.items(Kind.GVC):
        for location in locations_of(_decode_body(gvc.body), lambda: bodies, settings.org):
            asked[location].append(gvc.key.name)
    for location_name in sorted(asked.keys() - settings.locations.keys()):
        message = (
            f"{', '.join(sorted(asked[location_name])[:5])} uses {location_name}, and the settings bind no engine to it"
        )
        yield make_warning(
            "locations", message, f"add it under `locations`, or leave {location_name} to the host that has it"
        )
    idle = sorted(settings.locations.keys() - asked.keys())
    bound = sorted(settings.locations.keys() & asked.keys())
    words = [f"{', '.join(bound)} in use"] if bound else []
    words += [f"no applied GVC uses {', '.join(idle)}"] if idle else []
    if words:
        yield make_ok_check("locations", "; ".join(words))
    else:
        yield make_warning(
            "locations", "the settings bind no location", "add one under `locations`; else nothing is placed"
        )


def _decode_body(body: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(body)
    return decoded
