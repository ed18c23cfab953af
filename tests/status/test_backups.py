"""When the records count as backed up: by the time of the newest backup, a later failure, and the clock."""

from __future__ import annotations

import pytest

from reconciler.records.backup_times import BackupTimes
from reconciler.settings import BackupSettings
from reconciler.status.backups import find_backup_trouble, judge_backups
from reconciler.times import ExpiryTime
from tests.support.clock import START, FakeClock

HOUR = 3600.0
DAILY = BackupSettings(26 * HOUR)
NOW = ExpiryTime(START, START)
NIGHT = "2025-12-31T20:00:00Z"


@pytest.mark.parametrize(
    ("times", "reason", "words"),
    [
        (BackupTimes(START - 4 * HOUR), "BackupTaken", f"is of {NIGHT}"),
        (BackupTimes(START - 26 * HOUR + 1), "BackupTaken", ""),
        (BackupTimes(START - 26 * HOUR), "BackupStale", "none was made within 26 h; make one: reconciler backup FILE"),
        (BackupTimes(), "BackupStale", "no backup of the records is known; make one: reconciler backup FILE"),
        (BackupTimes(awaited=START - 25 * HOUR), "BackupTaken", "no backup of the records is known"),
        (BackupTimes(awaited=START - 27 * HOUR), "BackupStale", "no backup of the records is known, and none was made"),
        (BackupTimes(START - 30 * HOUR, START - 4 * HOUR, "no room"), "BackupFailed", f"the try of {NIGHT} to back up"),
        (
            BackupTimes(None, START - 4 * HOUR, "no room"),
            "BackupFailed",
            "failed: no room; no backup of the",
        ),
        (BackupTimes(START + 30), "BackupTaken", ""),
        (BackupTimes(START + 400 * 24 * HOUR), "BackupStale", "which is later than now: the clock was set back"),
    ],
)
def test_records_are_backed_up_while_the_newest_backup_is_young(times: BackupTimes, reason: str, words: str) -> None:
    condition = judge_backups(times, DAILY, NOW)
    assert (condition.reason, condition.status) == (reason, reason == "BackupTaken")
    assert words in condition.message
    trouble = find_backup_trouble(times, DAILY, NOW)
    assert (trouble is None) == condition.status
    assert trouble is None or trouble.since <= START
    assert find_backup_trouble(times, None, NOW) is None


def test_the_message_stays_while_time_passes() -> None:
    messages = {
        judge_backups(BackupTimes(START), DAILY, ExpiryTime(at, at)).message
        for at in (START + 27 * HOUR, START + 28 * HOUR, START + 270 * HOUR)
    }
    assert len(messages) == 1


@pytest.mark.parametrize("seconds", [400 * 24 * HOUR, -400 * 24 * HOUR])
def test_a_clock_that_was_set_counts_after_an_hour(seconds: float) -> None:
    clock, times = FakeClock(), BackupTimes(START)
    clock.jump(seconds)
    assert judge_backups(times, DAILY, clock.expiry()).status
    clock.block(HOUR + 1)
    assert judge_backups(times, DAILY, clock.expiry()).reason == "BackupStale"
