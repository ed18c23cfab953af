"""Logs, replicas and drift over HTTP: what the commands of the reconciler show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reconciler.api.rate_limits import MOST_LONG_OF_CALLER
from reconciler.api.routes import observing, streams
from reconciler.api.service import LISTS
from tests.api.conftest import FILES
from tests.engines.host.logs.kit import LogHarness, place
from tests.support.api import ORG, READER_PEER, ApiSandbox, api_sandbox

LOG = f"{ORG}/-log"
READER = """kind: serviceaccount
name: reader
---
kind: policy
name: reads-logs
targetKind: org
target: all
bindings: [{permissions: [readLogs], principalLinks: [//serviceaccount/reader]}]
---
kind: serviceaccount
name: team
---
kind: policy
name: reads-web
targetKind: workload
targetQuery: {kind: workload, spec: {terms: [{tag: team, value: web}]}}
bindings: [{permissions: [readLogs], principalLinks: [//serviceaccount/team]}]
---
kind: serviceaccount
name: linked
---
kind: policy
name: reads-api
targetKind: workload
targetLinks: [//gvc/shop/workload/api]
bindings: [{permissions: [readLogs], principalLinks: [//serviceaccount/linked]}]
---
kind: serviceaccount
name: every
---
kind: policy
name: reads-every-workload
targetKind: workload
target: all
bindings: [{permissions: [readLogs], principalLinks: [//serviceaccount/every]}]
"""


@pytest.fixture(name="logged")
def sandbox_with_logs(tmp_path: Path) -> Iterator[ApiSandbox]:
    """Two workloads of one GVC and one of another have written, in the minutes after 2026-01-01T00:00:00Z."""
    with api_sandbox(tmp_path, {**FILES, "reader.yaml": READER}) as sandbox:
        location = LogHarness(tmp_path)
        location.taken("listening on 8080\n", place("web"))
        location.wait(60)
        location.taken("GET / 200\nGET /x 404\n", place("web"))
        location.taken("hello\n", place("web", gvc="blog"))
        yield sandbox


def lines(sandbox: ApiSandbox, **query: Any) -> list[str]:
    """The lines that the API answers with."""
    found = sandbox.client().request("GET", LOG, params=query)
    assert found.status_code == 200, found.text
    return [json.loads(each)["line"] for each in found.text.splitlines()]


def test_logs_are_those_that_a_query_selects(logged: ApiSandbox) -> None:
    assert lines(logged, query="workload/shop/web") == ["listening on 8080", "GET / 200", "GET /x 404"]
    assert lines(logged, query='{workload="web"} |= "404"') == ["GET /x 404"]
    assert lines(logged, query="gvc/shop", lines=1) == ["GET /x 404"]
    assert lines(logged, query="gvc/blog", since="2026-01-01T00:00:30Z") == ["hello"]
    assert lines(logged, query="gvc/shop", until="2026-01-01T00:00:30Z") == ["listening on 8080"]
    assert lines(logged, query="gvc/shop", location="there") == []
    [first] = logged.client().request("GET", LOG, params={"query": "gvc/blog"}).text.splitlines()
    expected = {"gvc": "blog", "workload": "web", "location": "here", "replica": "web-1", "container": "main"}
    assert expected.items() <= json.loads(first).items()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "query is the logs to read"),
        ({"query": "a/b/c/d"}, "'a/b/c/d' names no streams"),
        ({"query": '{gvc="shop"'}, "column 12"),
        ({"query": "gvc/shop", "since": "yesterday"}, "since is a time such as"),
        ({"query": "gvc/shop", "lines": "0"}, "lines is a number from 1"),
        ({"query": "gvc/shop", "follow": "true", "until": "1h"}, "use one of them"),
    ],
)
def test_a_wrong_query_is_refused(logged: ApiSandbox, query: dict[str, str], message: str) -> None:
    found = logged.client().request("GET", LOG, params=query)
    assert (found.status_code, message in found.json()["message"]) == (400, True), found.text


@pytest.mark.slow
def test_an_expression_that_takes_for_ever_is_ended(logged: ApiSandbox, tmp_path: Path) -> None:
    location = LogHarness(tmp_path)
    location.taken("a" * 60 + "\n", place("slow"))
    found = logged.client().request("GET", LOG, params={"query": '{workload="slow"} |~ "(a|a)*b"'})
    assert found.status_code == 400
    assert "takes too long" in found.json()["message"]


def test_logs_need_their_permission(logged: ApiSandbox) -> None:
    assert ask_as(logged, "reader").status_code == 200
    assert ask_as(logged, "ci").status_code == 403


def ask_as(sandbox: ApiSandbox, account: str) -> httpx2.Response:
    """The answer to a service account that reads the logs of a GVC."""
    key = sandbox.api.store.add_key(account, "", "test", None)[1]
    return sandbox.client(None).request("GET", LOG, params={"query": "gvc/shop"}, headers={"Authorization": key})


def read_by(sandbox: ApiSandbox, account: str, query: str, **more: str) -> tuple[int, list[str]]:
    """The status of a read by a service account, and the lines or the words of the refusal."""
    key = sandbox.api.store.add_key(account, "", "test", None)[1]
    answer = sandbox.client(None).request("GET", LOG, params={"query": query, **more}, headers={"Authorization": key})
    if answer.status_code != 200:
        return answer.status_code, [answer.json()["message"]]
    return 200, [json.loads(each)["line"] for each in answer.text.splitlines()]


def test_logs_of_one_workload_are_for_those_who_may_read_them(logged: ApiSandbox, tmp_path: Path) -> None:
    location = LogHarness(tmp_path)
    location.taken("secret of the api\n", place("api"))
    web = ["listening on 8080", "GET / 200", "GET /x 404"]
    for query in ("workload/shop/web", "gvc/shop", '{gvc="shop"}', '{workload=~".+"}'):
        assert read_by(logged, "team", query) == (200, web), query
    assert read_by(logged, "linked", "gvc/shop") == (200, ["secret of the api"])
    assert read_by(logged, "every", "workload/shop/api") == (200, ["secret of the api"])
    assert read_by(logged, "reader", "workload/shop/api") == (200, ["secret of the api"])
    # The answer is the same whether there is such a workload or not.
    for name in ("shop/api", "shop/none", "blog/web"):
        gvc, _, workload = name.partition("/")
        expected = (403, [f"no permission `readLogs` on workload/{name}"])
        assert read_by(logged, "team", f"workload/{name}") == expected
        assert read_by(logged, "team", f'{{gvc="{gvc}", workload="{workload}"}}') == expected
    for gvc in ("blog", "none"):
        assert read_by(logged, "team", f"gvc/{gvc}") == (403, [f"no permission `readLogs` on a workload of gvc/{gvc}"])
    assert read_by(logged, "team", '{workload="api"}') == (200, [])
    assert read_by(logged, "team", '{workload="api"} |= "secret"') == (200, [])
    assert read_by(logged, "ci", "workload/shop/web")[0] == 403


def test_who_may_read_the_logs_of_a_workload_may_view_it(logged: ApiSandbox) -> None:
    key = logged.api.store.add_key("team", "", "test", None)[1]
    client = logged.client(None)
    for name, status in (("web", 200), ("api", 403)):
        path = f"{ORG}/gvc/shop/workload/{name}"
        assert client.request("GET", path, headers={"Authorization": key}).status_code == status


async def test_a_reader_whose_permission_ends_follows_no_longer(
    logged: ApiSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.1)
    key = logged.api.store.add_key("team", "", "test", None)[1]
    path = f"{LOG}?query=gvc/shop&follow=true&lines=1"
    async with logged.watching(path, None, Authorization=key) as stream:
        assert json.loads(await stream.line())["line"] == "GET /x 404"
        logged.repo.commit({"shop/web.yaml": FILES["shop/api.yaml"].replace("name: api", "name: web")})
        assert (await asyncio.to_thread(logged.run, "apply")).returncode == 0
        assert await stream.text() == ""


async def test_a_reader_that_has_written_all_is_not_killed() -> None:
    """A signal that finds an ended process takes its exit code away from asyncio, which complains in the journal."""
    words = ("sh", "-c", "exec 1>&-; sleep 0.2; exit 7")
    reader = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    assert reader.stdout is not None
    assert await reader.stdout.read() == b""
    await observing._stop_log_process(reader)
    assert reader.returncode == 7


def test_a_caller_reads_few_logs_at_once(logged: ApiSandbox) -> None:
    with ExitStack() as reading:
        for _ in range(MOST_LONG_OF_CALLER):
            reading.enter_context(logged.api.streams.admit("user/root"))
        found = logged.client().request("GET", LOG, params={"query": "gvc/shop"})
        assert (found.status_code, found.headers["retry-after"]) == (429, "5")
        assert ask_as(logged, "reader").status_code == 200
    assert lines(logged, query="gvc/blog") == ["hello"]


def log_processes() -> list[str]:
    """The processes of this one that read logs. Threads and processes may end meanwhile."""
    children: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            children += (task / "children").read_text().split()
    return [pid for pid in children if reads_logs(pid)]


def reads_logs(pid: str) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return b"log_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


async def test_new_lines_follow_until_the_client_goes(logged: ApiSandbox, tmp_path: Path) -> None:
    def write_again() -> None:
        location = LogHarness(tmp_path)
        location.wait(120)
        location.taken("again\n", place("web", gvc="blog"))

    async with logged.watching(f"{LOG}?query=gvc/blog&follow=true") as stream:
        assert json.loads(await stream.line())["line"] == "hello"
        assert len(log_processes()) == 1
        await asyncio.to_thread(write_again)
        assert json.loads(await stream.line())["line"] == "again"
    assert log_processes() == []


def test_drift_is_what_the_caller_may_view(logged: ApiSandbox) -> None:
    assert logged.client().get(f"{ORG}/-drift") == {"kind": "list", "itemKind": "drift", "checked": None, "items": []}


async def test_a_long_list_of_drift_delays_no_other_request(logged: ApiSandbox) -> None:
    async def status(path: str) -> int:
        async with logged.watching(path) as stream:
            return stream.status

    for _ in range(LISTS):
        await logged.api.list_slots.acquire()
    reading = asyncio.create_task(status(f"{ORG}/-drift"))
    assert await status(f"{ORG}/gvc/shop/workload/web") == 200
    assert not reading.done(), "it is a list among others, in a thread"
    for _ in range(LISTS):
        logged.api.list_slots.release()
    assert await reading == 200


def test_only_workloads_have_replicas(logged: ApiSandbox) -> None:
    found = logged.client().get(f"{ORG}/gvc/shop/workload/web/-replica")
    assert found == {"kind": "list", "itemKind": "replica", "items": []}
    assert logged.client().request("GET", f"{ORG}/gvc/shop/workload/none/-replica").status_code == 404


def test_members_of_the_readers_see_logs(logged: ApiSandbox) -> None:
    found = logged.client(READER_PEER).request("GET", LOG, params={"query": "gvc/blog"})
    assert (found.status_code, json.loads(found.text)["line"]) == (200, "hello")
