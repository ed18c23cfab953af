"""Overviews over HTTP: what commands of the reconciler show, as JSON and as text, for who may view everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.access.rules import VIEWERS, Caller
from reconciler.api.routes import streams
from tests.api.conftest import FILES
from tests.support.api import ORG, READER_PEER, ApiSite, api_site

OVERVIEWS = ("-status", "-describe?key=gvc/shop", "-events", "-runs", "-top", "-snapshot", "source/main/-plan")
PARTIAL = """kind: serviceaccount
name: partial
---
kind: policy
name: views-workloads
targetKind: workload
target: all
bindings: [{permissions: [view], principalLinks: [//serviceaccount/partial]}]
"""


@pytest.fixture(name="site", scope="module")
def site_with_overviews(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSite]:
    """A site whose plan has a delete that waits."""
    with api_site(tmp_path_factory.mktemp("overviews"), {**FILES, "partial.yaml": PARTIAL}) as made:
        yield made


def text(site: ApiSite, path: str, media: str = "text/plain") -> str:
    """The answer as ``media``."""
    found = site.client().request("GET", f"{ORG}/{path}", headers={"Accept": media})
    assert (found.status_code, found.headers["content-type"].partition(";")[0]) == (200, media), found.text
    return found.text


@pytest.mark.parametrize("path", OVERVIEWS)
def test_overviews_need_the_permission_to_view_everything(site: ApiSite, path: str) -> None:
    key = site.api.store.add_key("partial", "", "test", None)[1]
    refused = site.client(None).request("GET", f"{ORG}/{path}", headers={"Authorization": key})
    assert (refused.status_code, "no permission `view` on every" in refused.text) == (403, True)
    assert site.client(READER_PEER).request("GET", f"{ORG}/{path}").status_code == 200


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
def test_text_is_what_the_command_prints(site: ApiSite, path: str, words: list[str]) -> None:
    assert text(site, path) == site.run(*words).stdout != ""


@pytest.mark.parametrize(
    ("path", "words"),
    [("-status", ["get", "-o", "json"]), ("source/main/-plan", ["plan", "--format", "json"])],
)
def test_json_is_that_of_the_command(site: ApiSite, path: str, words: list[str]) -> None:
    assert site.client().get(f"{ORG}/{path}") == json.loads(site.run(*words).stdout)


def test_other_forms_are_those_of_the_command(site: ApiSite) -> None:
    assert text(site, "-status?kind=gvc", "application/yaml") == site.run("get", "gvc", "-o", "yaml").stdout
    assert text(site, "source/main/-plan", "text/markdown") == site.run("plan", "--format", "markdown").stdout


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("-status?kind=workloda", 404, "there is no kind 'workloda'; did you mean workload?"),
        ("-status?gvc=none", 404, "there is no gvc 'none'"),
        ("-describe", 400, "key is the resource or source to describe"),
        ("-describe?key=nonsense", 400, "nonsense"),
        ("-describe?key=gvc/none", 404, "there is no gvc/none"),
        ("-events?last=many", 400, "last is a number"),
        ("source/main/-plan?revision=none", 404, "revision 'none' is not in the repository"),
        ("-runs?source=none", 404, "there is no source 'none'"),
        ("-top?gvc=none", 404, "there is no gvc 'none'"),
        ("-snapshot?key=source/main", 400, "a source has no snapshots"),
        ("-snapshot?key=gvc/shop", 409, "is no volume set"),
        ("source/none/-plan", 404, "there is no source 'none'"),
        ("-plan/short", 400, "the first 8 characters"),
        ("-plan/0123456789", 404, "no current plan has the digest 0123456789"),
    ],
)
def test_what_does_not_exist_is_an_error(site: ApiSite, path: str, status: int, message: str) -> None:
    found = site.client().request("GET", f"{ORG}/{path}")
    assert (found.status_code, message in found.json()["message"]) == (status, True), found.text


def test_a_plan_is_found_by_its_digest(site: ApiSite) -> None:
    base = site.repo.git("rev-parse", "main")
    site.repo.commit({"shop/more.yaml": "kind: identity\nname: more\ngvc: shop\n"})
    try:
        found = site.client().request("GET", f"{ORG}/source/main/-plan")
        plan: dict[str, Any] = found.json()
        assert [step["key"] for step in plan["steps"]] == ["identity/shop/more"]
        assert (found.headers["plan-changes"], found.headers["plan-errors"]) == ("1", "0")
        assert site.client().get(f"{ORG}/-plan/{plan['digest'][:8]}")["steps"] == plan["steps"]
    finally:
        site.repo.git("update-ref", "refs/heads/main", base)


def test_events_follow_until_the_credential_ends(site: ApiSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.05)
    token = site.api.store.add_session(Caller("user/eve", frozenset({str(VIEWERS)}), "test"), 60.0)

    async def story() -> list[str]:
        path = f"{ORG}/-events?last=1&follow=true"
        async with site.watching(path, None, Authorization=f"Bearer {token}") as stream:
            seen = [json.loads(await stream.line())["reason"]]
            assert await asyncio.to_thread(lambda: site.run("suspend", "main").returncode) == 0
            seen.append(json.loads(await stream.line())["reason"])
            site.clock.jump(61)
            assert await stream.text() == ""
        return seen

    try:
        assert asyncio.run(story())[1] == "Suspended"
    finally:
        site.run("resume", "main")
