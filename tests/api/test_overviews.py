"""Overviews over HTTP: what commands of the reconciler show, as JSON and as text, for who may view everything."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from reconciler.access.rules import VIEWERS, Caller
from reconciler.api.rate_limits import MOST_LONG_OF_CALLER
from reconciler.api.routes import overviews, streams
from reconciler.api.service import OVERVIEWS as OVERVIEW_SLOTS
from reconciler.cli.overview_commands import Display, make_command
from reconciler.model.key import Key, Kind
from reconciler.overviews import table
from reconciler.overviews.overview import WIDE
from reconciler.printable import printable_lines
from reconciler.reasons import Reason
from reconciler.records.store import FILE, Records
from tests.api.conftest import FILES
from tests.support.api import ORG, READER_PEER, ROOT_PEER, ApiSandbox, ApiStream, api_sandbox

OVERVIEWS = (
    "-summary",
    "-status",
    "-describe?key=gvc/shop",
    "-events",
    "-runs",
    "-top",
    "-usage?key=workload/shop/api",
    "-snapshot",
    "-notifications",
    "source/main/-plan",
    "source/main/-diff?from=HEAD&to=HEAD",
    "-versions?key=workload/shop/web",
    "-blame?key=workload/shop/web",
)
OPERATION = "/org/{org}"
TEXTS = ("text/plain", "text/markdown")
PARTIAL = """kind: serviceaccount
name: partial
---
kind: policy
name: views-workloads
targetKind: workload
target: all
bindings: [{permissions: [view], principalLinks: [//serviceaccount/partial]}]
"""


@pytest.fixture(name="sandbox", scope="module")
def sandbox_with_overviews(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox whose plan has a delete that waits."""
    with api_sandbox(tmp_path_factory.mktemp("overviews"), {**FILES, "partial.yaml": PARTIAL}) as made:
        yield made


def text(sandbox: ApiSandbox, path: str, media: str = "text/plain") -> str:
    """The answer as ``media``."""
    found = sandbox.client().request("GET", f"{ORG}/{path}", headers={"Accept": media})
    assert (found.status_code, found.headers["content-type"].partition(";")[0]) == (200, media), found.text
    return found.text


def test_no_overview_is_left_out_here() -> None:
    assert {row.path for row in table.OVERVIEWS.values()} <= {path.partition("?")[0] for path in OVERVIEWS}


@pytest.mark.parametrize("name", table.OVERVIEWS)
def test_an_operation_has_the_parameters_of_its_command(name: str) -> None:
    row = table.OVERVIEWS[name]
    [operation] = [one for one in overviews.OPERATIONS if one.path == f"{OPERATION}/{row.path}"]
    of_display = {"settings_file", *Display._fields} - {"follow"}
    declared = {str(param.name) for param in make_command(row).params if param.expose_value}
    assert {*operation.parameters} == (declared - of_display) | {WIDE}


@pytest.mark.parametrize("path", OVERVIEWS)
def test_overviews_need_the_permission_to_view_everything(sandbox: ApiSandbox, path: str) -> None:
    key = sandbox.api.store.add_key("partial", "", "test", None)[1]
    refused = sandbox.client(None).request("GET", f"{ORG}/{path}", headers={"Authorization": key})
    assert (refused.status_code, "no permission `view` on every" in refused.text) == (403, True)
    assert sandbox.client(READER_PEER).request("GET", f"{ORG}/{path}").status_code == 200


AGE = re.compile(r"\b\d+s$", re.MULTILINE)
"""An age at the end of a line: the two are a moment apart."""


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("-status", ["get"]),
        ("-status?kind=workload", ["get", "workload"]),
        ("-describe?key=gvc/shop", ["describe", "gvc/shop"]),
        ("-events", ["events"]),
        ("-events?key=gvc/shop&last=1", ["events", "gvc/shop", "--last", "1"]),
        ("-runs", ["history"]),
        ("source/main/-plan", ["plan"]),
    ],
)
def test_text_is_what_the_command_prints(sandbox: ApiSandbox, path: str, words: list[str]) -> None:
    shown, printed = (AGE.sub("*", one) for one in (text(sandbox, path), sandbox.run(*words).stdout))
    assert shown == printed != ""


@pytest.mark.parametrize(
    ("path", "words"),
    [("-status", ["get", "-o", "json"]), ("source/main/-plan", ["plan", "--format", "json"])],
)
def test_json_is_that_of_the_command(sandbox: ApiSandbox, path: str, words: list[str]) -> None:
    assert sandbox.client().get(f"{ORG}/{path}") == json.loads(sandbox.run(*words).stdout)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("kind=workload&sort=-.name", ["workload", "--sort-by", "-.name"]),
        ("limit=2", ["--limit", "2"]),
        ("selector=!team&since=2h", ["-l", "!team", "--since", "2h"]),
        ("kind=sources", ["sources"]),
    ],
)
def test_a_list_is_chosen_as_by_the_command(sandbox: ApiSandbox, query: str, words: list[str]) -> None:
    shown = sandbox.client().get(f"{ORG}/-status?{query}")
    assert shown == json.loads(sandbox.run("get", *words, "-o", "json").stdout)
    assert shown["items"] != []


def test_text_has_all_columns_where_it_is_wide(sandbox: ApiSandbox) -> None:
    assert "LOCATIONS" in text(sandbox, "-status?wide=true")
    assert "LOCATIONS" not in text(sandbox, "-status")


@pytest.mark.parametrize(
    "query", ["sort=.nmae", "sort=.a[", "selector=a=b=c", "since=yesterday", "limit=0", "kind=nope"]
)
def test_a_wrong_choice_is_a_wrong_request(sandbox: ApiSandbox, query: str) -> None:
    refused = sandbox.client().request("GET", f"{ORG}/-status?{query}")
    assert refused.status_code == (404 if query == "kind=nope" else 400)


def test_other_forms_are_those_of_the_command(sandbox: ApiSandbox) -> None:
    assert text(sandbox, "-status?kind=gvc", "application/yaml") == sandbox.run("get", "gvc", "-o", "yaml").stdout
    assert text(sandbox, "source/main/-plan", "text/markdown") == sandbox.run("plan", "--format", "markdown").stdout


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("-status?kind=workloda", 404, "there is no kind 'workloda'; did you mean workload?"),
        ("-status?gvc=none", 404, "there is no gvc 'none'"),
        ("-describe", 400, "key is the resource or source to describe"),
        ("-describe?key=nonsense", 404, "nonsense"),
        ("-describe?key=a/b/c/d", 400, "a/b/c/d"),
        ("-describe?key=gvc/none", 404, "there is no gvc/none"),
        ("-events?last=many", 400, "last is a number"),
        ("source/main/-plan?revision=none", 404, "revision 'none' is not in the repository"),
        ("source/main/-plan?revision=:/x", 400, "no search in messages"),
        ("source/main/-plan?revision=main^{/x}", 400, "no search in messages"),
        ("-runs?source=none", 404, "there is no source 'none'"),
        ("-top?gvc=none", 404, "there is no gvc 'none'"),
        ("-snapshot?key=source/main", 400, "a source has no snapshots"),
        ("-snapshot?key=gvc/shop", 409, "is no volume set"),
        ("source/none/-plan", 404, "there is no source 'none'"),
        ("-plan/abc", 400, "the first 4 characters"),
        ("-plan/0123456789", 404, "no current plan has the digest 0123456789"),
    ],
)
def test_what_does_not_exist_is_an_error(sandbox: ApiSandbox, path: str, status: int, message: str) -> None:
    found = sandbox.client().request("GET", f"{ORG}/{path}")
    assert (found.status_code, message in found.json()["message"]) == (status, True), found.text


def test_no_text_controls_the_terminal_that_shows_it(sandbox: ApiSandbox) -> None:
    hostile = "Rename\x1b[2J\u202e\x9b31m"
    manifest = "kind: identity\nname: hostile\ngvc: shop\ndescription: text\n"
    sandbox.repo.commit({"shop/hostile.yaml": manifest}, hostile)
    plans = [text(sandbox, f"source/main/-plan{query}", media) for query in ("", "?blame=true") for media in TEXTS]
    assert sandbox.run("apply").returncode == 0
    sandbox.repo.commit({"shop/hostile.yaml": manifest.replace("text", '"\\e[2J\\u009b"')}, hostile)
    assert sandbox.run("apply").returncode == 1
    plans += [text(sandbox, "source/main/-plan", media) for media in TEXTS]
    with closing(Records.open(sandbox.state / FILE)) as records:
        records.events.append(
            Key(Kind.WORKLOAD, "shop", "api"), Reason.FAILED, f"stopped{hostile.removeprefix('Rename')}"
        )
    keys = ("identity/shop/hostile", "source/main", "workload/shop/api")
    shown = [text(sandbox, path) for path in (*OVERVIEWS[:5], *(f"-describe?key={key}" for key in keys))]
    sandbox.repo.commit({"shop/hostile.yaml": manifest})
    assert sandbox.run("apply").returncode == 0
    assert any("Rename?" in each for each in shown), "the subject of a commit is cleaned when it is read"
    assert any("stopped\\u001b[2J" in each for each in shown), "what an engine reports is not"
    assert [each for each in (*plans, *shown) if each != printable_lines(each)] == []


def test_the_status_comes_in_parts(sandbox: ApiSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sandbox.client().request("GET", f"{ORG}/-status").text
    monkeypatch.setattr(overviews, "CHUNK", 100)

    async def parts() -> list[str]:
        stream = ApiStream(sandbox.api, ROOT_PEER, f"{ORG}/-status", {})
        parts_read = []
        while part := await stream.text():
            parts_read.append(part)
        await stream.leave()
        return parts_read

    found = asyncio.run(parts())
    assert (len(found) > 5, "".join(found)) == (True, whole)


def test_a_caller_reads_few_overviews_at_once(sandbox: ApiSandbox) -> None:
    with ExitStack() as reading:
        for _ in range(MOST_LONG_OF_CALLER):
            reading.enter_context(sandbox.api.overviews.admit("user/root"))
        for path in OVERVIEWS:
            refused = sandbox.client().request("GET", f"{ORG}/{path}")
            assert (refused.status_code, "too many requests read overviews" in refused.text) == (429, True), path
        assert sandbox.client(READER_PEER).request("GET", f"{ORG}/-runs").status_code == 200
    assert sandbox.client().request("GET", f"{ORG}/-runs").status_code == 200


async def test_overviews_delay_no_list(sandbox: ApiSandbox) -> None:
    async def status(path: str) -> int:
        async with sandbox.watching(f"{ORG}/{path}") as stream:
            return stream.status

    for _ in range(OVERVIEW_SLOTS):
        await sandbox.api.overview_slots.acquire()
    waiting = asyncio.create_task(status("-runs"))
    assert await status("workload") == 200
    assert not waiting.done()
    for _ in range(OVERVIEW_SLOTS):
        sandbox.api.overview_slots.release()
    assert await waiting == 200


def test_a_plan_is_found_by_its_digest(sandbox: ApiSandbox) -> None:
    base = sandbox.repo.git("rev-parse", "main")
    sandbox.repo.commit({"shop/more.yaml": "kind: identity\nname: more\ngvc: shop\n"})
    try:
        response = sandbox.client().request("GET", f"{ORG}/source/main/-plan")
        plan: dict[str, Any] = response.json()
        assert [step["key"] for step in plan["steps"]] == ["identity/shop/more"]
        assert (response.headers["plan-changes"], response.headers["plan-errors"]) == ("1", "0")
        assert sandbox.client().get(f"{ORG}/-plan/{plan['digest'][:8]}")["steps"] == plan["steps"]
    finally:
        sandbox.repo.git("update-ref", "refs/heads/main", base)


async def test_events_follow_until_the_credential_ends(sandbox: ApiSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.05)
    token = sandbox.api.store.add_session(Caller("user/eve", frozenset({str(VIEWERS)}), "test"), 60.0)

    async def story() -> list[str]:
        path = f"{ORG}/-events?last=1&follow=true"
        async with sandbox.watching(path, None, Authorization=f"Bearer {token}") as stream:
            seen = [json.loads(await stream.line())["reason"]]
            assert await asyncio.to_thread(lambda: sandbox.run("suspend", "main").returncode) == 0
            seen.append(json.loads(await stream.line())["reason"])
            sandbox.clock.jump(61)
            assert await stream.text() == ""
        return seen

    try:
        assert (await story())[1] == "Suspended"
    finally:
        sandbox.run("resume", "main")


def test_events_follow_until_the_permission_ends(sandbox: ApiSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.05)
    binding = "bindings: [{permissions: [view], principalLinks: [//serviceaccount/partial]}]"
    policies = "---\n".join(
        f"kind: policy\nname: all-{kind}\ntargetKind: {kind}\ntarget: all\n{binding}\n" for kind in Kind
    )
    sandbox.repo.commit({"all.yaml": policies})
    assert sandbox.run("apply").returncode == 0
    key = sandbox.api.store.add_key("partial", "", "test", None)[1]

    async def story() -> None:
        async with sandbox.watching(f"{ORG}/-events?last=1&follow=true", None, Authorization=key) as stream:
            assert json.loads(await stream.line())["reason"]
            sandbox.repo.commit({"all.yaml": policies.replace("target: all", "targetLinks: []", 1)})
            assert await asyncio.to_thread(lambda: sandbox.run("apply").returncode) == 0
            while await stream.text():
                pass

    asyncio.run(story())
    refused = sandbox.client(None).request("GET", f"{ORG}/-events", headers={"Authorization": key})
    assert refused.status_code == 403


async def test_who_follows_without_earlier_events_sees_only_new_ones(sandbox: ApiSandbox) -> None:
    async def story() -> list[str]:
        stream = ApiStream(sandbox.api, ROOT_PEER, f"{ORG}/-events?last=0&follow=true", {})
        while not stream.status:
            await asyncio.sleep(0.001)
        assert await asyncio.to_thread(lambda: sandbox.run("suspend", "main").returncode) == 0
        found = json.loads(await stream.line())["reason"]
        await stream.leave()
        return [found]

    try:
        assert await story() == ["Suspended"]
    finally:
        sandbox.run("resume", "main")
