"""The HTTP request of a probe: a GET over HTTP/1.1 on this host, whose status is the result.

A client library (httpx) takes many times the CPU for each request, and 90 ms and 11 MB to import.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from urllib.parse import quote, urljoin, urlsplit

from reconciler.engines.host.probes.connection import HOST, connect_to_port, exchange_request
from reconciler.engines.host.probes.response import Head, ProbeError, read_head
from reconciler.model.kinds.workload import Header, Target

AGENT = "reconciler-probe"

REDIRECTS = 10
"""The number of redirects to follow; the same as in the Kubernetes prober."""

SENT = "/%?:@!$&'()*+,;=~[]"
"""Characters that stay unquoted in a path or query."""

NAME = re.compile(r"([a-zA-Z0-9-]{1,63}\.)*[a-zA-Z0-9-]{1,63}")

REQUESTS = 4_096
"""The number of requests that are held ready."""


async def fetch_status(target: Target, port: int, allowed: Collection[int]) -> int:
    """The status of a GET of ``target`` at ``port``, after redirects (docs/platform/workload.md#probes).

    Redirects are followed only to this host and to one of the ports ``allowed``, which are those of the replica. Any
    other redirect is the result itself. Certificates are not checked, since a replica has no verifiable one. Raises
    ProbeError and OSError; has no timeout.
    """
    url = f"{target.scheme.lower()}://{HOST}:{port}{target.path.partition('#')[0]}"
    for _ in range(REDIRECTS + 1):
        head = await _send_request(url, target.http_headers)
        location = head.fields.get("location", "")
        if not location or not 300 < head.status < 400:
            return head.status
        following = _follow_redirect(url, location, allowed)
        if not following:
            return head.status
        url = following
    raise ProbeError(f"more than {REDIRECTS} redirects")


def _follow_redirect(url: str, location: str, allowed: Collection[int]) -> str:
    """The URL that ``location`` refers to from ``url``; "" if it is outside of the replica or invalid."""
    try:
        following = urljoin(url, location)
        parts = urlsplit(following)
        inside = parts.scheme in ("http", "https") and parts.hostname == HOST and _get_port(following) in allowed
    except ValueError:
        return ""
    return following if inside else ""


@lru_cache(REQUESTS)
def _get_port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


async def _send_request(url: str, headers: tuple[Header, ...]) -> Head:
    """The head of the response to one request."""
    if url.startswith("https:"):
        return await _ask_tls(url, headers)
    request = build_request(url, headers)
    with await connect_to_port(_get_port(url)) as sock:
        return await exchange_request(sock, request)


async def _ask_tls(url: str, headers: tuple[Header, ...]) -> Head:
    request = build_request(url, headers)
    reader, writer = await asyncio.open_connection(
        HOST,
        _get_port(url),
        ssl=_unverified_context(),
        server_hostname=_get_server_name(headers),
        ssl_shutdown_timeout=1.0,
    )
    with close_writer_at_exit(writer):
        writer.write(request)
        head = await read_head(reader)
        await _skip_body(reader, head.unread)
        return head


async def _skip_body(reader: asyncio.StreamReader, left: int) -> None:
    while left > 0 and (part := await reader.read(left)):
        left -= len(part)


@contextmanager
def close_writer_at_exit(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Close the connection at the end; after an error, without waiting for what is not sent yet."""
    try:
        yield
    except BaseException:
        writer.transport.abort()
        raise
    writer.close()


@cache
def _unverified_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@lru_cache(REQUESTS)
def build_request(url: str, headers: tuple[Header, ...]) -> bytes:
    """A GET of ``url``; ``headers`` replace the usual ones. Raises ProbeError."""
    parts = urlsplit(url)
    path = quote(parts.path or "/", safe=SENT)
    query = "?" + quote(parts.query, safe=SENT) if parts.query else ""
    written = {header.name.lower() for header in headers}
    usual = {"host": f"Host: {parts.netloc}", "user-agent": f"User-Agent: {AGENT}", "accept": "Accept: */*"}
    lines = [f"GET {path}{query} HTTP/1.1", *(line for name, line in usual.items() if name not in written)]
    lines += [f"{header.name}: {header.value}" for header in headers if header.name.lower() != "connection"]
    lines.append("Connection: close")
    if any(character < " " or character == "\x7f" for line in lines for character in line):
        raise ProbeError("a header that cannot be sent")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _get_server_name(headers: tuple[Header, ...]) -> str:
    """The server name for TLS, with which a server selects its certificate: that of the Host header, if valid."""
    host = next((header.value for header in headers if header.name.lower() == "host"), "")
    name = host.partition(":")[0]
    return name if NAME.fullmatch(name) and len(name) <= 253 else HOST
