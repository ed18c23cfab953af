"""Notifications in few words: records in a file, a clock that stands still, and receivers that note what they get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from reconciler.notifications.channels.channel import SendFailed
from reconciler.notifications.collector import Collector
from reconciler.notifications.message import Message, State
from reconciler.notifications.outbox import decode_message
from reconciler.notifications.outcomes import RunNotice, record_notice
from reconciler.notifications.sender import Sender
from reconciler.reasons import Reason
from reconciler.records.notifications.deliveries import DeliveryStatus
from reconciler.records.store import FILE, Records
from reconciler.records.tables.events import NewEvent
from reconciler.settings import Settings, SourceSettings
from reconciler.settings.notifications import (
    ChannelSettings,
    NotificationRuleSettings,
    NotificationSettings,
    WebhookChannelSettings,
)
from tests.support.clock import FakeClock

EVERY = ("pending", "running", "success", "failure", "recovery", "superseded")
"""All states that a rule can have."""
COMMIT, NEXT = "a" * 40, "b" * 40


def rule(name: str = "all", channels: Sequence[str] = ("ops",), **fields: Any) -> NotificationRuleSettings:
    """A rule; without ``fields``, that of a channel of its own."""
    return NotificationRuleSettings(name, tuple(channels), **fields)


def notify(*rules: NotificationRuleSettings, channels: Iterable[str] = ("ops",)) -> NotificationSettings:
    """Settings with webhooks called ``channels``."""
    hook = ChannelSettings(webhook=WebhookChannelSettings(Path("/secret"), "http://127.0.0.1:9/"))
    return NotificationSettings(dict.fromkeys(channels, hook), rules)


class NotedChannel:
    """A receiver that notes each message; ``faults`` are raised, one by one, before it takes any more."""

    def __init__(self, name: str = "ops", *, edits: bool = False) -> None:
        self.name = name
        self.edits = edits
        self.got: list[Message] = []
        self.references: list[str] = []
        self.faults: list[Exception] = []
        self.is_down = False
        self.times: list[float] = []
        self.clock: FakeClock | None = None

    async def send(self, message: Message, reference: str) -> str:
        """Note ``message``."""
        if self.clock is not None:
            self.times.append(self.clock.now())
        if self.faults:
            raise self.faults.pop(0)
        if self.is_down:
            raise SendFailed("it is down")
        self.got.append(message)
        self.references.append(reference)
        return (reference or f"note-{len(self.got)}") if self.edits else ""

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def states(self) -> list[State]:
        """The states of what came."""
        return [message.state for message in self.got]

    @property
    def titles(self) -> list[str]:
        """The titles of what came."""
        return [message.title for message in self.got]


class Post:
    """Records with two connections, that of a daemon and that of its sender, and what makes deliveries."""

    def __init__(self, state: Path, notifications: NotificationSettings, sources: Sequence[str] = ("main",)) -> None:
        self.clock = FakeClock()
        self.notifications = notifications
        self.settings = Settings(
            org="acme",
            sources=tuple(SourceSettings(name=name, url=str(state / name)) for name in sources),
            state=state,
            notifications=notifications,
        )
        self.delivers = False
        """Whether what is collected arrives at once."""
        self.path = state / FILE
        self.records = Records.open(self.path, clock_now=self.clock.now)
        self.mine = Records.open(self.path, clock_now=self.clock.now)
        self.collector = self.new_collector()
        self.collector.open()

    def new_collector(self) -> Collector:
        """A collector as a newly started daemon makes it."""
        return Collector(self.settings, self.mine, self.clock)

    def new_sender(self, *channels: NotedChannel) -> Sender:
        """A sender for ``channels``."""
        for channel in channels:
            channel.clock = self.clock
        by_name = {channel.name: channel for channel in channels}
        return Sender(self.settings, self.mine, self.clock, by_name, in_threads=False)

    def run(self, outcome: str, commit: str = COMMIT, **fields: Any) -> None:
        """A run of a source, ``main`` if nothing else is said, stands at ``outcome``."""
        source, branch = fields.pop("source", "main"), fields.pop("branch", "main")
        record_notice(self.records, RunNotice(source, f"{branch}@sha1:{commit}", outcome, **fields))

    def happen(self, key: str, reason: Reason, message: str = "", location: str = "local") -> None:
        """An event."""
        self.records.events.append_many([NewEvent(key, reason, message or str(reason), location)])

    def collect(self, after: float = 0.0) -> None:
        """Make deliveries, ``after`` seconds."""
        self.clock.block(after)
        self.collector.collect()
        if self.delivers:
            self.deliver()

    def deliver(self) -> None:
        """Let all that is due arrive."""
        now, deliveries = self.clock.now(), self.records.deliveries
        for channel in self.notifications.channels:
            while (delivery := deliveries.next_waiting(channel, now)) is not None:
                deliveries.end(delivery.id, DeliveryStatus.SENT, now)

    def messages(self, channel: str = "ops") -> list[Message]:
        """Every message that there is for ``channel``, oldest first."""
        listed = [one for one in self.records.deliveries.list(100_000) if one.channel == channel]
        return [decode_message(one) for one in reversed(listed)]

    def titles(self, channel: str = "ops") -> list[str]:
        """The titles of ``messages``."""
        return [message.title for message in self.messages(channel)]

    def close(self) -> None:
        """Close both connections."""
        self.records.close()
        self.mine.close()
