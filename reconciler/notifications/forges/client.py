"""Requests to one forge: at most one a second, to its own host alone, with errors for people and without secrets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import httpx2
import msgspec

from reconciler.clock import Clock
from reconciler.notifications.channels.channel import SendFailed, SendRefused
from reconciler.notifications.channels.secret_files import SecretFile
from reconciler.printable import escape_text

PAUSE = 1.0
"""Seconds between two requests to one forge."""
SECONDS = 30.0
"""Seconds in which a forge answers a request, in full."""
CONNECT_SECONDS = 10.0
MOST_BYTES = 8 * 1024 * 1024
"""The most bytes of an answer."""
LONGEST_WAIT = 86_400.0
_MOST_REDIRECTS = 3
_WORDS = 200
_LONGEST_WORDS = 2_000
_REDIRECTS = frozenset({301, 302, 307, 308})
_LATER = frozenset({408, 425, 429})
_ADVICE = {
    401: "the token is wrong or has ended: write a new one into its file",
    403: "the token lacks a right for this",
    404: "the repository or the commit is not there, or the token may not see it",
}

Answer = TypeVar("Answer")
Headers = Callable[[], Awaitable[Mapping[str, str]]]
"""Returns the headers that log in; a new login is made where the former has ended."""


class ForgeAnswer(msgspec.Struct, frozen=True):
    """What a forge answers; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ForgeRefusal(SendRefused):
    """A forge refuses a request; ``status`` is that of its answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Pace:
    """When the next request to a forge may leave, in monotonic seconds, and until when the forge takes none."""

    def __init__(self) -> None:
        self._next = 0.0
        self.closed_until = 0.0

    def take_turn(self, now: float, pause: float) -> float:
        """Take the next turn, ``pause`` after the former one; returns the seconds until it."""
        turn = max(now, self._next)
        self._next = turn + pause
        return turn - now

    def close_until(self, until: float) -> None:
        """Let no request leave before ``until``."""
        self.closed_until = max(self.closed_until, until)


PACES: dict[str, Pace] = {}
"""By the URL of an API: all clients of a process share one, whatever they are for."""


class AnswerTooLarge(SendFailed):
    """An answer has more than ``MOST_BYTES``."""


class ForgeClient:
    """Sends requests to ``base``, the URL of an API. ``ca_file`` has the authorities that sign its certificate.

    ``pause`` are the seconds between two requests, ``seconds`` those that an answer may take.
    """

    def __init__(
        self, base: str, clock: Clock, ca_file: Path | None = None, *, pause: float = PAUSE, seconds: float = SECONDS
    ) -> None:
        self.clock = clock
        self.base = base.rstrip("/")
        self.host = urlsplit(base).netloc
        self._ca_file = ca_file
        self._pause = pause
        self._seconds = seconds
        self._client: httpx2.AsyncClient | None = None
        self._pace = PACES.setdefault(self.base, Pace())

    async def get(self, path: str, kind: type[Answer], log_in: Headers, **query: str | int) -> Answer:
        """The answer to GET ``path``, as ``kind``. Raises SendRefused and SendFailed."""
        return await self.send("GET", path, kind, log_in, query=query)

    async def send(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        log_in: Headers,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> Answer:
        """The answer to ``method`` ``path`` with ``body`` as JSON, as ``kind``.

        Raises SendRefused for what no repetition mends, SendFailed for the rest.
        """
        content = None if body is None else msgspec.json.encode(body)
        url = f"{self.base}{path}"
        for _ in range(_MOST_REDIRECTS + 1):
            login = await log_in()
            answer = await self._exchange(method, url, login, content, query)
            if 200 <= answer.status < 300:
                return self._read(method, answer.body, kind)
            if answer.status not in _REDIRECTS or "location" not in answer.headers:
                raise self._explain(answer, _remove_secrets(_read_words(answer.body), login))
            url, query = self._follow(method, url, answer), None
        raise SendRefused(f"{self.host} redirects in a circle; name the URL of its API in the settings")

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _read(self, method: str, raw: bytes, kind: type[Answer]) -> Answer:
        if kind is type(None):
            return None
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            reached = method != "GET"
            raise SendFailed(
                f"{self.host} answers in a form that is not that of its API; check the URL and the type of the forge",
                reached=reached,
            ) from None

    def _follow(self, method: str, url: str, answer: ForgeAnswer) -> str:
        """The target of a redirect, at this host only. Raises SendRefused."""
        try:
            target = urljoin(url, answer.headers["location"])
            parts, own = urlsplit(target), urlsplit(url)
        except ValueError:
            raise SendRefused(f"{self.host} redirects to no URL") from None
        if (parts.scheme, parts.netloc) != (own.scheme, own.netloc):
            other = escape_text(parts.netloc.rpartition("@")[2])[:_WORDS]
            raise SendRefused(
                f"{self.host} redirects to {other}, which gets no token from here; name the right URL in the settings"
            )
        if method != "GET" and answer.status in (301, 302):
            raise SendRefused(f"{self.host} has the repository under another name; name that in the settings")
        return target

    def _explain(self, answer: ForgeAnswer, words: str) -> Exception:
        """The error for ``answer``, in the ``words`` of the forge."""
        status = answer.status
        wait = _read_wait(answer.headers, self.clock.now())
        words = f": {words[:_WORDS]}" if words else ""
        text = f"{self.host} answers {_name_status(status)}{words}"
        limited = status == 403 and ("retry-after" in answer.headers or _is_exhausted(answer.headers))
        if status in _LATER or status >= 500 or limited:
            if wait is not None and (status in _LATER or limited):
                self._pace.close_until(self.clock.monotonic() + wait)
            return SendFailed(text, retry_after=wait)
        advice = f" ({_ADVICE[status]})" if status in _ADVICE else ""
        return ForgeRefusal(f"{text}{advice}", status)

    async def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes | None,
        query: Mapping[str, str | int] | None,
    ) -> ForgeAnswer:
        """One request and its answer. Raises SendFailed."""
        await self._wait_for_turn()
        own = {"User-Agent": "reconciler", "Accept": "application/json", "Accept-Encoding": "identity"}
        own |= {"Content-Type": "application/json"} if content is not None else {}
        with self._reword_errors(reached=method != "GET"):
            async with asyncio.timeout(self._seconds):
                asked = self._open().stream(
                    method, url, headers={**own, **headers}, content=content, params=dict(query) if query else None
                )
                async with asked as response:
                    raw = bytearray()
                    async for chunk in response.aiter_raw():
                        raw += chunk
                        if len(raw) > MOST_BYTES:
                            raise AnswerTooLarge(f"{self.host} answers with more than {MOST_BYTES} bytes", reached=True)
                    got = {name.lower(): value for name, value in response.headers.items()}
                    if response.status_code < 400 and _is_exhausted(got):
                        self._pace.close_until(self.clock.monotonic() + (_read_wait(got, self.clock.now()) or 0.0))
                    return ForgeAnswer(response.status_code, got, bytes(raw))

    async def _wait_for_turn(self) -> None:
        """Return when the next request may leave. Raises SendFailed while the forge takes none."""
        now = self.clock.monotonic()
        closed = self._pace.closed_until - now
        if closed > 0:
            raise SendFailed(f"{self.host} takes no requests for {closed:.0f} s, as it said", retry_after=closed)
        await asyncio.sleep(self._pace.take_turn(now, self._pause))

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            context = ssl.create_default_context(cafile=str(self._ca_file)) if self._ca_file else True
            timeout = httpx2.Timeout(self._seconds, connect=CONNECT_SECONDS)
            self._client = httpx2.AsyncClient(verify=context, timeout=timeout, follow_redirects=False)
        return self._client

    @contextlib.contextmanager
    def _reword_errors(self, *, reached: bool) -> Any:
        """Let the failure of a request be a SendFailed; ``reached``: the forge may have done what it asks."""
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise SendFailed(f"{self.host} cannot be reached: {_describe_cause(error)}") from None
        except (TimeoutError, httpx2.TimeoutException):
            raise SendFailed(f"{self.host} does not answer within {self._seconds:g} s", reached=reached) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            raise SendFailed(
                f"{self.host} broke the connection off: {_describe_cause(error)}", reached=reached
            ) from None
        except OSError as error:
            raise SendFailed(f"{self._ca_file} cannot be used as a file of authorities: {error.strerror}") from None


def read_token(file: SecretFile) -> str:
    """The token in ``file``, on one line of visible characters. Raises SendFailed, which shows none of it."""
    text = file.read("token").strip()
    if not text.isascii():
        raise SendFailed(f"the token file {file.path} has other characters than a token")
    if not text or not text.isprintable() or " " in text:
        raise SendFailed(f"the token file {file.path} has to have the token, and nothing else")
    return text


def _read_words(raw: bytes) -> str:
    """What a forge says about a refusal, on one line; "" for a body of another form."""
    try:
        answer = msgspec.json.decode(raw[:100_000])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""
    text = "; ".join(dict.fromkeys(_collect_words(answer, 4)))
    return escape_text(" ".join(text.split()))[:_LONGEST_WORDS]


def _remove_secrets(text: str, login: Mapping[str, str]) -> str:
    """``text`` without what logs in: a forge may repeat it."""
    for value in login.values():
        scheme, _, token = value.rpartition(" ")
        secrets = {token}
        if scheme == "Basic":
            secrets.add(base64.b64decode(token).decode("latin-1").partition(":")[2])
        for secret in secrets:
            text = text.replace(secret, "***") if len(secret) >= 4 else text
    return text


def _collect_words(value: Any, depth: int) -> list[str]:
    """The texts below the fields that forges use for messages."""
    if isinstance(value, str):
        return [value]
    if depth == 0:
        return []
    if isinstance(value, list):
        return [word for item in value[:3] for word in _collect_words(item, depth - 1)]
    if not isinstance(value, dict):
        return []
    named = [value[name] for name in ("message", "error", "error_description", "errors", "detail") if name in value]
    return [word for item in named or list(value.values())[:3] for word in _collect_words(item, depth - 1)]


def _is_exhausted(headers: Mapping[str, str]) -> bool:
    """Whether the forge says that no request is left."""
    return "0" in (headers.get("x-ratelimit-remaining"), headers.get("ratelimit-remaining"))


def _read_wait(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that a forge asks to wait; None if it does not say."""
    wait = _read_number(headers.get("retry-after", ""))
    if wait is None and "retry-after" in headers:
        with contextlib.suppress(ValueError, OverflowError):
            wait = parsedate_to_datetime(headers["retry-after"]).timestamp() - now
    if wait is None and _is_exhausted(headers):
        end = _read_number(headers.get("x-ratelimit-reset", headers.get("ratelimit-reset", "")))
        # The time of the end, or the seconds until then.
        wait = None if end is None else end - now if end > LONGEST_WAIT * 365 else end
    return None if wait is None else min(max(wait, 0.0), LONGEST_WAIT)


def _read_number(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _name_status(status: int) -> str:
    with contextlib.suppress(ValueError):
        return f"{status} {HTTPStatus(status).phrase}"
    return str(status)


def _describe_cause(error: Exception) -> str:
    return escape_text(" ".join(str(error).split()))[:_WORDS] or type(error).__name__
