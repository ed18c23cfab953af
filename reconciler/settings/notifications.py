"""The settings of notifications: to whom outcomes are sent, and which."""

from __future__ import annotations

from pathlib import Path

import msgspec

from reconciler.settings.forges import ForgeSettings


class WebhookChannelSettings(msgspec.Struct, frozen=True, rename="camel"):
    """A receiver of CloudEvents: its ``url``, or the file that has it, and the file with the secret that signs."""

    secret_file: Path
    url: str = ""
    url_file: Path | None = None
    ca_file: Path | None = None


class AppriseChannelSettings(msgspec.Struct, frozen=True, rename="camel"):
    """Services that Apprise knows: the file with their URLs, one a line."""

    url_file: Path


class ChatChannelSettings(msgspec.Struct, frozen=True, rename="camel"):
    """A room of a chat: the file with the URL of its webhook, which is a secret."""

    url_file: Path
    ca_file: Path | None = None


class ChannelSettings(msgspec.Struct, frozen=True, rename="camel"):
    """One receiver: exactly one of its kinds is not None.

    ``gvcs`` are those whose manifests may name it; ``*`` means all.
    """

    webhook: WebhookChannelSettings | None = None
    apprise: AppriseChannelSettings | None = None
    slack: ChatChannelSettings | None = None
    teams: ChatChannelSettings | None = None
    gvcs: tuple[str, ...] = ()


FAILURES_AND_RECOVERIES = ("failure", "recovery")
"""What a rule sends that does not say it."""

USUAL_EVENTS = ("run", "refused", "health", "volume", "certificate", "cron", "daemon")
"""The events of a rule that names none: not those that ask for an approval, and no drift, which is healed."""


class QuietHoursSettings(msgspec.Struct, frozen=True, rename="camel"):
    """From ``begin`` to ``end``, times of day such as 22:00 in the time zone ``zone``, messages wait."""

    begin: str
    end: str
    zone: str = "UTC"


class DigestSettings(msgspec.Struct, frozen=True):
    """All messages of a day are one, which is sent ``at`` a time of day such as 08:00 in the time zone ``zone``."""

    at: str
    zone: str = "UTC"


class NotificationRuleSettings(msgspec.Struct, frozen=True, rename="camel"):
    """Which messages go to which ``channels``; times in seconds.

    ``events`` are what they are about, ``states`` how that stands. Empty ``sources``, ``gvcs`` and ``tags`` mean all.
    In ``quiet_hours``, messages wait for their end; with a ``digest``, for its time. Troubles of the first ``wait``
    seconds are one message, and so are those of each ``interval`` after it. What is still wrong is sent again after
    ``repeat``; 0: never. ``severity`` is the least that is sent.
    """

    name: str
    channels: tuple[str, ...]
    events: tuple[str, ...] = USUAL_EVENTS
    states: tuple[str, ...] = FAILURES_AND_RECOVERIES
    sources: tuple[str, ...] = ()
    gvcs: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    quiet_hours: QuietHoursSettings | None = None
    digest: DigestSettings | None = None
    wait: float = 30.0
    interval: float = 300.0
    repeat: float = 0.0
    severity: str = "info"


class HeartbeatSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The URL that is called each ``interval`` seconds, or the file that has it."""

    url: str = ""
    url_file: Path | None = None
    interval: float = 60.0


class NotificationSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The receivers by name, and the rules of what each gets; without any rule, a channel has one of its own.

    ``forges`` are further receivers, which show each run on its commit; no rule of the settings is about them.
    ``heartbeat`` is None: nobody waits for a sign of life.
    """

    channels: dict[str, ChannelSettings] = {}
    rules: tuple[NotificationRuleSettings, ...] = ()
    forges: dict[str, ForgeSettings] = {}
    heartbeat: HeartbeatSettings | None = None
