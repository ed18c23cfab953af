"""The webhook, at a real server: CloudEvents, the signature of Standard Webhooks, and what its answers mean."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from reconciler.model.finding import Finding
from reconciler.model.finding import Severity as FindingSeverity
from reconciler.notifications.channels.channel import SendFailed, SendRefused
from reconciler.notifications.channels.webhook import WebhookChannel
from reconciler.notifications.message import EventType, Message, MessageResource, State
from reconciler.notifications.severity import Severity
from reconciler.settings.notifications import WebhookChannelSettings
from tests.notifications.receiver import Receiver
from tests.support.waiting import serving

NOW = 1_767_225_600.0
KEY = b"0123456789abcdef01234567"
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
MESSAGE = Message(
    id="run/main/" + "a" * 40,
    sequence=7,
    event=EventType.RUN,
    state=State.FAILURE,
    severity=Severity.ERROR,
    title="main: aaaaaaaaaaaa failed",
    at=NOW,
    source="main",
    resources=(MessageResource("workload/shop/api", "create", "local", "EngineFailed", "no room"),),
    findings=(Finding("shop/api.yaml", 1, 2, "rule", FindingSeverity.ERROR, "wrong"),),
    link="https://reconciler.example.com/ui/resource/source/main",
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    with serving(server):
        yield server


@pytest.fixture
def make_channel(receiver: Receiver, tmp_path: Path) -> Callable[..., WebhookChannel]:
    (tmp_path / "secret").write_text(SECRET + "\n")
    (tmp_path / "url").write_text(receiver.url + "\n")

    def make(**fields: Any) -> WebhookChannel:
        settings = {"secret_file": tmp_path / "secret", "url_file": tmp_path / "url", **fields}
        return WebhookChannel("ops", WebhookChannelSettings(**settings), "/reconciler/acme", lambda: NOW)

    return make


MakeChannel = Callable[..., WebhookChannel]


async def test_a_message_is_a_signed_cloud_event(receiver: Receiver, make_channel: MakeChannel) -> None:
    channel = make_channel()
    assert await channel.send(MESSAGE, "") == ""
    await channel.close()
    ((headers, body),) = receiver.requests
    assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["webhook-timestamp"] == str(int(NOW))
    event = json.loads(body)
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": headers["webhook-id"],
        "source": "/reconciler/acme",
        "type": "io.reconciler.run.failure",
        "subject": MESSAGE.id,
        "time": "2026-01-01T00:00:00Z",
        "severitytext": "error",
        "severitynumber": 17,
        "datacontenttype": "application/json",
    }
    assert (data["sequence"], data["state"], data["link"]) == (7, "failure", MESSAGE.link)
    assert data["resources"][0]["key"] == "workload/shop/api"
    assert data["findings"][0]["line"] == 1


async def test_each_try_has_the_same_id_and_another_message_another(
    receiver: Receiver, make_channel: MakeChannel
) -> None:
    import msgspec

    channel = make_channel()
    for message in (MESSAGE, msgspec.structs.replace(MESSAGE, may_repeat=True)):
        await channel.send(message, "")
    await channel.send(msgspec.structs.replace(MESSAGE, sequence=8), "")
    await channel.close()
    ids = [headers["webhook-id"] for headers, _ in receiver.requests]
    assert ids[0] == ids[1] != ids[2]
    assert json.loads(receiver.requests[1][1])["data"]["mayRepeat"]


@pytest.mark.parametrize(
    ("status", "headers", "error", "wait"),
    [
        (500, {}, SendFailed, None),
        (503, {"retry-after": "120"}, SendFailed, 120.0),
        (429, {"retry-after": formatdate(NOW + 90, usegmt=True)}, SendFailed, 90.0),
        (429, {"retry-after": "soon"}, SendFailed, None),
        (408, {}, SendFailed, None),
        (400, {}, SendRefused, None),
        (401, {}, SendRefused, None),
        (410, {}, SendRefused, None),
        (302, {"location": "http://127.0.0.1:1/other"}, SendRefused, None),
    ],
)
async def test_answers_are_failures_that_pass_or_refusals(
    receiver: Receiver,
    make_channel: MakeChannel,
    status: int,
    headers: dict[str, str],
    error: type[SendFailed | SendRefused],
    wait: float | None,
) -> None:
    receiver.answers = [(status, headers)]
    channel = make_channel()
    with pytest.raises(error, match=f"^127.0.0.1 answers {status}$") as raised:
        await channel.send(MESSAGE, "")
    assert getattr(raised.value, "retry_after", None) == wait
    assert len(receiver.requests) == 1
    await channel.close()


async def test_no_error_has_the_url_or_the_secret(make_channel: MakeChannel, tmp_path: Path) -> None:
    (tmp_path / "closed").write_text("http://127.0.0.1:9/services/hunter2")
    (tmp_path / "odd").write_text("ftp://hunter2.example.com/hunter2")
    (tmp_path / "lines").write_text("hunter2\nhunter2")
    (tmp_path / "base64").write_text("whsec_hunter2!!")
    (tmp_path / "binary").write_bytes(b"\xff\xfehunter2")
    cases = (
        {"url_file": tmp_path / "closed"},
        {"url_file": tmp_path / "odd"},
        {"url_file": tmp_path / "lines"},
        {"url_file": tmp_path / "missing"},
        {"url_file": None, "url": "http://[hunter2/"},
        {"secret_file": tmp_path / "base64"},
        {"secret_file": tmp_path / "binary"},
        {"secret_file": tmp_path / "missing"},
    )
    for fields in cases:
        channel = make_channel(**fields)
        with pytest.raises((SendFailed, SendRefused)) as raised:
            await channel.send(MESSAGE, "")
        assert "hunter2" not in re.sub(r"/\S*", "", str(raised.value)), fields
        await channel.close()
