"""Makes the channels that the settings name, and the links of messages."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.notifications.channel import Channel
from reconciler.notifications.message import EventType, Message
from reconciler.settings import Settings
from reconciler.settings.notifications import ChannelSettings, NotificationSettings


def make_channels(
    settings: Settings, notifications: NotificationSettings, now: Callable[[], float]
) -> dict[str, Channel]:
    """The channels by name; each connects with its first message."""
    source = f"/reconciler/{settings.org}"
    return {name: _make_channel(name, channel, source, now) for name, channel in notifications.channels.items()}


def _make_channel(name: str, channel: ChannelSettings, source: str, now: Callable[[], float]) -> Channel:
    # Each kind has a client that others do without.
    from reconciler.notifications.webhook import WebhookChannel

    if channel.apprise is not None:
        from reconciler.notifications.apprise import AppriseChannel

        return AppriseChannel(name, channel.apprise)
    assert channel.webhook is not None, f"the settings were loaded without a kind of the channel {name}"
    return WebhookChannel(name, channel.webhook, source, now)


def make_linker(settings: Settings) -> Callable[[Message], str]:
    """What returns the link of a message to the page of the settings, "" if there is no page."""
    api = settings.api
    base = api.endpoint if api is not None and api.page else ""
    if not base:
        return lambda _: ""
    return lambda message: f"{base}{_choose_path(message)}"


def _choose_path(message: Message) -> str:
    keys = {resource.key for resource in message.resources}
    if message.event is EventType.APPROVAL:
        return f"/ui/plan/source/{message.source}"
    if message.event not in (EventType.RUN, EventType.REFUSED) and len(keys) == 1:
        key = keys.pop()
        return f"/ui/resource/{key}" if key and not key.startswith("location/") else "/"
    return f"/ui/resource/source/{message.source}" if message.source else "/"
