"""Messages in the rich forms of chats: blocks of Slack, and an Adaptive Card of Teams.

Texts of others are in parts that know no markup, and disarmed all the same. The only link is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from reconciler.model.finding import Severity
from reconciler.notifications.bodies import LONGEST_TITLE, disarm_text, list_lines, shorten_text
from reconciler.notifications.channel import SendFailed
from reconciler.notifications.message import Message, State
from reconciler.notifications.secret_files import SecretFiles
from reconciler.notifications.webhook import PostClient, get_host, read_url
from reconciler.settings.notifications import ChatChannelSettings

MOST_HEADER, MOST_SECTION, MOST_SECTIONS = 150, 3_000, 4
"""Characters of a header and of a section of Slack, and the sections of a message; it takes 50 blocks."""
MOST_BYTES = 27_000
"""The most bytes of a message to Teams, in UTF-8 and in UTF-16; it takes 28 KB."""

_SYMBOLS = {State.FAILURE: "❌", State.SUCCESS: "✅", State.RUNNING: "⏳", State.PENDING: "⏳"}
_COLOURS = {State.FAILURE: "Attention", State.SUCCESS: "Good", State.RUNNING: "Accent", State.PENDING: "Accent"}
_CONTROL = re.compile(r"<(?=\S)")
"""The beginning of a mention or link of Slack, such as ``<!here>``."""
_JOINER = "\u2060"


def make_slack_body(message: Message) -> bytes:
    """The JSON for an incoming webhook of Slack: a header, the lines in sections, and a link."""
    title = f"{_choose_symbol(message)} {_disarm_line(shorten_text(message.title, LONGEST_TITLE))}"
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _make_plain(_cut_text(title, MOST_HEADER))}]
    blocks += ({"type": "section", "text": _make_plain(text)} for text in _join_sections(list_lines(message)))
    if message.link:
        link = {"type": "mrkdwn", "text": f"<{_escape_slack(message.link)}|Details>"}
        blocks.append({"type": "context", "elements": [link]})
    # The text is what notifications of a phone show.
    body = {"text": _escape_slack(title), "blocks": blocks, "unfurl_links": False, "unfurl_media": False}
    return msgspec.json.encode(body)


def make_teams_body(message: Message) -> bytes:
    """The JSON for a workflow of Teams that takes a webhook: one Adaptive Card, without the lines that are too many."""
    lines = [_disarm_line(line) for line in list_lines(message)]
    for count in range(len(lines), -1, -1):
        left_out = [f"… and {len(lines) - count} more lines"] if count < len(lines) else []
        body = _make_card(message, [*lines[:count], *left_out])
        if len(body) <= MOST_BYTES and 2 * len(body.decode()) <= MOST_BYTES:
            break
    return body


def _make_card(message: Message, lines: Iterable[str]) -> bytes:
    title = _disarm_line(shorten_text(message.title, LONGEST_TITLE))
    head = {"size": "Large", "weight": "Bolder", "color": _choose_colour(message)}
    card: dict[str, Any] = {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": [_make_text(title, **head), *(_make_text(line) for line in lines)],
    }
    if message.link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Details", "url": message.link}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return msgspec.json.encode({"type": "message", "summary": title, "attachments": [attachment]})


def _make_text(text: str, **style: str) -> dict[str, Any]:
    """A paragraph; unlike a TextBlock, a TextRun has no Markdown."""
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}


def _make_plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _join_sections(lines: Iterable[str]) -> Iterator[str]:
    """Lines as texts of at most MOST_SECTION characters; those beyond the last section are cut."""
    text, number = "", 1
    for line in (f"• {_disarm_line(line)}" for line in lines):
        if text and len(text) + len(line) + 1 > MOST_SECTION - 2:
            if number == MOST_SECTIONS:
                text += "\n…"
                break
            yield text
            text, number = "", number + 1
        text = f"{text}\n{line}" if text else _cut_text(line, MOST_SECTION - 2)
    if text:
        yield text


def _cut_text(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _disarm_line(text: str) -> str:
    return _CONTROL.sub(f"<{_JOINER}", disarm_text(text))


def _escape_slack(text: str) -> str:
    """``text`` in the markup of Slack, which has three special characters; ``|`` ends the address of a link."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("|", "%7C") if text.startswith(("http://", "https://")) else escaped


def _choose_symbol(message: Message) -> str:
    usual = "⚠️" if message.severity in (Severity.WARNING, Severity.ERROR) else "ℹ️"
    return _SYMBOLS.get(message.state, usual)


def _choose_colour(message: Message) -> str:
    usual = "Warning" if message.severity in (Severity.WARNING, Severity.ERROR) else "Default"
    return _COLOURS.get(message.state, usual)


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
