"""The generic channel: a CloudEvent as JSON by HTTP POST, signed as Standard Webhooks have it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx2
import msgspec

from reconciler.notifications.bodies import describe_message
from reconciler.notifications.channels.channel import SendFailed, SendRefused
from reconciler.notifications.channels.secret_files import SecretFiles
from reconciler.notifications.message import Message
from reconciler.notifications.severity import Severity
from reconciler.settings.notifications import WebhookChannelSettings
from reconciler.times import format_iso_time

SECONDS = 30.0
"""Seconds in which a receiver must answer."""
CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
PREFIX = "whsec_"
"""What a secret begins with that is written in base64; any other one is taken as it is."""
_AGAIN = frozenset({408, 409, 425, 429})
"""Answers below 500 after which it is tried again."""
_SEVERITY_NUMBERS = {Severity.INFO: 9, Severity.WARNING: 13, Severity.ERROR: 17, Severity.CRITICAL: 21}
"""The numbers of OpenTelemetry, as the extension ``severity`` of CloudEvents has them."""
LONGEST_WAIT = 86_400.0
"""The longest wait in seconds that a receiver can ask for."""


class Answer(Protocol):
    """What is read of an answer over HTTP."""

    status_code: int

    @property
    def headers(self) -> Any:
        """The headers, by name in any case."""


class PostClient:
    """Posts messages to one receiver, which it trusts by the certificates in ``ca_file``, or those of this host."""

    def __init__(self, ca_file: Path | None, now: Callable[[], float]) -> None:
        self._ca_file = ca_file
        self._now = now
        self._client: httpx2.AsyncClient | None = None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> str:
        """Post ``body``, and return the text of the answer. Raises SendRefused and SendFailed."""
        try:
            answer = await self._open().post(url, content=body, headers=headers)
        except httpx2.ConnectError:
            raise SendFailed(f"{get_host(url)} cannot be reached") from None
        except httpx2.TimeoutException:
            raise SendFailed(f"{get_host(url)} does not answer in {SECONDS:.0f} s", reached=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise SendFailed(f"{get_host(url)}: {type(error).__name__}", reached=True) from None
        check_answer(answer, get_host(url), self._now())
        return answer.text

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            context = ssl.create_default_context(cafile=None if self._ca_file is None else str(self._ca_file))
            # A redirect would lead a message to another host.
            self._client = httpx2.AsyncClient(verify=context, timeout=SECONDS, follow_redirects=False)
        return self._client


def read_url(secrets: SecretFiles, path: Path) -> str:
    """The URL in the file ``path``. Raises SendRefused if it is none, and SendFailed if it cannot be read."""
    url = secrets.read_line(path, "URL")
    if urlsplit(url).scheme not in ("http", "https"):
        raise SendRefused(f"{path} has no URL such as https://hooks.example.com/reconciler")
    return url


class WebhookChannel:
    """Sends each message as a CloudEvent. Its ``webhook-id`` is the same for each try, so that receivers know it."""

    def __init__(
        self,
        name: str,
        settings: WebhookChannelSettings,
        source: str,
        now: Callable[[], float],
        secrets: SecretFiles | None = None,
    ) -> None:
        self.name = name
        self._secrets = secrets or SecretFiles()
        self._settings = settings
        self._source = source
        self._now = now
        self._client = PostClient(settings.ca_file, now)

    async def send(self, message: Message, reference: str) -> str:  # noqa: ARG002 - it cannot edit
        """Post ``message``; returns "". Raises SendRefused and SendFailed."""
        url, secret = self._read_url(), self._read_secret()
        number = make_webhook_id(message)
        body = encode_event(message, number, self._source)
        at = str(int(self._now()))
        headers = {
            "content-type": CONTENT_TYPE,
            "webhook-id": number,
            "webhook-timestamp": at,
            "webhook-signature": sign_body(secret, number, at, body),
            "user-agent": "reconciler",
        }
        await self._client.post(url, body, headers)
        return ""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _read_url(self) -> str:
        file = self._settings.url_file
        return self._settings.url if file is None else read_url(self._secrets, file)

    def _read_secret(self) -> bytes:
        text = self._secrets.read_line(self._settings.secret_file, "secret")
        if not text.startswith(PREFIX):
            return text.encode()
        try:
            return base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            raise SendRefused(f"the secret in {self._settings.secret_file} is no base64 after {PREFIX}") from None


def get_host(url: str) -> str:
    """The host of ``url``, for messages: the rest may be a secret."""
    try:
        return urlsplit(url).hostname or "the receiver"
    except ValueError:
        return "the receiver"


def make_webhook_id(message: Message) -> str:
    """An id that each try to send ``message`` has, and no other message."""
    text = f"{message.id}\n{message.sequence}\n{message.at:.6f}"
    return f"msg_{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def encode_event(message: Message, number: str, source: str) -> bytes:
    """``message`` as a CloudEvent 1.0 with the id ``number``, in JSON."""
    state = f".{message.state}" if message.state != "none" else ""
    event = {
        "specversion": "1.0",
        "id": number,
        "source": source,
        "type": f"io.reconciler.{message.event}{state}",
        "subject": message.id,
        "time": format_iso_time(message.at),
        "severitytext": str(message.severity),
        "severitynumber": _SEVERITY_NUMBERS[message.severity],
        "datacontenttype": "application/json",
        "data": describe_message(message),
    }
    return msgspec.json.encode(event)


def sign_body(secret: bytes, number: str, at: str, body: bytes) -> str:
    """The header ``webhook-signature`` of Standard Webhooks: ``v1,`` and an HMAC-SHA256 in base64."""
    content = b".".join((number.encode(), at.encode(), body))
    return f"v1,{base64.b64encode(hmac.new(secret, content, hashlib.sha256).digest()).decode()}"


def check_answer(answer: Answer, host: str, now: float) -> None:
    """Raise SendFailed or SendRefused unless ``answer`` of ``host`` says that it has the message."""
    status = answer.status_code
    if 200 <= status < 300:
        return
    words = f"{host} answers {status}"
    if status >= 500 or status in _AGAIN:
        raise SendFailed(words, retry_after=read_retry_after(answer.headers.get("retry-after", ""), now))
    raise SendRefused(words)


def read_retry_after(text: str, now: float) -> float | None:
    """The seconds that the header ``Retry-After`` asks to wait, None if it has no number and no time."""
    try:
        seconds = float(text) if text.isdecimal() else parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError):
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT)
