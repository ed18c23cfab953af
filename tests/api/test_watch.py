"""Watches: changes of resources as events, for those who may see them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.api import watching
from reconciler.api.app import OPERATIONS
from reconciler.model.key import Key
from reconciler.model.record import Health
from reconciler.records.store import FILE, Records
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, ApiStream, api_sandbox
from tests.support.sandbox import workload

WORKLOADS = f"{ORG}/gvc/shop/workload"
WEB = f"{WORKLOADS}/web"
WEB_KEY = Key.parse("workload/shop/web")
API_KEY = Key.parse("workload/shop/api")
TAGGED = """kind: policy
name: views
targetKind: workload
targetQuery: {kind: workload, spec: {terms: [{tag: team, value: web}]}}
bindings: [{permissions: [view], principalLinks: [//serviceaccount/ci]}]
"""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox that the tests change; each leaves the workloads as they were."""
    with api_sandbox(tmp_path_factory.mktemp("watch"), {**FILES, "views.yaml": TAGGED}) as made:
        yield made


def run(sandbox: ApiSandbox, watch: Callable[[Records], Awaitable[None]]) -> None:
    """Run ``watch`` with the records as the daemon writes them."""
    with closing(Records.open(sandbox.state / FILE)) as records:
        asyncio.run(watch(records))


def change(records: Records, key: Key, **fields: Any) -> None:
    """Record another state, or another manifest, of ``key``."""
    with records.transaction():
        for record in records.applied.get(key):
            records.applied.put(msgspec.structs.replace(record, **fields))
        records.status_queue.add_many("main", [key])


def with_tags(records: Records, key: Key, **tags: str) -> bytes:
    """The manifest of ``key`` with other tags."""
    return msgspec.json.encode({**msgspec.json.decode(records.applied.get(key)[0].body), "tags": tags})


async def kinds(stream: ApiStream, count: int) -> list[tuple[str, str]]:
    """Type and name of the next events."""
    events = [await stream.event() for _ in range(count)]
    return [(each.type, each.body.get("name", "")) for each in events if each is not None]


def test_a_commit_is_followed_from_the_list_on(sandbox: ApiSandbox) -> None:
    listed = sandbox.client().request("GET", WORKLOADS)
    shown = {each["name"]: each for each in listed.json()["items"]}
    version = listed.headers["resource-version"]

    async def watch() -> None:
        async with sandbox.watching(f"{WORKLOADS}/-watch", Last_Event_ID=version) as stream:
            events = [each for _ in range(3) if (each := await stream.event()) is not None]
        by_type = {event.type: event for event in events}
        assert {event.type: event.body["name"] for event in events} == {
            "added": "new",
            "modified": "web",
            "deleted": "api",
        }
        assert by_type["modified"].body == sandbox_now
        assert by_type["deleted"].body["spec"] == shown["api"]["spec"]
        # What comes after an event is what comes after its id.
        later = min(int(event.id) for event in events)
        async with sandbox.watching(f"{WORKLOADS}/-watch?after={later}") as stream:
            assert len(await kinds(stream, 2)) == 2

    sandbox.repo.commit({"shop/new.yaml": workload("new"), "shop/api.yaml": None, "shop/web.yaml": workload("web")})
    assert sandbox.run("apply").returncode == 0
    sandbox_now = sandbox.client().get(WEB)
    asyncio.run(watch())
    sandbox.repo.commit({"shop/new.yaml": None} | {name: FILES[name] for name in ("shop/api.yaml", "shop/web.yaml")})
    assert sandbox.run("apply").returncode == 0


def test_deletes_that_wait_make_an_event_when_their_reason_changes_only(tmp_path: Path) -> None:
    members = {f"shop/w{number}.yaml": workload(f"w{number}") for number in range(12)}
    with api_sandbox(tmp_path, {**FILES, **members}) as made:

        def changed(files: Mapping[str, str | None]) -> list[str]:
            """The keys of changes that a commit makes."""
            before = made.api.reader.records.changes.newest()
            made.repo.commit(files)
            assert made.run("apply").returncode in (0, 1)
            return [each.key for each in made.api.reader.records.changes.after(before, 500)]

        def shown() -> str:
            status = made.repo.git("show", "reconciler/status:shop/workload/w3.yaml")
            return "ApprovalRequired" if "ApprovalRequired" in status else "applied"

        gone = dict.fromkeys(members)
        assert "workload/shop/w3" in changed(gone)
        assert shown() == "ApprovalRequired"
        assert set(changed({"one.yaml": "kind: auditctx\nname: one\n"})) == {"auditctx/one"}
        # What comes back waits for nothing, and waits anew once it is removed again.
        assert set(changed(members)) == {f"workload/shop/w{number}" for number in range(12)}
        assert shown() == "applied"
        assert "workload/shop/w3" in changed(gone)
        assert shown() == "ApprovalRequired"


def test_one_resource_is_watched_without_the_others(sandbox: ApiSandbox) -> None:
    async def watch(records: Records) -> None:
        async with sandbox.watching(f"{WEB}/-watch") as stream:
            change(records, API_KEY, health=Health.UNHEALTHY)
            change(records, WEB_KEY, health=Health.UNHEALTHY)
            found = await stream.event()
            assert found is not None
            assert (found.type, found.body["name"], found.body["status"]["health"]) == ("modified", "web", "Unhealthy")
            change(records, API_KEY, health=Health.RECORDED)
            change(records, WEB_KEY, health=Health.RECORDED)

    run(sandbox, watch)


def test_a_caller_sees_what_it_may_view_come_and_go(sandbox: ApiSandbox) -> None:
    key = {"Authorization": sandbox.api.store.add_key("ci", "", "test", None)[1]}

    async def watch(records: Records) -> None:
        before = {name: records.applied.get(name)[0].body for name in (API_KEY, WEB_KEY)}
        async with sandbox.watching(f"{WORKLOADS}/-watch", None, **key) as stream:
            change(records, API_KEY, health=Health.UNHEALTHY)  # it may not view this one
            change(records, API_KEY, body=with_tags(records, API_KEY, team="web"))
            assert await kinds(stream, 1) == [("added", "api")]
            change(records, WEB_KEY, body=with_tags(records, WEB_KEY))
            gone = await stream.event()
            assert gone is not None
            assert (gone.type, gone.body["name"], gone.body["tags"]) == ("deleted", "web", {"team": "web"})
            change(records, API_KEY, body=before[API_KEY], health=Health.RECORDED)
            change(records, WEB_KEY, body=before[WEB_KEY])
            assert sorted(await kinds(stream, 2)) == [("added", "web"), ("deleted", "api")]

    run(sandbox, watch)


def test_a_permission_that_goes_away_ends_the_watch(sandbox: ApiSandbox) -> None:
    key = {"Authorization": sandbox.api.store.add_key("ci", "", "test", None)[1]}
    policy = Key.parse("policy/views")

    async def watch(records: Records) -> None:
        [record] = records.applied.get(policy)
        async with (
            sandbox.watching(f"{WORKLOADS}/-watch", None, **key) as stream,
            sandbox.watching(f"{WEB}/-watch") as other,
        ):
            body = msgspec.json.decode(record.body) | {"bindings": []}
            change(records, policy, body=msgspec.json.encode(body), digest="other")
            change(records, WEB_KEY, health=Health.UNHEALTHY)
            problem = await stream.event()
            assert problem is not None
            assert (problem.type, problem.body["status"]) == ("problem", 410)
            assert await stream.event() is None
            assert await kinds(other, 1) == [("modified", "web")], "others watch on"
        change(records, policy, body=record.body, digest=record.digest)
        change(records, WEB_KEY, health=Health.RECORDED)

    run(sandbox, watch)


def test_a_revoked_key_ends_the_watch(sandbox: ApiSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.api.routes.watch.CHECK", 0.01)
    key, text = sandbox.api.store.add_key("ci", "", "test", None)

    async def watch(_: Records) -> None:
        async with sandbox.watching(f"{WORKLOADS}/-watch", None, Authorization=text) as stream:
            sandbox.api.store.revoke_key("ci", key.id)
            problem = await stream.event()
            assert problem is not None
            assert (problem.type, problem.body["status"]) == ("problem", 401)

    run(sandbox, watch)


def test_a_client_that_is_too_slow_lists_again(sandbox: ApiSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_EVENTS", 3)

    async def watch(records: Records) -> None:
        async with sandbox.watching(f"{WEB}/-watch") as slow, sandbox.watching(f"{WEB}/-watch") as fast:
            slow.reading.clear()
            health = [Health.UNHEALTHY, Health.RECORDED] * 4
            for each in health:
                change(records, WEB_KEY, health=each)
                assert await kinds(fast, 1) == [("modified", "web")]
            slow.reading.set()
            events = []
            while (event := await slow.event()) is not None:
                events.append(event)
            assert len(events) < len(health)
            assert (events[-1].type, events[-1].body["message"]) == ("problem", watching.SLOW)

    run(sandbox, watch)


def test_an_id_that_is_too_old_or_unknown_is_gone(sandbox: ApiSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = int(sandbox.client().request("GET", WORKLOADS).headers["resource-version"])
    client = sandbox.client()
    assert client.request("GET", f"{WORKLOADS}/-watch?after={newest + 1}").status_code == 410
    assert client.request("GET", f"{WORKLOADS}/-watch?after=x").status_code == 400
    assert client.request("GET", f"{WORKLOADS}/-watch?timeoutSeconds=x").status_code == 400
    ended = client.request("GET", f"{WORKLOADS}/-watch?after={newest}&timeoutSeconds=0")
    assert (ended.status_code, ended.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert "event: bookmark" in ended.text
    monkeypatch.setattr(watching, "MOST_EVENTS", 1)
    gone = client.request("GET", f"{WORKLOADS}/-watch?after=0")
    assert (gone.status_code, gone.json()["message"]) == (410, watching.GONE)
    with closing(Records.open(sandbox.state / FILE)) as records, records.transaction():
        # The table keeps the last 20,000.
        for _ in range(21_000):
            records.status_queue.add_many("main", [API_KEY])
    assert client.request("GET", f"{WORKLOADS}/-watch?after={newest}").status_code == 410


def test_changes_of_many_kinds_leave_nothing_behind(sandbox: ApiSandbox) -> None:
    async def watch(_: Records) -> None:
        streams = [sandbox.watching(f"{ORG}/{kind}/-watch") for kind in ("gvc", "policy", "secret")]
        for each in streams:
            async with each:
                pass
        assert not sandbox.api.changes.watchers

    run(sandbox, watch)
    assert len([each for each in OPERATIONS if each.path.endswith("/-watch")]) == 4
