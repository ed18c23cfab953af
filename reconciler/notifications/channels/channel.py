"""A channel: the way to one receiver, such as a webhook, a chat room, or the commits of a forge."""

from __future__ import annotations

from typing import Protocol

from reconciler.errors import ReconcilerError
from reconciler.notifications.message import Message


class SendError(ReconcilerError):
    """A message was not delivered. The text is for people: it names neither a secret nor a URL that has one.

    Any other exception of a channel is a bug in it: it is contained, and the message is tried again.
    """


class SendRefused(SendError):
    """The receiver will never take this message, such as 400, 401, 404 or 410: it is not tried again."""


class SendFailed(SendError):
    """The message may get through later.

    ``retry_after`` are the seconds that the receiver asks to wait, or None. ``reached`` says whether it may have the
    message nevertheless, as when it timed out after the request was sent.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, reached: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.reached = reached


class Channel(Protocol):
    """One receiver. The sender calls one ``send`` at a time, and limits how often."""

    name: str
    """The name in the settings."""

    async def send(self, message: Message, reference: str) -> str:
        """Deliver ``message``; return what names it at the receiver, or "" where nothing does.

        ``reference`` is that name of the former message with its id, or "": the receiver then changes that one. A
        message may come a second time after a crash; a channel that can, lets the receiver deduplicate by id and
        sequence. Raises SendRefused, or SendFailed. May be cancelled at any time.
        """

    async def close(self) -> None:
        """Close connections and processes, within two seconds."""
