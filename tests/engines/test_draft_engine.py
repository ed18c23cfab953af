"""Another engine that runs workloads needs its package alone: commands, the API and its checks read what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from reconciler.api.service import Api
from reconciler.engines.plugin import list_engines, name_engines
from reconciler.errors import RefusedError
from reconciler.model.key import Key
from reconciler.operations.exec import SHELL, ExecOptions, find_target, open_session
from reconciler.records.store import Records
from reconciler.settings import load_settings
from tests.support.api import ORG, ROOT_PEER, ApiClient
from tests.support.clock import FakeClock
from tests.support.command_sandbox import CommandSandbox, workload
from tests.support.draft import draft_engine

KEY = Key.parse("workload/shop/api")
SETTINGS = """org: acme
state: state
sources:
  - {name: main, url: ./manifests, branch: main}
locations:
  here: {engine: draft}
  there: {engine: recorded}
api: {}
"""
GVC = "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here, //location/there]}}\n"
FILES = {"shop/gvc.yaml": GVC, "shop/api.yaml": workload(), "shop/web.yaml": workload("web")}


def no_records() -> Records:
    raise AssertionError("the replicas are enough")


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[CommandSandbox]:
    """A sandbox where ``here`` has the draft engine, with two workloads that are applied."""
    with draft_engine():
        sandbox = CommandSandbox(tmp_path, FILES, SETTINGS)
        sandbox.applied()
        yield sandbox


@pytest.fixture
def client(sandbox: CommandSandbox) -> Iterator[ApiClient]:
    """Requests of root to the API over the same state."""
    api = Api(load_settings(sandbox.settings), FakeClock(), lambda: True)
    try:
        yield ApiClient(api, ROOT_PEER)
    finally:
        api.close()


def test_get_shows_its_health_beside_that_of_others(sandbox: CommandSandbox) -> None:
    item, _ = sandbox.run("get", "workload", "-o", "json").json["items"]
    assert {(seen["location"], seen["engine"], seen["health"]) for seen in item["deployments"]} == {
        ("here", "draft", "Healthy"),
        ("there", "recorded", "Recorded"),
    }


def test_top_shows_its_replicas(sandbox: CommandSandbox) -> None:
    replicas = sandbox.run("top", "-o", "json").json["replicas"]
    assert {(row["workload"], row["location"], row["state"]) for row in replicas} == {
        ("workload/shop/api", "here", "Ready"),
        ("workload/shop/web", "here", "Ready"),
    }
    assert "5m" in sandbox.run("top", "--once").out


def test_logs_show_its_lines(sandbox: CommandSandbox) -> None:
    shown = sandbox.run("logs", str(KEY))
    assert "shop/api/api-0/main@here | started" in shown.out
    assert "web" not in shown.out
    assert sandbox.run("logs", '{gvc="shop"} |= "ended"').out == ""
    missing = sandbox.run("logs", str(KEY), "--replica", "api-9")
    assert missing.err == "the query selects no logs of api-9; there are logs of api-0\n"


def test_exec_opens_a_session_and_names_what_runs_nowhere(sandbox: CommandSandbox) -> None:
    settings = load_settings(sandbox.settings)

    async def enter() -> int:
        target = find_target(settings, no_records, KEY, ExecOptions())
        session = await open_session(settings, target, SHELL, None)
        await session.close_stdin()
        return await session.wait()

    assert asyncio.run(enter()) == 0
    with pytest.raises(RefusedError, match="nothing runs at there: its engine is recorded"):
        find_target(settings, no_records, KEY, ExecOptions(location="there"))


def test_the_api_shows_its_replicas(client: ApiClient) -> None:
    [row] = client.get(f"{ORG}/gvc/shop/workload/api/-replica")["items"]
    assert (row["replica"], row["location"], row["state"]) == ("api-0", "here", "Ready")
    assert 'reconciler_replicas{location="here",reason="Ready"} 2.0' in client.request("GET", "/metrics").text


def test_its_workloads_may_call_with_their_token(sandbox: CommandSandbox, client: ApiClient) -> None:
    worlds = import_module("reconciler.engines.draft.plugin").WORLDS
    token = worlds[load_settings(sandbox.settings).state, "here"].tokens[KEY]
    path = f"{ORG}/gvc/shop/workload/api"
    own = client.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    assert own.status_code == 403, "it is known, and no policy lets it view"
    assert str(KEY) in own.text
    guess = client.request("GET", path, headers={"Authorization": f"Bearer {token}x"})
    assert guess.status_code == 401


def test_what_it_lacks_is_a_sentence(sandbox: CommandSandbox) -> None:
    asked = sandbox.run("volume", "import", "volumeset/shop/data", "nightly")
    assert (asked.code, "Traceback" in asked.err) == (2, False)
    assert sandbox.run("snapshots", "--deleted").out == ""
    assert "Traceback" not in sandbox.run("doctor").err


def test_it_is_gone_again_afterwards() -> None:
    assert list_engines() == ("host", "kubernetes", "recorded")
    assert name_engines() == "host or kubernetes"
