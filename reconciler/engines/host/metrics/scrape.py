"""Scrapes one container: a GET over HTTP/1.1, bounded in time and size, read while it arrives."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urljoin, urlsplit

from reconciler.engines.host.metrics.exposition import ExpositionParser, ScrapeError
from reconciler.engines.host.probes.connection import HOST
from reconciler.engines.host.probes.http import build_request, close_writer_at_exit
from reconciler.engines.host.probes.response import ProbeError, read_head, read_line
from reconciler.engines.target_metrics import TargetMetrics
from reconciler.model.kinds.workload import Header

TIMEOUT = 5.0
"""Seconds for the whole scrape (docs/platform/workload.md#metrics)."""
MAX_BYTES = 10 << 20
"""The longest text of one container."""
REDIRECTS = 5

_PART = 16_384
"""Bytes that are parsed at once: some milliseconds, between which everything else goes on."""
_ACCEPT = "text/plain;version=0.0.4;q=1,text/plain;q=0.5,*/*;q=0.1"
_HEADERS = tuple(
    Header(name=name, value=value)
    for name, value in {
        "User-Agent": "reconciler-scrape",
        "Accept": _ACCEPT,
        "Accept-Encoding": "identity",
        "X-Prometheus-Scrape-Timeout-Seconds": f"{TIMEOUT:g}",
    }.items()
)
_OTHER_FORMATS = ("application/openmetrics-text", "application/vnd.google.protobuf")
_HEX = re.compile(r"[0-9a-fA-F]{1,8}")
_MOVED = frozenset({301, 302, 303, 307, 308})


async def scrape_target(port: int, path: str, labels: str) -> TargetMetrics:
    """The metrics at ``port`` of this host; ``labels`` are those of its series. A failure is a result as well."""
    loop = asyncio.get_running_loop()
    begun, parser = loop.time(), ExpositionParser()
    try:
        async with asyncio.timeout(TIMEOUT):
            size = await _read_metrics(f"http://{HOST}:{port}{path.partition('#')[0]}", parser)
        families = parser.finish()
    except TimeoutError:
        error = f"not complete in {TIMEOUT:g} s"
    except (ScrapeError, ProbeError) as refused:
        error = str(refused)
    except OSError as failed:
        error = os.strerror(failed.errno).lower() if failed.errno else "no connection"
    else:
        return TargetMetrics(labels, families, "", loop.time() - begun, size, parser.samples)
    return TargetMetrics(labels, error=error, seconds=loop.time() - begun)


async def _read_metrics(url: str, parser: ExpositionParser) -> int:
    """Pass the response at ``url`` to ``parser``, after redirects; the number of bytes."""
    for _ in range(REDIRECTS + 1):
        reader, writer = await asyncio.open_connection(HOST, urlsplit(url).port)
        with close_writer_at_exit(writer):
            writer.write(build_request(url, _HEADERS))
            status, fields, _ = await read_head(reader)
            if status not in _MOVED:
                _check_response(status, fields)
                return await _feed_parser(_read_body(reader, fields), parser)
        url = _resolve_redirect(url, fields.get("location", ""))
    raise ScrapeError(f"more than {REDIRECTS} redirects")


def _resolve_redirect(url: str, location: str) -> str:
    """Where ``location`` leads to from ``url``: only to the same port of this host. Raises ScrapeError."""
    try:
        target = urljoin(url, location.partition("#")[0])
        inside = bool(location) and urlsplit(target)[:2] == urlsplit(url)[:2]
    except ValueError:
        inside = False
    if not inside:
        raise ScrapeError("a redirect to another address")
    return target


def _check_response(status: int, fields: Mapping[str, str]) -> None:
    if status != 200:
        raise ScrapeError(f"HTTP {status}")
    if fields.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise ScrapeError("a compressed answer, which was not requested")
    if fields.get("content-type", "").lower().startswith(_OTHER_FORMATS):
        raise ScrapeError("an answer in another format than text/plain; version=0.0.4, which was requested")


async def _feed_parser(parts: AsyncIterator[bytes], parser: ExpositionParser) -> int:
    size = 0
    async for part in parts:
        size += len(part)
        if size > MAX_BYTES:
            raise ScrapeError(f"more than {MAX_BYTES >> 20} MiB")
        parser.feed(part)
        await asyncio.sleep(0)  # what has arrived already is read without any wait
    return size


async def _read_body(reader: asyncio.StreamReader, fields: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The body in parts: chunked, of its declared length, or until the server closes."""
    length = fields.get("content-length", "")
    if "transfer-encoding" in fields:
        if fields["transfer-encoding"].lower() != "chunked":
            raise ScrapeError("a transfer encoding other than chunked")
        async for part in _read_chunks(reader):
            yield part
    elif length:
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise ScrapeError("an invalid length")
        if int(length) > MAX_BYTES:
            raise ScrapeError(f"more than {MAX_BYTES >> 20} MiB")
        async for part in _read_bytes(reader, int(length)):
            yield part
    else:
        while part := await reader.read(_PART):
            yield part


async def _read_chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        size = (await _read_chunk_line(reader)).partition(";")[0].strip(" \t")
        if not _HEX.fullmatch(size):
            raise ScrapeError("an invalid chunk")
        if not (left := int(size, 16)):
            return
        async for part in _read_bytes(reader, left):
            yield part
        if await _read_chunk_line(reader):
            raise ScrapeError("an invalid chunk")


async def _read_chunk_line(reader: asyncio.StreamReader) -> str:
    try:
        return (await read_line(reader)).decode("latin-1").rstrip("\r\n")
    except ProbeError:
        raise ScrapeError("an incomplete or invalid chunk") from None


async def _read_bytes(reader: asyncio.StreamReader, left: int) -> AsyncIterator[bytes]:
    while left > 0:
        part = await reader.read(min(left, _PART))
        if not part:
            raise ScrapeError("the answer ended before its declared length")
        left -= len(part)
        yield part
