"""The channels for Slack and Teams, at a real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.notifications.channels.channel import Channel, SendFailed, SendRefused
from reconciler.notifications.channels.chat import make_slack_body, make_teams_body
from reconciler.notifications.channels.registry import make_channels
from reconciler.notifications.message import EventType, Message, State
from reconciler.settings import Settings
from reconciler.settings.notifications import ChannelSettings, ChatChannelSettings, NotificationSettings
from tests.notifications.receiver import Receiver
from tests.support.clock import FakeClock
from tests.support.waiting import serving

MESSAGE = Message(id="x", sequence=1, event=EventType.RUN, state=State.FAILURE, title="main: it failed", at=0.0)
KINDS = ("slack", "teams")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    with serving(server):
        yield server


@pytest.fixture
def make_channel(receiver: Receiver, tmp_path: Path) -> Callable[[str], Channel]:
    """Makes a channel of a kind, as the daemon does."""
    (tmp_path / "url").write_text(f"{receiver.url}\n")

    def make(kind: str) -> Channel:
        channel = ChannelSettings(**{kind: ChatChannelSettings(tmp_path / "url")})
        wanted = NotificationSettings({"room": channel})
        return make_channels(Settings("acme", (), tmp_path, notifications=wanted), wanted, FakeClock())["room"]

    return make


@pytest.mark.parametrize(("kind", "make_body"), [("slack", make_slack_body), ("teams", make_teams_body)])
async def test_a_room_gets_the_message_in_its_own_form(
    receiver: Receiver, make_channel: Callable[[str], Channel], kind: str, make_body: Callable[[Message], bytes]
) -> None:
    channel = make_channel(kind)
    receiver.answers, receiver.text = [(200, {}), (202, {})], "ok"
    assert await channel.send(MESSAGE, "") == ""
    assert await channel.send(MESSAGE, "former") == ""
    await channel.close()
    assert receiver.paths == ["/services/hunter2"] * 2
    for headers, body in receiver.requests:
        assert headers["content-type"] == "application/json; charset=utf-8"
        assert json.loads(body) == json.loads(make_body(MESSAGE))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "text", "refused"),
    [
        (400, "invalid_payload", True),
        (404, "channel_not_found", True),
        (410, "channel_is_archived", True),
        (302, "", True),
        (429, "rate_limited", False),
        (500, "rollup_error", False),
        (200, "Webhook message delivery failed with error: ... returned HTTP error 429 with ContextId x", False),
    ],
)
async def test_what_a_room_does_not_take_is_an_error_without_its_url(
    receiver: Receiver,
    make_channel: Callable[[str], Channel],
    kind: str,
    status: int,
    text: str,
    refused: bool,
) -> None:
    channel = make_channel(kind)
    receiver.answers, receiver.text = [(status, {"retry-after": "30"})], text
    with pytest.raises(SendRefused if refused else SendFailed) as raised:
        await channel.send(MESSAGE, "")
    await channel.close()
    assert "hunter2" not in str(raised.value)
    assert str(raised.value) == f"127.0.0.1 answers {429 if status == 200 else status}"
    if status == 429:
        assert isinstance(raised.value, SendFailed)
        assert raised.value.retry_after == 30


async def test_a_file_without_a_url_is_named(make_channel: Callable[[str], Channel], tmp_path: Path) -> None:
    (tmp_path / "url").write_text("hunter2")
    with pytest.raises(SendRefused, match="url has no URL such as") as raised:
        await make_channel("slack").send(MESSAGE, "")
    assert "hunter2" not in str(raised.value)
