"""What open pages ask for again: made once for all that see the same, and never with what is another's."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from reconciler.api.page import home
from reconciler.api.page.state import RecordedFeed
from reconciler.records.store import FILE, Records
from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.support.api import ApiSandbox, ApiStream, api_sandbox

ACCESS = """
---
kind: serviceaccount
name: anna
---
kind: serviceaccount
name: berta
---
kind: serviceaccount
name: web
---
kind: serviceaccount
name: org
---
kind: policy
name: org-views-the-org
targetKind: org
target: all
bindings: [{permissions: [view], principalLinks: [//serviceaccount/org]}]
---
kind: group
name: viewers
memberLinks: [//serviceaccount/anna, //serviceaccount/berta]
---
kind: policy
name: web-edits-web
targetKind: workload
targetLinks: [//gvc/shop/workload/web]
bindings: [{permissions: [edit], principalLinks: [//serviceaccount/web]}]
"""
WEB = "/ui/resource/workload/shop/web"
AGAIN = {"HX-Request": "true"}
VIEWS = ("/", "/ui/resources", WEB, "/ui/resource/source/main", "/ui/runs", "/ui/runs/1")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with two accounts that see the same, and one that sees less."""
    files = FILES | {"access.yaml": FILES["access.yaml"] + ACCESS}
    with api_sandbox(tmp_path_factory.mktemp("sharing"), files) as sandbox:
        yield sandbox


@pytest.fixture
def overviews(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The first screens that are made."""
    calls: list[object] = []
    make = home._read_overview

    def count(call: Any) -> Any:
        calls.append(call)
        return make(call)

    monkeypatch.setattr(home, "_read_overview", count)
    return calls


def test_pages_of_callers_with_the_same_permissions_share_what_they_ask_for_again(
    page: ApiSandbox, overviews: list[object]
) -> None:
    browsers = [Browser(page).log_in_as(name) for name in ("anna", "berta", "web")]
    overviews.clear()
    page.clock.block(60)
    contents = [browser.get("/", headers=AGAIN) for browser in browsers]
    assert len(overviews) == 2
    assert contents[0] == contents[1] != contents[2]
    page.clock.block(60)
    browsers[0].get("/", headers=AGAIN)
    assert len(overviews) == 3


def test_what_is_shared_is_made_again_after_a_write(page: ApiSandbox, overviews: list[object]) -> None:
    browser = Browser(page).log_in_as("anna")
    page.clock.block(60)
    browser.get("/", headers=AGAIN)
    overviews.clear()
    records = Records.open(page.state / FILE)
    records.suspensions.put("workload/shop/web", "a look", "test", None)
    records.close()
    browser.get("/", headers=AGAIN)
    assert len(overviews) == 1


@pytest.mark.parametrize("path", VIEWS)
def test_no_shared_view_names_who_asked_first(page: ApiSandbox, path: str) -> None:
    first, second = Browser(page).log_in_as("anna"), Browser(page).log_in_as("berta")
    page.clock.block(60)
    contents = first.get(path, headers=AGAIN), second.get(path, headers=AGAIN)
    assert contents[0] == contents[1]
    assert "<main" in contents[0]
    assert "Log out" not in contents[0]
    assert "Log out" in first.get(path)


def test_a_run_shows_its_phases_and_the_steps_that_a_caller_may_see(page: ApiSandbox) -> None:
    text = Browser(page).log_in_as("anna").get("/ui/runs/1")
    assert all(f">{phase}</th>" in text for phase in ("load", "plan"))
    assert ">create workload/shop/web@" in text
    org_alone = Browser(page).log_in_as("org").get("/ui/runs/1")
    assert ">plan</th>" in org_alone
    assert "workload/shop/web" not in org_alone
    assert "more.</p>" in org_alone


def test_forms_of_a_shared_view_have_the_token_of_the_session_that_asks(page: ApiSandbox) -> None:
    first, second = Browser(page).log_in(), Browser(page).log_in()
    page.clock.block(60)
    contents = first.get(WEB, headers=AGAIN), second.get(WEB, headers=AGAIN)
    tokens = [content.partition('name="form_token" value="')[2][:48] for content in contents]
    assert len(set(tokens)) == 2
    action = "/ui/do/POST/org/acme/gvc/shop/workload/web/-suspend"
    for token, status in ((tokens[0], 403), (tokens[1], 303)):
        content = f"form_token={token}&next=/&reason=a+look"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        assert second.request("POST", action, content=content, headers=headers).status_code == status


def test_a_refusal_is_not_shared_with_who_may_see_the_view(page: ApiSandbox) -> None:
    may_not, may = Browser(page).log_in_as("web"), Browser(page).log_in_as("anna")
    page.clock.block(60)
    assert may_not.request("GET", "/ui/runs", headers=AGAIN).status_code == 403
    assert may.request("GET", "/ui/runs", headers=AGAIN).status_code == 200


async def test_writes_that_follow_each_other_wake_pages_once() -> None:
    versions = iter([0, 1, 2, 3, *[4] * 1000])
    feed = RecordedFeed(lambda: next(versions))
    assert await feed.wait(0) == 4


async def test_a_page_waits_the_longer_the_more_pages_are_open() -> None:
    feed = RecordedFeed(lambda: 0)
    assert (feed.count_seconds(1), feed.count_seconds(200)) == (1.0, 2.0)


async def read_view(stream: ApiStream) -> str:
    """The next view that an open page gets."""
    name, lines = "", []
    while name != "view":
        name, lines = "", []
        while line := await stream.line():
            field, _, text = line.partition(": ")
            name = text if field == "event" else name
            lines += [text] if field == "data" else []
    return "\n".join(lines)


def suspend(page: ApiSandbox, reason: str) -> None:
    """Suspend the source for ``reason``, as another process does."""
    records = Records.open(page.state / FILE)
    records.suspensions.put("source/main", reason, "test", None)
    records.close()


@pytest.mark.parametrize("path", [*VIEWS, "/ui/resources?text=web"])
def test_an_open_page_gets_what_it_would_ask_for(page: ApiSandbox, path: str) -> None:
    browser = Browser(page).log_in_as("anna")
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())

    async def story() -> str:
        stream = page.watching(f"/ui/events?view={quote(path, safe='')}", None, cookie=cookie)
        async with stream as following:
            suspend(page, f"a look at {path}")
            return await read_view(following)

    shown = asyncio.run(story())
    page.clock.block(60)
    assert without_ages(shown) == without_ages(browser.get(path, headers=AGAIN))


def without_ages(text: str) -> list[str]:
    """The lines of ``text``, without how long ago something was."""
    return re.sub(r"(<time [^>]*>)[^<]*", r"\1", text).splitlines()


def test_a_page_is_not_sent_what_it_shows_already(page: ApiSandbox) -> None:
    async def story() -> str:
        path = "/ui/events?view=%2Fui%2Fresources%3Ftext%3Dno-such-thing"
        async with page.watching(path) as nothing, page.watching("/ui/events?view=%2F") as home_page:
            suspend(page, "first")
            await read_view(nothing)
            assert "first" in await read_view(home_page)
            suspend(page, "second")
            while "second" not in await read_view(home_page):
                pass
            page.api.page.recorded._wake()
            return "view" if nothing._received.qsize() else "nothing"

    assert asyncio.run(story()) == "nothing"


@pytest.mark.parametrize(
    "view", ["", "/ui/logs", "/ui/events", "/org/acme", "//other", "/ui/resource/workload/shop/nix"]
)
def test_for_what_is_not_shared_the_page_asks_itself(page: ApiSandbox, view: str) -> None:
    async def story() -> None:
        async with page.watching(f"/ui/events?view={quote(view, safe='')}") as stream:
            suspend(page, f"for {view}")
            while await stream.line() != "event: recorded":
                pass

    asyncio.run(story())


def test_a_page_gets_nothing_of_what_its_caller_may_not_see(page: ApiSandbox) -> None:
    browser = Browser(page).log_in_as("web")
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())

    async def story() -> None:
        async with page.watching("/ui/events?view=%2Fui%2Fruns", None, cookie=cookie) as stream:
            suspend(page, "hidden")
            while (line := await stream.line()) != "event: recorded":
                assert "event: view" not in line

    asyncio.run(story())


def test_of_many_pages_that_show_the_same_one_view_is_made(page: ApiSandbox, overviews: list[object]) -> None:
    async def story() -> None:
        async with contextlib.AsyncExitStack() as open_pages:
            streams = [await open_pages.enter_async_context(page.watching("/ui/events?view=%2F")) for _ in range(20)]
            overviews.clear()
            suspend(page, "shown to all of them")
            for text in await asyncio.gather(*map(read_view, streams)):
                assert "shown to all of them" in text

    asyncio.run(story())
    assert len(overviews) <= 2
