"""Judges whether the records are backed up as the settings expect."""

from __future__ import annotations

from reconciler.reasons import ConditionType, Reason
from reconciler.records.backup_times import BackupTimes
from reconciler.records.tables.conditions import Condition, ScopeCondition
from reconciler.settings import BackupSettings
from reconciler.status.conditions import make_condition
from reconciler.times import ExpiryTime, format_duration, format_iso_time

SKEW = 60.0
"""Seconds that the time of a backup may be ahead of the clock."""
_ADVICE = "make one: reconciler backup FILE"


def judge_backups(times: BackupTimes, settings: BackupSettings, expiry: ExpiryTime) -> Condition:
    """The condition of the backups of the records.

    Its message has no ages, so that it changes only with a backup. A clock that was set counts once it has held for an
    hour. Where no backup is known, the longest age counts from when the daemon first found that.
    """
    if times.failed is not None:
        message = (
            f"the try of {format_iso_time(times.failed)} to back up the records failed: {times.failure}; "
            f"{_describe_newest(times)}; see what it says, then {_ADVICE}"
        )
        return make_condition(ConditionType.BACKED_UP, False, Reason.BACKUP_FAILED, message)
    if (trouble := _find_trouble(times, settings, expiry)) is not None:
        return make_condition(ConditionType.BACKED_UP, False, Reason.BACKUP_STALE, f"{trouble}; {_ADVICE}")
    return make_condition(ConditionType.BACKED_UP, True, Reason.BACKUP_TAKEN, _describe_newest(times))


def find_backup_trouble(
    times: BackupTimes, settings: BackupSettings | None, expiry: ExpiryTime
) -> ScopeCondition | None:
    """The same condition if it needs attention, with the time since when."""
    if settings is None:
        return None
    condition = judge_backups(times, settings, expiry)
    if condition.status:
        return None
    first = times.failed if times.failed is not None else _begin_wait(times)
    since = first if times.failed is not None or first is None else first + settings.longest_age
    return ScopeCondition(
        condition.type,
        condition.status,
        condition.reason,
        condition.message,
        expiry.now if since is None else min(since, expiry.now),
    )


def _find_trouble(times: BackupTimes, settings: BackupSettings, expiry: ExpiryTime) -> str | None:
    since = _begin_wait(times)
    if since is None:
        return "no backup of the records is known"
    if since > expiry.latest + SKEW:
        return f"{_describe_newest(times)}, which is later than now: the clock was set back"
    if expiry.is_over(since + settings.longest_age, since):
        return f"{_describe_newest(times)}, and none was made within {format_duration(settings.longest_age)}"
    return None


def _begin_wait(times: BackupTimes) -> float | None:
    return times.taken if times.taken is not None else times.awaited


def _describe_newest(times: BackupTimes) -> str:
    if times.taken is None:
        return "no backup of the records is known"
    return f"the newest backup of the records is of {format_iso_time(times.taken)}"
