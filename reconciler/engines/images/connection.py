"""Requests to registries: bounded in time and size, with readable errors, and no login for another host."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import msgspec

from reconciler.clock import Clock
from reconciler.engines.images.protocol import BlobStream
from reconciler.engines.workload.image_reference import ImageError
from reconciler.logs import log
from reconciler.model.addresses import is_internal
from reconciler.printable import escape_text
from reconciler.reasons import Reason

SECONDS = 30.0
"""Seconds in which a registry must answer a request completely."""
CONNECT_SECONDS = 10.0
"""Seconds in which a connection must be made."""
LONGEST_WAIT = 3600.0
"""The longest wait in seconds that a registry can ask for."""

ADDRESSES = "addresses"
"""The extension of a request with the addresses to connect to, as a tuple of texts; without it, its host is used."""
MOST_ADDRESSES = 4
"""The most addresses of a host that are tried."""
MOST_HOSTS = 128
"""The most hosts with connections of their own; that of the oldest are closed."""

_MAX_REDIRECTS = 3
_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_WORDS = 300
_PLAIN = re.compile("wrong.version.number|record.layer|packet.length", re.IGNORECASE)
"""Errors of TLS if the other side speaks plain http."""
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_ADVICE = {
    401: "log in by a pull secret of the GVC or by `images.credentials`",
    403: "the login may not pull it, or there is none",
    404: "check its name and its tag",
}


class RegistryRequest(msgspec.Struct, frozen=True):
    """A request; ``headers`` may have a login. ``form`` makes it a POST. At most ``limit`` bytes are read."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    form: Mapping[str, str] | None = None
    limit: int = 65_536

    def __repr__(self) -> str:
        return f"Request({self.method} {self.url})"


class RegistryAnswer(msgspec.Struct, frozen=True):
    """An answer with its complete body; ``host`` is the one that answered, ``headers`` have names in lower case."""

    host: str
    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class _Fault(msgspec.Struct, frozen=True):
    code: Any = ""
    message: Any = ""


class _Faults(msgspec.Struct, frozen=True):
    """The form of errors of registries and token services."""

    errors: tuple[_Fault, ...] = ()
    details: Any = ""
    error_description: Any = ""
    message: Any = ""
    error: Any = ""


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Sends each request to an address of its host, and has the certificate checked for the host.

    Each host has connections of its own: one that was proven for a host carries no request for another.
    """

    def __init__(self) -> None:
        self._context = httpx2.create_ssl_context()
        self._plain = httpx2.AsyncHTTPTransport(verify=self._context)
        self._hosts: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The response to ``request``."""
        addresses = request.extensions.get(ADDRESSES, ())
        if not addresses:
            return await self._plain.handle_async_request(request)
        transport = await self._of(request.url.netloc.decode("ascii"))
        *first, last = addresses[:MOST_ADDRESSES]
        for address in first:
            with suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await transport.handle_async_request(_sent_to(request, address))
        return await transport.handle_async_request(_sent_to(request, last))

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in (self._plain, *self._hosts.values()):
            await transport.aclose()
        self._hosts.clear()

    async def _of(self, host: str) -> httpx2.AsyncHTTPTransport:
        transport = self._hosts.get(host)
        if transport is None:
            while len(self._hosts) >= MOST_HOSTS:
                await self._hosts.pop(next(iter(self._hosts))).aclose()
            transport = self._hosts[host] = httpx2.AsyncHTTPTransport(verify=self._context)
        return transport


def _sent_to(request: httpx2.Request, address: str) -> httpx2.Request:
    """``request`` for its host, which is in its headers, at ``address``."""
    extensions = {**request.extensions, "sni_hostname": request.url.host}
    url = request.url.copy_with(host=address)
    return httpx2.Request(request.method, url, headers=request.headers, stream=request.stream, extensions=extensions)


class RegistryConnection:
    """Sends requests over https, and over http to the hosts in ``insecure``.

    Only these and the hosts in ``named`` may have an address that is internal. It uses the proxies of the environment
    and the certificates that this host trusts. ``transport`` replaces the network in tests.
    """

    def __init__(
        self,
        insecure: Collection[str],
        clock: Clock,
        seconds: float = SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
        named: Collection[str] = (),
    ) -> None:
        self._insecure = frozenset(insecure)
        self._named = self._insecure | frozenset(named)
        self.clock = clock
        self._seconds = seconds
        self._transport = transport
        self._clients: dict[bool, httpx2.AsyncClient] = {}

    def url(self, host: str, path: str) -> str:
        """The URL of ``path`` at the registry ``host``."""
        return f"{'http' if host in self._insecure else 'https'}://{host}{path}"

    def is_named(self, host: str) -> bool:
        """Whether the settings name ``host``."""
        return host in self._named

    def is_safe(self, url: str) -> bool:
        """Whether ``url`` uses https, or its host may be reached over http."""
        with suppress(ValueError):
            parts = urlsplit(url)
            return bool(parts.hostname) and (
                parts.scheme == "https" or (parts.scheme == "http" and parts.netloc in self._insecure)
            )
        return False

    async def send(self, request: RegistryRequest) -> RegistryAnswer:
        """The answer to ``request``; a form is not redirected. Raises ImageError."""
        first = request
        for _ in range(_MAX_REDIRECTS + 1):
            answer = await self._once(request)
            if answer.status not in _REDIRECTS or request.form is not None:
                return answer
            request = self._redirect(request, answer.headers)
        raise _too_many_redirects(first)

    @asynccontextmanager
    async def open(self, request: RegistryRequest) -> AsyncIterator[BlobStream]:
        """The answer to ``request``, of any size and for as long as parts of it come. Raises ImageError."""
        first = request
        for _ in range(_MAX_REDIRECTS + 1):
            host = urlsplit(request.url).netloc
            with self._reword_errors(host):
                async with self._exchange(request) as response:
                    headers = _get_headers(response)
                    if response.status_code not in _REDIRECTS:
                        yield BlobStream(host, response.status_code, headers, self._chunks(response, host))
                        return
            request = self._redirect(request, headers)
        raise _too_many_redirects(first)

    async def check(self, host: str) -> None:
        """Raise ImageError if the registry ``host`` has an internal address, and no setting names it."""
        async with asyncio.timeout(self._seconds):
            await self._addresses(self.url(host, "/"))

    async def close(self) -> None:
        """Close all connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def unreachable(self, host: str, cause: str) -> ImageError:
        """The error for a host that does not answer as a registry does.

        Whoever writes manifests learns nothing of what else is there: only the log has the cause, and the error where
        the settings name the host.
        """
        if host in self._named:
            return ImageError(f"{host} cannot be asked: {cause}")
        log().warning("registry_unreachable", host=host, cause=cause)
        return ImageError(f"{host} cannot be reached as a registry; the log of the daemon has the cause")

    def refusal(self, answer: RegistryAnswer) -> ImageError:
        """The error for an answer that is no success, in the words of the registry."""
        text = f"{answer.host} answers {_format_status(answer.status)}"
        words = registry_words(answer.body)
        text += f": {words}" if words else ""
        text += f" ({_ADVICE[answer.status]})" if answer.status in _ADVICE else ""
        asked = answer.headers.get("retry-after", "") if answer.status == 429 or answer.status >= 500 else ""
        return ImageError(text, wait=self._wait(asked), missing=answer.status == 404)

    def _wait(self, text: str) -> float | None:
        """The seconds in a header Retry-After: a number, or a date."""
        seconds = float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
        if seconds is None and text:
            with suppress(ValueError, OverflowError):
                seconds = parsedate_to_datetime(text).timestamp() - self.clock.now()
        return None if seconds is None else min(max(seconds, 0.0), LONGEST_WAIT)

    def _redirect(self, request: RegistryRequest, answered: Mapping[str, str]) -> RegistryRequest:
        """``request`` at the target of its answer, without its login if that is another host. Raises ImageError."""
        target = _get_redirect_target(request.url, answered)
        if not self.is_safe(target):
            host = urlsplit(request.url).netloc
            raise ImageError(f"{host} redirects to an address that is not one of https")
        left_host = urlsplit(target)[:2] != urlsplit(request.url)[:2]
        headers = {name: value for name, value in request.headers.items() if not left_host or name != "Authorization"}
        return msgspec.structs.replace(request, url=target, headers=headers)

    async def _once(self, request: RegistryRequest) -> RegistryAnswer:
        host = urlsplit(request.url).netloc
        with self._reword_errors(host):
            async with asyncio.timeout(self._seconds), self._exchange(request) as response:
                body = bytearray()
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > request.limit:
                        raise ImageError(f"{host} answers with more than {request.limit} bytes")
                return RegistryAnswer(host, response.status_code, _get_headers(response), bytes(body))

    async def _chunks(self, response: httpx2.Response, host: str) -> AsyncIterator[bytes]:
        with self._reword_errors(host):
            async for chunk in response.aiter_raw():
                yield chunk

    @contextmanager
    def _reword_errors(self, host: str) -> Iterator[None]:
        """Let the failure of a request to ``host`` be an ImageError."""
        try:
            yield
        except (TimeoutError, httpx2.TimeoutException):
            if host in self._named:
                raise ImageError(f"{host} does not answer within {self._seconds:g} s") from None
            raise self.unreachable(host, f"it does not answer within {self._seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            raise self.unreachable(host, _describe_cause(error)) from None

    @asynccontextmanager
    async def _exchange(self, request: RegistryRequest) -> AsyncIterator[httpx2.Response]:
        """The response to ``request``, from an address that was checked; its body is not read yet."""
        # Compression is refused: a small answer could grow without bound.
        headers = {**request.headers, "Accept-Encoding": "identity"}
        extensions = {ADDRESSES: await self._addresses(request.url)}
        client = self._client(request.url)
        asked = client.stream(request.method, request.url, headers=headers, data=request.form, extensions=extensions)
        async with asked as response:
            yield response

    def _client(self, url: str) -> httpx2.AsyncClient:
        """The client that uses the proxies of the environment, or the one that connects by itself."""
        proxied = self._transport is None and _has_proxy(url)
        client = self._clients.get(proxied)
        if client is None:
            timeout = httpx2.Timeout(self._seconds, connect=CONNECT_SECONDS)
            transport = None if proxied else self._transport or PinnedTransport()
            client = httpx2.AsyncClient(timeout=timeout, headers={"User-Agent": "reconciler"}, transport=transport)
            self._clients[proxied] = client
        return client

    async def _addresses(self, url: str) -> tuple[str, ...]:
        """The addresses to connect to; () where the settings name the host. Raises ImageError if one is internal."""
        parts = urlsplit(url)
        if self._transport is not None or parts.netloc in self._named:
            return ()
        try:
            records = await asyncio.get_running_loop().getaddrinfo(
                parts.hostname, parts.port or _PORTS[parts.scheme], type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError) as error:
            if _has_proxy(url):
                return ()  # Only the proxy knows the name.
            raise self.unreachable(parts.netloc, getattr(error, "strerror", "") or "no such host") from None
        addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in records))
        if any(map(is_internal, addresses)):
            raise ImageError(
                f"{parts.netloc} is not asked: it is an address of this host, of its link or of its cloud. If a "
                "registry is there, the operator names it in `images.allowed`",
                reason=Reason.IMAGE_NOT_ALLOWED,
            )
        return addresses


def registry_words(body: bytes) -> str:
    """The error message of a registry or a token service, on one line; "" for a body of another form."""
    try:
        faults = msgspec.json.decode(body, type=_Faults)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""
    several = [error.message or error.code for error in faults.errors[:3]]
    words = several or [faults.details or faults.error_description or faults.message or faults.error]
    text = "; ".join(word for word in words if isinstance(word, str))
    return escape_text(" ".join(text.split()))[:_WORDS]


def _has_proxy(url: str) -> bool:
    """Whether the environment has a proxy for ``url``."""
    parts, proxies = urlsplit(url), getproxies()
    return any(name in proxies for name in (parts.scheme, "all")) and not proxy_bypass(parts.netloc)


def _format_status(status: int) -> str:
    with suppress(ValueError):
        return f"{status} {HTTPStatus(status).phrase}"
    return str(status)


def _get_headers(response: httpx2.Response) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _get_redirect_target(url: str, headers: Mapping[str, str]) -> str:
    with suppress(ValueError):
        return urljoin(url, headers.get("location", ""))
    return ""


def _too_many_redirects(request: RegistryRequest) -> ImageError:
    return ImageError(f"{urlsplit(request.url).netloc} redirects more than {_MAX_REDIRECTS} times")


def _describe_cause(error: Exception) -> str:
    text = escape_text(" ".join(str(error).split()))[:_WORDS] or type(error).__name__
    if _UNTRUSTED in text:
        return f"{text} (add the authority that signed it to the certificates of this host, and restart the daemon)"
    if _PLAIN.search(text):
        return f"it does not speak TLS ({text}); if plain http is meant, name it in `images.insecure`"
    return text
