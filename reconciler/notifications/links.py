"""The links of messages: to the view of our page that shows more."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.notifications.message import EventType, Message, State
from reconciler.settings import Settings


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
    if message.event is EventType.RUN and message.state in (State.PENDING, State.RUNNING):
        return f"/ui/plan/source/{message.source}?revision={message.commit}"
    if message.event not in (EventType.RUN, EventType.REFUSED) and len(keys) == 1:
        key = keys.pop()
        return f"/ui/resource/{key}" if "/" in key and not key.startswith("location/") else "/"
    return f"/ui/resource/source/{message.source}" if message.source else "/"
