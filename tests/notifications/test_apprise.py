"""Chats and mail by Apprise: a child sends to its JSON target and to a mail server."""

from __future__ import annotations

import asyncio
import socketserver
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.notifications.channels import apprise
from reconciler.notifications.channels.apprise import AppriseChannel, choose_kind
from reconciler.notifications.channels.channel import SendFailed, SendRefused
from reconciler.notifications.message import EventType, Message, State
from reconciler.notifications.severity import Severity
from reconciler.settings.notifications import AppriseChannelSettings
from tests.notifications.receiver import Receiver
from tests.support.waiting import serving

pytest.importorskip("apprise", reason="the extra `notify` is missing: pip install -e '.[dev]'")

MESSAGE = Message(
    id="run/main/1",
    sequence=1,
    event=EventType.RUN,
    state=State.FAILURE,
    severity=Severity.ERROR,
    title="main: aaaaaaaaaaaa failed: *bold* @channel",
    at=1.0,
    lines=("a line <b>of</b> others",),
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    with serving(server):
        yield server


def make_channel(tmp_path: Path, *urls: str) -> AppriseChannel:
    (tmp_path / "urls").write_text("\n".join(["# services", "", *urls]))
    return AppriseChannel("team", AppriseChannelSettings(tmp_path / "urls"))


async def test_a_message_reaches_each_service_of_the_file(tmp_path: Path, receiver: Receiver) -> None:
    port = receiver.server_address[1]
    channel = make_channel(tmp_path, f"json://127.0.0.1:{port}/first", f"json://127.0.0.1:{port}/second")
    assert await channel.send(MESSAGE, "") == ""
    assert receiver.paths == ["/first", "/second"]
    event = receiver.events[0]
    assert event["type"] == "failure"
    assert event["title"] == "main: aaaaaaaaaaaa failed: *bold* @\u2060channel"
    assert event["message"] == "a line <b>of</b> others\nSeverity: error"
    await channel.close()


async def test_a_service_that_refuses_is_a_failure_without_its_url(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [(500, {})]
    channel = make_channel(tmp_path, f"json://hunter2:hunter2@127.0.0.1:{receiver.server_address[1]}/")
    with pytest.raises(SendFailed) as raised:
        await channel.send(MESSAGE, "")
    assert "hunter2" not in str(raised.value)
    assert await channel.send(MESSAGE, "") == ""


async def test_a_url_of_no_service_is_refused(tmp_path: Path) -> None:
    channel = make_channel(tmp_path, "nosuchservice://hunter2")
    with pytest.raises(SendRefused) as raised:
        await channel.send(MESSAGE, "")
    assert "hunter2" not in str(raised.value)


async def test_a_service_that_hangs_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apprise, "SECONDS", 2.0)
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    channel = make_channel(tmp_path, f"json://127.0.0.1:{silent.sockets[0].getsockname()[1]}/?rto=60&cto=60")
    with pytest.raises(SendFailed, match="not sent it in 2 s") as raised:
        await channel.send(MESSAGE, "")
    assert raised.value.reached
    silent.close()


class _MailServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        self.mails: list[str] = []
        super().__init__(("127.0.0.1", 0), _MailHandler)


class _MailHandler(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs."""

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _MailServer)
        self.wfile.write(b"220 mail\r\n")
        lines: list[str] = []
        in_data = False
        for raw in self.rfile:
            line = raw.decode().rstrip("\r\n")
            if in_data and line != ".":
                lines.append(line)
                continue
            word = line.partition(" ")[0].upper()
            in_data = word == "DATA"
            self.wfile.write(b"354 go on\r\n" if in_data else b"221 bye\r\n" if word == "QUIT" else b"250 ok\r\n")
        server.mails.append("\n".join(lines))


async def test_a_message_is_a_mail_of_plain_text(tmp_path: Path) -> None:
    server = _MailServer()
    with serving(server):
        port = server.server_address[1]
        url = f"mailto://127.0.0.1:{port}?from=ops@example.com&to=team@example.com&mode=insecure&format=text"
        await make_channel(tmp_path, url).send(MESSAGE, "")
    (mail,) = server.mails
    assert "To: team@example.com" in mail
    assert "text/plain" in mail


@pytest.mark.parametrize(
    ("state", "severity", "kind"),
    [
        (State.FAILURE, Severity.ERROR, "failure"),
        (State.SUCCESS, Severity.ERROR, "success"),
        (State.NONE, Severity.WARNING, "warning"),
        (State.FAILURE, Severity.WARNING, "warning"),
        (State.FAILURE, Severity.CRITICAL, "failure"),
        (State.RUNNING, Severity.INFO, "info"),
    ],
)
def test_the_kind_follows_the_state(state: State, severity: Severity, kind: str) -> None:
    assert choose_kind(msgspec.structs.replace(MESSAGE, state=state, severity=severity)) == kind
