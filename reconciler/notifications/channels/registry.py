"""Makes the channels that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from reconciler.clock import Clock
from reconciler.errors import UsageError
from reconciler.notifications.channels.channel import Channel, SendRefused
from reconciler.notifications.channels.secret_files import make_secret_files
from reconciler.notifications.message import Message
from reconciler.settings import Settings
from reconciler.settings.forges import ForgeSettings
from reconciler.settings.notifications import ChannelSettings, NotificationSettings

if TYPE_CHECKING:
    from reconciler.notifications.forge_repositories import FormerRepository


def make_channels(
    settings: Settings, notifications: NotificationSettings, clock: Clock, former: Sequence[FormerRepository] = ()
) -> dict[str, Channel]:
    """The channels by name, forges among them; each connects with its first message.

    ``former`` are repositories that the settings have no longer, and at which something is left to say.
    """
    channels = {
        name: _make_channel(name, channel, settings, clock.now) for name, channel in notifications.channels.items()
    }
    forges = notifications.forges.items()
    return channels | {name: _make_forge(name, forge, settings, clock, former) for name, forge in forges}


class _UnusableChannel:
    """A channel whose settings lack something: each message is refused with what that is."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self._problem = problem

    async def send(self, message: Message, reference: str) -> str:  # noqa: ARG002 - of the protocol
        """Raise SendRefused."""
        raise SendRefused(self._problem)

    async def close(self) -> None:
        """Do nothing."""


def _make_forge(
    name: str, forge: ForgeSettings, settings: Settings, clock: Clock, former: Sequence[FormerRepository]
) -> Channel:
    from reconciler.notifications.forges.channel import ForgeChannel
    from reconciler.notifications.forges.registry import ForgeOptions, ForgeSet

    try:
        options = ForgeOptions(secrets=make_secret_files(settings), former=former)
        return ForgeChannel(ForgeSet(name, forge, settings.sources, clock, options))
    except UsageError as error:
        return _UnusableChannel(name, str(error))


def _make_channel(name: str, channel: ChannelSettings, settings: Settings, now: Callable[[], float]) -> Channel:
    secrets = make_secret_files(settings)
    # Each kind has a client that others do without.
    from reconciler.notifications.channels.webhook import WebhookChannel

    if channel.apprise is not None:
        from reconciler.notifications.channels.apprise import AppriseChannel

        return AppriseChannel(name, channel.apprise, secrets)
    if channel.slack is not None or channel.teams is not None:
        from reconciler.notifications.channels.chat import ChatChannel, make_slack_body, make_teams_body

        if channel.slack is not None:
            return ChatChannel(name, channel.slack, make_slack_body, now, secrets)
        if channel.teams is not None:
            return ChatChannel(name, channel.teams, make_teams_body, now, secrets)
    assert channel.webhook is not None, f"the settings were loaded without a kind of the channel {name}"
    return WebhookChannel(name, channel.webhook, f"/reconciler/{settings.org}", now, secrets)
