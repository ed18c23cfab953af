"""One scrape over real sockets: what it asks for, and servers that are slow, endless or lie about their length."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reconciler.engines.host.metrics import scrape as module
from reconciler.engines.host.metrics.scrape import MAX_BYTES, scrape_target
from reconciler.engines.target_metrics import TargetMetrics
from tests.engines.host.metrics.kit import Answer, RecordedRequests, head, ok, serving
from tests.support.cases import cases

BODY = b"a 1\nb 2\n"


def scraped(*answers: bytes | Answer, path: str = "/metrics") -> tuple[TargetMetrics, RecordedRequests]:
    """The result of a scrape of a server with ``answers``, and what it was asked for."""

    async def story() -> tuple[TargetMetrics, RecordedRequests]:
        async with serving(*answers) as requests:
            return await scrape_target(requests.port, path, 'replica="web-1"'), requests

    return asyncio.run(story())


@pytest.mark.parametrize("case", cases("metrics/answers.yaml"))
def test_an_answer_is_read_or_refused(case: dict[str, Any]) -> None:
    answer = case["answer"].replace("\n", "\r\n") + case.get("body", "")
    found, _ = scraped(answer.encode())
    assert (found.error, sorted(found.families)) == (case.get("error", ""), case.get("metrics", []))


def test_the_request_asks_for_the_text_format() -> None:
    metrics, (request,) = scraped(ok(BODY), path="/m?x=a b#c")
    assert request.startswith("GET /m?x=a%20b HTTP/1.1\r\n")
    assert "Accept: text/plain;version=0.0.4" in request
    assert "Accept-Encoding: identity" in request
    assert (metrics.samples, metrics.size, metrics.labels) == (2, len(BODY), 'replica="web-1"')


def test_a_redirect_to_the_same_port_is_followed() -> None:
    found, requests = scraped(head("Location: /metrics/", status="307 Moved"), ok(BODY))
    assert [request.split()[1] for request in requests] == ["/metrics", "/metrics/"]
    assert sorted(found.families) == ["a", "b"]


@pytest.mark.parametrize("location", ["http://127.0.0.1:1/", "https://127.0.0.1/", "//example.com/", "http://[", ""])
def test_a_redirect_to_another_address_is_refused(location: str) -> None:
    found, requests = scraped(head(f"Location: {location}", status="302 Found"), ok(BODY))
    assert (found.error, len(requests)) == ("a redirect to another address", 1)


def test_redirects_without_an_end_are_cut() -> None:
    found, requests = scraped(head("Location: /x", status="302 Found"))
    assert (found.error, len(requests)) == ("more than 5 redirects", 6)


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(head())
    while True:
        writer.write(b"# a comment that never ends\n" * 2000)
        await writer.drain()


async def slow(writer: asyncio.StreamWriter) -> None:
    writer.write(head())
    while not writer.is_closing():
        writer.write(b"a 1\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def test_an_endless_answer_is_cut() -> None:
    found, _ = scraped(endless)
    assert found.error in ("more than 10 MiB", "not complete in 5 s")
    assert found.families == {}


@pytest.mark.parametrize("answer", [slow, silent])
def test_a_slow_answer_is_cut(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    found, _ = scraped(answer)
    assert found.error == "not complete in 0.2 s"


def test_a_declared_length_above_the_limit_is_not_even_read() -> None:
    found, _ = scraped(head(f"Content-Length: {MAX_BYTES + 1}") + BODY)
    assert found.error == "more than 10 MiB"


async def test_nothing_listens() -> None:
    async def story() -> TargetMetrics:
        async with serving(b"") as requests:
            port = requests.port
        return await scrape_target(port, "/metrics", "")

    assert (await story()).error == "connection refused"


async def test_a_large_answer_does_not_block_the_loop() -> None:
    """A task beside it runs at least once for each part of the answer."""
    body = b"".join(b'requests{path="/some/path/%d"} %d\n' % (number, number) for number in range(20_000))

    async def story() -> tuple[TargetMetrics, int]:
        turns = 0

        async def beside() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(beside())
        async with serving(ok(body)) as requests:
            found = await scrape_target(requests.port, "/metrics", "")
        task.cancel()
        return found, turns

    found, turns = await story()
    assert (found.error, found.samples) == ("", 20_000)
    assert turns > len(body) / 16_384
