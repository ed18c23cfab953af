"""Logs on the page: lines that follow by themselves, what a page gets after a loss, and queries that are completed."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.api.page.log_stream import MOST_OF_BATCH, LineBacklog, LogCursor
from reconciler.api.page.state import MOST_LOGS_OF_CALLER
from reconciler.api.routes import observing, streams
from reconciler.logql.log_entries import MOST_TRACE
from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.api.test_observing import READER, log_processes
from tests.engines.host.logs.kit import LogHarness, place
from tests.support.api import ApiSandbox, ApiStream, api_sandbox

HOSTILE = "<script>alert(1)</script> \u202ea\x1b[31mb\x00c"
WEB = "/ui/logs?query=workload/shop/web"


class Received(NamedTuple):
    """An event of a page that follows a log: its place, its entries by id, and whether lines are left out before."""

    place: str
    entries: dict[str, str]
    is_cut: bool


@pytest.fixture(name="logged")
def sandbox_with_logs(tmp_path: Path) -> Iterator[ApiSandbox]:
    """Two workloads of different GVCs have written a line each."""
    with api_sandbox(tmp_path, {**FILES, "reader.yaml": READER}) as sandbox:
        harness = LogHarness(tmp_path)
        harness.taken("INFO listening\n", place("web"))
        harness.taken("hello\n", place("web", gvc="blog"))
        yield sandbox


def write(path: Path, text: str, seconds: int = 60, **at: str) -> None:
    """Let a replica write ``text``, ``seconds`` after the first lines."""
    harness = LogHarness(path)
    harness.wait(seconds)
    harness.taken(text, place(at.pop("workload", "web"), **at))


def follow(page: str) -> str:
    """The address of the stream that the script of ``page`` opens."""
    found = {name: html.unescape(text) for name, text in re.findall(r'data-(follow|after)="([^"]*)"', page)}
    return f"{found['follow']}&after={found['after']}"


async def receive(stream: ApiStream) -> Received:
    """The next event with lines."""
    fields: dict[str, str] = {}
    while fields.get("event") != "lines":
        fields = {}
        while line := await stream.line():
            name, _, text = line.partition(": ")
            fields[name] = text
    content = json.loads(fields["data"])
    return Received(fields["id"], {one["id"]: one["html"] for one in content["entries"]}, content["isCut"])


def texts(received: Received) -> list[str]:
    """What the entries show, without tags and times."""
    shown = (re.sub(r"<time.*?</time>|<[^>]+>", "", entry) for entry in received.entries.values())
    return [html.unescape(" ".join(text.split())) for text in shown]


async def test_new_lines_come_as_the_page_has_them(logged: ApiSandbox, tmp_path: Path) -> None:
    page = await asyncio.to_thread(lambda: Browser(logged).log_in().get(WEB))
    assert "listening" in page
    async with logged.watching(follow(page)) as stream:
        await asyncio.to_thread(write, tmp_path, f"ERROR {HOSTILE}\n")
        received = await receive(stream)
        assert texts(received) == [r"web web-1 ERROR <script>alert(1)</script> \u202ea\u001b[31mb\u0000c"]
        [entry] = received.entries.values()
        assert 'class="error"' in entry
        assert "<script>" not in entry
        assert not re.search("[\u202e\x00\x1b]", entry)
    assert log_processes() == []


async def test_a_trace_that_comes_in_two_parts_is_one_entry(logged: ApiSandbox, tmp_path: Path) -> None:
    page = await asyncio.to_thread(lambda: Browser(logged).log_in().get(WEB))
    async with logged.watching(follow(page)) as stream:
        await asyncio.to_thread(write, tmp_path, 'Traceback (most recent call last):\n  File "a.py"\n')
        first = await receive(stream)
        await asyncio.to_thread(write, tmp_path, "    read()\nKeyError: 'a'\nlistening again\n", 120)
        second = await receive(stream)
        while len(second.entries) < 2:
            more = await receive(stream)
            second = more._replace(entries=second.entries | more.entries)
        [name] = first.entries
        assert next(iter(second.entries)) == name
        assert "3 more" in second.entries[name]
        assert "KeyError" in second.entries[name]
        assert "listening again" in list(second.entries.values())[1]


async def test_a_page_that_comes_back_gets_each_line_once(logged: ApiSandbox, tmp_path: Path) -> None:
    page = await asyncio.to_thread(lambda: Browser(logged).log_in().get(WEB))
    address = follow(page)
    async with logged.watching(address) as stream:
        await asyncio.to_thread(write, tmp_path, "first\nsecond\n")
        received = await receive(stream)
        while "second" not in str(received.entries):
            received = await receive(stream)
    await asyncio.to_thread(write, tmp_path, "third\n", 60)  # of the same moment
    await asyncio.to_thread(write, tmp_path, "fourth\n", 120)
    async with logged.watching(address, last_event_id=received.place) as stream:
        again = await receive(stream)
        lines = texts(again)
        while "fourth" not in lines[-1]:
            lines += texts(await receive(stream))
        assert [line.split()[-1] for line in lines] == ["third", "fourth"]
        assert not again.is_cut


async def test_of_lines_of_one_moment_none_comes_twice(logged: ApiSandbox, tmp_path: Path) -> None:
    await asyncio.to_thread(write, tmp_path, "".join(f"line {number}\n" for number in range(9)))
    page = await asyncio.to_thread(lambda: Browser(logged).log_in().get(f"{WEB}&lines=3"))
    assert re.findall(r"line \d", page) == ["line 6", "line 7", "line 8"]
    async with logged.watching(follow(page)) as stream:
        await asyncio.to_thread(write, tmp_path, "later\n", 120)
        assert "later" in "".join((await receive(stream)).entries.values())
    many = "".join(f"line {number}\n" for number in range(MOST_OF_BATCH + 100))
    async with logged.watching(follow(page)) as stream:
        await receive(stream)
        await asyncio.to_thread(write, tmp_path, many, 180)
        received = await receive(stream)
        while "599" not in str(received.entries):
            received = await receive(stream)
    assert LogCursor.parse(received.place).lines == MOST_OF_BATCH + 100
    async with logged.watching(follow(page), last_event_id=received.place) as stream:
        await asyncio.to_thread(write, tmp_path, "last\n", 240)
        assert [text.split()[-1] for text in texts(await receive(stream))] == ["last"]


async def test_of_many_lines_at_once_a_page_gets_the_newest_and_a_note(logged: ApiSandbox, tmp_path: Path) -> None:
    page = await asyncio.to_thread(lambda: Browser(logged).log_in().get(WEB))
    many = "".join(f"line {number}\n" for number in range(MOST_OF_BATCH + 100))
    await asyncio.to_thread(write, tmp_path, many)
    async with logged.watching(follow(page)) as stream:
        received = [await receive(stream)]
        while "599" not in texts(received[-1])[-1]:
            received.append(await receive(stream))
        assert received[0].is_cut
        assert sum(len(each.entries) for each in received) <= MOST_OF_BATCH + 2


async def test_lines_that_are_indented_for_ever_become_several_entries(logged: ApiSandbox, tmp_path: Path) -> None:
    page = await asyncio.to_thread(lambda: Browser(logged).log_in().get(WEB))
    async with logged.watching(follow(page)) as stream:
        await asyncio.to_thread(write, tmp_path, "begin\n" + "  more\n" * (MOST_TRACE + 50))
        entries = (await receive(stream)).entries
        while len(entries) < 2:
            entries |= (await receive(stream)).entries
        assert max(entry.count('class="line"') for entry in entries.values()) == MOST_TRACE + 1


async def test_a_level_is_chosen_and_the_place_goes_on(logged: ApiSandbox, tmp_path: Path) -> None:
    page = await asyncio.to_thread(lambda: Browser(logged).log_in().get(f"{WEB}&level=error"))
    assert "listening" not in page
    async with logged.watching(follow(page)) as stream:
        await asyncio.to_thread(write, tmp_path, "INFO fine\n")
        received = await receive(stream)
        assert not received.entries
        assert LogCursor.parse(received.place).ms > LogCursor.parse(follow(page).rpartition("after=")[2]).ms
        await asyncio.to_thread(write, tmp_path, "ERROR bad\n", 120)
        assert "bad" in str((await receive(stream)).entries)


async def test_a_stream_ends_with_the_permission(
    logged: ApiSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.1)
    key = logged.api.store.add_key("team", "", "test", None)[1]
    path = "/ui/logs/follow?query=workload/shop/web&after=0-0"
    async with logged.watching(path, None, Authorization=key) as stream:
        assert "listening" in str((await receive(stream)).entries)
        logged.repo.commit({"shop/web.yaml": FILES["shop/api.yaml"].replace("name: api", "name: web")})
        assert (await asyncio.to_thread(logged.run, "apply")).returncode == 0
        while await stream.text():
            pass
    assert log_processes() == []


async def test_a_refusal_is_in_words_and_shows_nothing_of_others(logged: ApiSandbox) -> None:
    key = logged.api.store.add_key("team", "", "test", None)[1]
    for query, words in (("workload/shop/api", "no permission"), ("{", "refused"), ("workload/blog/web", "permission")):
        path = f"/ui/logs/follow?query={query}&after=0-0"
        async with logged.watching(path, None, Authorization=key) as stream:
            assert await stream.line() == "retry: 5000"
            assert await stream.line() == "event: refused"
            assert words in f"refused {await stream.line()}"


async def test_few_pages_of_a_caller_follow_logs_and_others_still_read_them(logged: ApiSandbox) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logged.api.page.logs, "_most_of_caller", 1)
        path = "/ui/logs/follow?query=gvc/blog&after=0-0"
        async with logged.watching(path), logged.watching(path) as second:
            assert "too many requests" in "".join([await second.line() for _ in range(3)])
            browser = await asyncio.to_thread(Browser(logged).log_in)
            assert "hello" in await asyncio.to_thread(browser.get, "/ui/logs?query=gvc/blog")
    assert MOST_LOGS_OF_CALLER > 1


@pytest.mark.parametrize("after", ["", "1", "x-1", "1-x", "-1-0", "9" * 40 + "-0", "1-" + "9" * 40, "²-1"])
def test_a_place_that_no_page_has_is_refused(logged: ApiSandbox, after: str) -> None:
    answer = logged.client().request("GET", "/ui/logs/follow", params={"query": "gvc/blog", "after": after})
    assert answer.status_code == 400
    assert "is no place in a log" in answer.text


def test_what_has_an_end_does_not_go_on(logged: ApiSandbox) -> None:
    browser = Browser(logged).log_in()
    assert "data-follow" not in browser.get(f"{WEB}&until=2026-01-02T00:00:00Z")
    shown = browser.get(WEB)
    # Without a script, a link loads the newest lines.
    assert re.search(r'<a id="newer" href="/ui/logs\?query=workload/shop/web">', shown)
    assert re.search(r'<button [^>]*id="pause" hidden>', shown)


async def test_a_backlog_keeps_the_newest_lines() -> None:
    def make_blocks(lines: Sequence[str]) -> bytes:
        return b"".join(
            json.dumps({"time": "2026-01-01T00:00:00.001Z", "line": line}).encode() + b"\n" for line in lines
        )

    async def blocks() -> Any:
        content = make_blocks([str(number) for number in range(MOST_OF_BATCH + 3)])
        for at in range(0, len(content), 1000):
            yield content[at : at + 1000]

    for seen, is_cut in ((3, False), (2, True), (0, True)):
        backlog = LineBacklog(LogCursor(1_767_225_600_001, seen))
        await backlog.fill(blocks())
        lines, was_cut = await backlog.take()
        assert (lines[0]["line"], len(lines)) == ("3", MOST_OF_BATCH)
        assert was_cut == is_cut


def complete(sandbox: ApiSandbox, query: str, account: str = "") -> list[str]:
    """What completes ``query``."""
    browser = Browser(sandbox)
    if account:
        browser.log_in_as(account)
    else:
        browser.log_in()
    answer = browser.request("GET", "/ui/logs/complete", params={"query": query})
    assert answer.status_code == 200, answer.text
    return [option["text"] for option in answer.json()["options"]]


def test_a_query_is_completed_by_what_the_caller_may_read(logged: ApiSandbox) -> None:
    assert complete(logged, "we") == ["workload/blog/web", "workload/shop/web"]
    assert complete(logged, "we", "team") == ["workload/shop/web"]
    assert complete(logged, '{gvc="', "team") == ['{gvc="shop"']
    assert complete(logged, '{gvc="') == ['{gvc="blog"', '{gvc="shop"']
    linked = Browser(logged).log_in_as("linked")
    assert linked.request("GET", "/ui/logs/complete", params={"query": "w"}).json() == {"options": []}
    assert logged.client(None).request("GET", "/ui/logs/complete?query=w").status_code in (303, 401)
    assert Browser(logged).log_in().request("GET", f"/ui/logs/complete?query={'x' * 5000}").status_code == 400


def test_streams_are_not_listed_at_each_key(logged: ApiSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []
    known = logged.api.page.log_streams
    before = known._list_streams
    monkeypatch.setattr(known, "_list_streams", lambda: listed.append(1) or before())
    for part in ("w", "we", "web"):
        complete(logged, part)
    assert len(listed) == 1
    asyncio.run(logged.clock.advance(60))
    complete(logged, "w")
    assert len(listed) == 2


@pytest.mark.parametrize("path", [WEB, "/ui/evidence/workload/shop/web"])
def test_lines_that_take_too_long_are_refused_in_words(
    logged: ApiSandbox, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    browser = Browser(logged).log_in()
    with monkeypatch.context() as patch:
        patch.setattr(observing, "_MOST_SECONDS", 0.001)
        answer = browser.request("GET", path)
        assert answer.status_code == (503 if path == WEB else 200)
        assert "the lines were not read within 0.001 s; name a workload" in answer.text
        # Another query can be tried at once.
        assert path != WEB or 'name="query"' in answer.text
    assert "listening" in browser.get(path)
    assert log_processes() == []
