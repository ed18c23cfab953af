"""`reconciler drift` shows what differs, since when, and how to ignore it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.daemon.lock import StateLock
from reconciler.engines.context import EngineContext
from reconciler.engines.protocol import Engine
from reconciler.engines.recorded.plugin import RecordedPlugin
from reconciler.pipeline.runner import Runner
from reconciler.records.store import FILE, Records
from reconciler.settings import load_settings
from tests.support.clock import FakeClock
from tests.support.command_sandbox import CommandSandbox, golden, workload
from tests.support.engines import LedgerEngine

API, WEB = "workload/shop/api", "workload/shop/web"


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    """A shop where ``there`` is a ledger, changed in four ways since it was applied."""
    sandbox = CommandSandbox(tmp_path)
    sandbox.commit({"shop/cart.yaml": workload("cart")})
    ledger = LedgerEngine(tmp_path / "world", "there")

    def make(context: EngineContext) -> Engine:
        if context.location == "there":
            return ledger
        return RecordedPlugin().make(context)

    clock = FakeClock(auto=True)
    records = Records.open(sandbox.state / FILE, clock_now=clock.now)
    runner = Runner(load_settings(sandbox.settings), records, clock, {"recorded": make})
    asyncio.run(runner.run("main", "test"))
    body = msgspec.json.decode(next(each.body for each in records.applied.get(WEB) if each.location == "there"))
    body["spec"]["containers"][0]["image"] = "/org/acme/image/web:9"
    body["tags"] = {"team": "front"}
    ledger.meddle(API)
    ledger.meddle(WEB, digest="x", version=4, body=msgspec.json.encode(body).decode())
    ledger.meddle("workload/shop/cart", digest="x")
    ledger.meddle("workload/shop/old", digest="x")
    asyncio.run(runner.drift_monitor.check())
    records.close()
    return sandbox


@pytest.fixture
def running(sandbox: CommandSandbox) -> Iterator[CommandSandbox]:
    """The same sandbox while a daemon holds its state."""
    with StateLock(sandbox.state):
        yield sandbox


def test_drift_reads_well(running: CommandSandbox) -> None:
    result = running.run("drift")
    assert (result.code, result.err) == (0, "")
    golden("drift.txt", result.out)


def test_drift_lists_one_resource_alone(running: CommandSandbox) -> None:
    assert [line.split(":")[0] for line in running.run("drift", API).out.splitlines()[:1]] == [f"{API} at there"]
    assert running.run("drift", "workload/shop/db").out.startswith("Nothing differed at 2")


def test_drift_for_programs(running: CommandSandbox) -> None:
    document = running.run("drift", WEB, "-o", "json").json
    [item] = document["items"]
    assert document["checked"] == item["since"]
    assert {name: item[name] for name in ("key", "location", "source", "what", "in_conflict")} == {
        "key": WEB,
        "location": "there",
        "source": "main",
        "what": "changed",
        "in_conflict": False,
    }
    assert {"path": "version", "there": 4, "applied": 1} in item["changes"]


def test_a_plan_shows_what_it_heals(sandbox: CommandSandbox) -> None:
    assert "~ workload/shop/web  at there  heals drift" in sandbox.run("plan").out
    steps = {step["key"]: step for step in sandbox.plan()["steps"]}
    assert {key: step["action"] for key, step in steps.items() if step["heals"]} == {
        API: "create",
        WEB: "update",
        "workload/shop/cart": "update",
    }


def test_drift_reports_that_nothing_can_differ(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    assert sandbox.run("drift").out == "Nothing here can differ, or nothing was checked yet.\n"
    assert sandbox.run("drift", "-o", "json").json == {"checked": None, "items": []}


def test_describe_and_events_name_what_differs(sandbox: CommandSandbox) -> None:
    output = sandbox.run("describe", API).out
    assert "Drifted" in output
    assert "missing at there" in output
    assert f"DriftDetected    {API}@there: missing at there" in sandbox.run("events", API).out
