"""The channels for Slack and Teams: a webhook of a room, which takes messages in the rich form of the chat."""

from __future__ import annotations

import re
from collections.abc import Callable

from reconciler.notifications.channels.channel import SendFailed
from reconciler.notifications.channels.secret_files import SecretFiles
from reconciler.notifications.channels.webhook import PostClient, get_host, read_url
from reconciler.notifications.message import Message
from reconciler.settings.notifications import ChatChannelSettings

_HIDDEN_ERROR = re.compile(r"HTTP error (\d{3})")
"""How an older webhook of Teams says in an answer 200 that it has not taken the message."""


class ChatChannel:
    """Posts each message as ``make_body`` makes it. A webhook of a chat cannot change what it has posted."""

    def __init__(
        self,
        name: str,
        settings: ChatChannelSettings,
        make_body: Callable[[Message], bytes],
        now: Callable[[], float],
        secrets: SecretFiles | None = None,
    ) -> None:
        self.name = name
        self._settings = settings
        self._make_body = make_body
        self._secrets = secrets or SecretFiles()
        self._client = PostClient(settings.ca_file, now)

    async def send(self, message: Message, reference: str) -> str:  # noqa: ARG002 - it cannot edit
        """Post ``message``; returns "". Raises SendRefused and SendFailed."""
        url = read_url(self._secrets, self._settings.url_file)
        headers = {"content-type": "application/json; charset=utf-8", "user-agent": "reconciler"}
        answer = await self._client.post(url, self._make_body(message), headers)
        if error := _HIDDEN_ERROR.search(answer[:1_000]):
            raise SendFailed(f"{get_host(url)} answers {error[1]}")
        return ""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
