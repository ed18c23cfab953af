"""Reads the status in one look: of everything, of a source, a resource or a commit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from reconciler.errors import NotFoundError, SourceError, UsageError
from reconciler.model.key import Key, Kind
from reconciler.model.target import parse_target
from reconciler.queries.existence import check_present
from reconciler.queries.targets import resolve_target
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.conditions import HOST, ScopeCondition
from reconciler.settings import Settings, SourceSettings
from reconciler.source.source import Source, open_source
from reconciler.status.backups import find_backup_trouble
from reconciler.status.conditions import ResourceFacts, compute_conditions
from reconciler.status.facts import FactsReader
from reconciler.status.source_status import read_source_status
from reconciler.status.summary import (
    CommitStatus,
    Outlook,
    SourceSummary,
    StatusSummary,
    UnreadyResource,
    decide_outlook,
    rank_outlook,
)
from reconciler.times import ExpiryTime

MOST_LISTED = 50
"""The most resources of a summary."""
_MOST_READ = 300
"""The most resources whose conditions are computed; more fail together, by one cause."""
_MOST_CONSIDERED = 10_000
"""The most resources that are searched for some that the audience sees."""
_COMMIT = re.compile(r"[0-9a-f]{4,64}")


class Audience(NamedTuple):
    """Who reads a summary: the resources that they see, and the most of these that it lists."""

    sees: Callable[[Key], bool]
    most: int = MOST_LISTED


_EVERYBODY = Audience(lambda _: True)


class _OpenSource(NamedTuple):
    """A source with its summary; ``source`` is None where the repository cannot be opened."""

    source: Source | None
    summary: SourceSummary


CRASH = "ended with "
"""What the message of a workload has whose program ended."""
_MOST_CRASHED = 3
"""The most workloads of which the last line is shown."""


def summarize_status(
    settings: Settings,
    records: Records,
    target: str,
    now: float,
    *,
    daemon_runs: bool,
    audience: Audience = _EVERYBODY,
) -> StatusSummary:
    """The status of all sources and resources, or of the source, resource or commit ``target``.

    ``now`` is the time. Resources are those that the ``audience`` sees. Raises NotFoundError and UsageError.
    """
    opened = [_open_source(settings, source, records, now, daemon_runs) for source in settings.sources]
    commit = _find_commit(opened, target) if _COMMIT.fullmatch(target) else None
    name = commit.source if commit is not None else ""
    key = None
    if target and commit is None:
        named = _find_target(settings, records, target)
        name, key = ("", named) if isinstance(named, Key) else (named.partition("/")[2], None)
    sources = [summary for _, summary in opened if name in ("", summary.status.name)]
    keys = [key] if key is not None else _list_unready_keys(records, name)
    read = list(islice(filter(audience.sees, keys), _MOST_READ))
    unready = list(_read_unready(settings, records, read))
    if key is not None:
        owners = {resource.source for resource in unready} | {record.source for record in records.applied.get(key)}
        sources = [summary for summary in sources if summary.status.name in owners]
    counts = records.applied.counts(name or None)
    listed = sorted(unready, key=lambda resource: -rank_outlook(resource.outlook))[: audience.most]
    return StatusSummary(
        daemon_runs,
        sources,
        [*_add_beginnings(records, listed[:MOST_LISTED]), *listed[MOST_LISTED:]],
        max(len(unready), _count_unready(records, name, keys) if len(read) == _MOST_READ else 0),
        sum(counts.values()) if key is None else 1,
        list(_list_daemon_troubles(settings, records, now)),
        commit,
    )


def _open_source(
    settings: Settings, source: SourceSettings, records: Records, now: float, daemon_runs: bool
) -> _OpenSource:
    opened, newest, unreadable = None, None, ""
    try:
        opened = open_source(source, settings.state)
        newest = opened.revision("")
    except SourceError as error:
        unreadable = str(error)
    status = read_source_status(records, source.name)
    approvals = records.approvals.waiting_digests(source.name, now)
    refusals = {
        digest.rpartition("/")[2]: str(refusal) for digest, refusal in records.approvals.refusals(source.name).items()
    }
    last = records.runs.last(source.name) if daemon_runs else None
    is_running = last is not None and last.finished is None
    return _OpenSource(opened, SourceSummary(status, source.url, newest, unreadable, approvals, refusals, is_running))


def _find_target(settings: Settings, records: Records, target: str) -> Key | str:
    """The resource or ``source/NAME`` that ``target`` names. Raises NotFoundError and UsageError."""
    try:
        named = resolve_target(settings, records, parse_target(target))
    except ValueError as error:
        raise UsageError(str(error)) from None
    if isinstance(named, Key):
        check_present(records, named)
    elif named.partition("/")[2] not in {source.name for source in settings.sources}:
        raise NotFoundError(f"there is no {named}; the settings have {', '.join(one.name for one in settings.sources)}")
    return named


def _find_commit(opened: Iterable[_OpenSource], prefix: str) -> CommitStatus | None:
    """Whether the commit that begins with ``prefix`` is live, by the first source whose repository has it."""
    for source, summary in opened:
        if source is None:
            continue
        try:
            commit = source.repository.resolve(prefix).commit
        except SourceError:
            continue
        return _judge_commit(source, summary, commit)
    return None


def _judge_commit(source: Source, summary: SourceSummary, commit: str) -> CommitStatus:
    status, short = summary.status, commit[:12]
    applied = status.applied.commit if status.applied is not None else ""
    if applied and source.repository.contains(applied, commit):
        done = "is being applied" if summary.is_running else "is applied"
        later = "" if applied == commit else f", which the applied {applied[:12]} contains"
        return CommitStatus(commit, status.name, _judge_applied(summary), f"{short} {done}{later}")
    if status.refused is not None and status.refused.commit == commit:
        return CommitStatus(commit, status.name, Outlook.FAILING, f"{short} is refused: {status.refused.message}")
    if summary.newest is None or not source.repository.contains(summary.newest.commit, commit):
        branch = summary.newest.ref if summary.newest is not None else "its branch"
        message = f"{short} is in the repository, and not on {branch}: merge or push it"
        return CommitStatus(commit, status.name, Outlook.WAITING, message)
    outlook = max(summary.outlook, Outlook.PROGRESSING, key=rank_outlook)
    return CommitStatus(commit, status.name, outlook, f"{short} is not applied yet")


def _judge_applied(summary: SourceSummary) -> Outlook:
    """The outlook of what is applied; a newer commit that is refused does not make it worse."""
    ready = summary.status.conditions.get(ConditionType.READY)
    if summary.approvals or summary.refusals:
        return Outlook.WAITING
    if summary.is_running:
        return Outlook.PROGRESSING
    if ready is None or ready.status or summary.status.trouble is not None or not summary.is_current:
        return Outlook.WELL
    return summary.outlook


def _list_unready_keys(records: Records, source: str) -> list[Key]:
    """The resources that may be not ready, of ``source`` or ("") of all: failed, then waiting, then all others.

    Not all of them if there are very many.
    """
    failed = {str(failure.key) for failure in records.failures.all(source or None)}
    waiting = set(records.conditions.scopes_with(ConditionType.WAITING)) - failed
    others = {*records.list_unready(source, _MOST_CONSIDERED)} - failed - waiting
    return [key for group in (failed, waiting, others) for key in sorted(map(Key.parse, group))]


def _count_unready(records: Records, source: str, keys: Sequence[Key]) -> int:
    """How many resources may be not ready, of which ``keys`` are the first; at least so many."""
    counts = records.applied.counts(source or None).items()
    unwell = sum(number for (_, health), number in counts if not health.is_good)
    return max(len(keys), unwell, records.count_behind(source))


def _read_unready(settings: Settings, records: Records, keys: list[Key]) -> Iterable[UnreadyResource]:
    reader = FactsReader(records, settings)
    reader.expect(keys)
    for key in keys:
        facts = reader.facts(key)
        conditions = compute_conditions(facts)
        if conditions and (outlook := decide_outlook(conditions)) is not Outlook.WELL:
            yield UnreadyResource(key, facts.source, outlook, conditions[0].reason, conditions[0].message)


def _add_beginnings(records: Records, unready: Iterable[UnreadyResource]) -> Iterable[UnreadyResource]:
    """``unready``, each with the time since when it is not well."""
    return (msgspec.structs.replace(resource, since=_find_beginning(records, resource.key)) for resource in unready)


def _find_beginning(records: Records, key: Key) -> float | None:
    """Since when ``key`` is not well: its first failure, or the first warning after it was healthy."""
    failures = [failure.since for failure in records.failures.get(key)]
    return min(failures) if failures else records.events.first_warning_since(key, Reason.HEALTHY)


def _list_daemon_troubles(settings: Settings, records: Records, now: float) -> Iterable[ScopeCondition]:
    """The conditions of the daemon that need attention; that of the backups is as it is now, also without a daemon."""
    for condition in records.conditions.get(HOST):
        if condition.type != ConditionType.BACKED_UP and _is_bad(condition.type, condition.status):
            yield condition
    trouble = find_backup_trouble(records.backups.get(), settings.backups, ExpiryTime(now, now))
    if trouble is not None:
        yield trouble


def _is_bad(type_: str, status: bool) -> bool:
    return status is ConditionType(type_).abnormal


def has_crashed(facts: ResourceFacts) -> bool:
    """Whether a program of a workload with ``facts`` ended with an error."""
    is_workload = facts.key.kind is Kind.WORKLOAD
    return is_workload and any(CRASH in condition.message for condition in compute_conditions(facts))


def list_crashed(summary: StatusSummary) -> list[Key]:
    """The first workloads of ``summary`` of which a program ended with an error."""
    ended = (one.key for one in summary.unready if one.key.kind is Kind.WORKLOAD and CRASH in one.message)
    return list(islice(ended, _MOST_CRASHED))
