"""A daemon's share of notifications, to be killed: `python -m tests.notifications.killed_sender`.

A line of JSON on standard input has a process forked that writes outcomes and sends messages; its number is
the answer. The line ``wait`` is answered when that one has ended. All is imported before: a process is there at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec

from reconciler.clock import Clock
from reconciler.notifications.channels.channel import Channel
from reconciler.notifications.channels.webhook import WebhookChannel
from reconciler.notifications.outcomes import RunNotice, record_notice
from reconciler.notifications.sender import Sender
from reconciler.records.store import FILE, Records
from reconciler.settings import Settings, SourceSettings
from reconciler.settings.notifications import (
    ChannelSettings,
    DigestSettings,
    NotificationRuleSettings,
    NotificationSettings,
    WebhookChannelSettings,
)
from reconciler.times import ExpiryTime

SPEED = 200.0
"""Seconds that pass for the sender in a second."""
WRITE_SECONDS = 0.05
"""Seconds between two outcomes."""
OUTCOMES = "SELECT seq FROM sqlite_sequence WHERE name = 'notices'"
"""The number of the last outcome that was written."""
_UNSENT = """SELECT (SELECT count(*) FROM notices)
    + (SELECT count(*) FROM deliveries WHERE status IN (SELECT value FROM json_each('{}')))"""
STATES = ("success", "failure", "recovery")


class Job(msgspec.Struct, frozen=True):
    """What a process does: it sends to ``url``; ``now`` is the time of day when the monotonic clock is ``began``.

    It writes outcomes, or, if it ``waits_for`` some statuses, ends by itself once no delivery has one of them.
    """

    state: str
    url: str
    now: float
    began: float
    waits_for: tuple[str, ...]


class HurriedClock:
    """Time that passes SPEED times as fast."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._job.now + self.monotonic()

    def monotonic(self) -> float:
        """Seconds since the first process."""
        return (time.monotonic() - self._job.began) * SPEED

    def expiry(self) -> ExpiryTime:
        """The time by which things expire."""
        return ExpiryTime(self.now(), self.now())

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds / SPEED)


def make_settings(state: Path, url: str) -> Settings:
    """Two channels at ``url``: one for each outcome at once, one for what a day was."""
    secret = state / "secret"
    hooks = {
        name: ChannelSettings(webhook=WebhookChannelSettings(secret, f"{url}/{name}")) for name in ("each", "daily")
    }
    rules = (
        NotificationRuleSettings("each", ("each",), states=STATES),
        NotificationRuleSettings("daily", ("daily",), states=STATES, digest=DigestSettings("08:00")),
    )
    sources = (SourceSettings(name="main", url=str(state / "main")),)
    return Settings(org="acme", sources=sources, state=state, notifications=NotificationSettings(hooks, rules))


def read_number(state: Path, sql: str) -> int:
    """The number that ``sql`` reads in the records."""
    with closing(sqlite3.connect(state / FILE)) as connection:
        return int((connection.execute(sql).fetchone() or (0,))[0])


async def write_outcomes(records: Records, state: Path) -> None:
    """Let commits fail, each with the number of its outcome, so that each that was committed is known by it."""
    while True:
        number = 1 + read_number(state, OUTCOMES)
        with records.transaction():
            record_notice(records, RunNotice("main", f"main@sha1:{number:040}", "failed", failed="x"))
        await asyncio.sleep(WRITE_SECONDS)


async def wait_for_the_end(state: Path, statuses: tuple[str, ...]) -> None:
    """Return when messages were made of all outcomes, and none has one of ``statuses``."""
    while read_number(state, _UNSENT.format(msgspec.json.encode(statuses).decode())):
        await asyncio.sleep(WRITE_SECONDS)


async def run_job(job: Job) -> None:
    """Be the daemon of ``job``."""
    state, clock = Path(job.state), HurriedClock(job)
    settings = make_settings(state, job.url)
    assert settings.notifications is not None
    records, mine = (Records.open(state / FILE, clock_now=clock.now) for _ in range(2))
    channels: dict[str, Channel] = {
        name: WebhookChannel(name, channel.webhook, "/reconciler/acme", clock.now)
        for name, channel in settings.notifications.channels.items()
        if channel.webhook is not None
    }
    shown: Clock = clock
    sender = Sender(settings, mine, shown, channels)
    sender.open()
    await (wait_for_the_end(state, job.waits_for) if job.waits_for else write_outcomes(records, state))
    await sender.close()


def main() -> None:
    """Fork a process for each line, until no more come."""
    gc.freeze()
    running = 0
    for line in sys.stdin.buffer:
        if line.strip() == b"wait":
            os.waitpid(running, 0)
            running = 0
        else:
            job = msgspec.json.decode(line, type=Job)
            running = os.fork()
            if not running:
                asyncio.run(run_job(job))
                os._exit(0)
        os.write(1, f"{running}\n".encode())
    if running:
        os.kill(running, signal.SIGKILL)


if __name__ == "__main__":
    main()
