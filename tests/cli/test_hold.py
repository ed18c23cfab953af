"""`reconciler hold`: what it answers, what has no requests, and where a hold is shown until it ends."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.records.store import FILE, Records
from tests.cli.test_restart import API, workload
from tests.support.command_sandbox import SETTINGS, CommandSandbox, golden, here

WEB = "workload/shop/web"
REFUSED = (
    ("hold", "gvc/shop", "--for", "60s"),
    ("hold", "workload/shop/missing", "--for", "60s"),
    ("hold", "workload/shop/cron", "--for", "60s"),
    ("hold", "workload/shop/stopped", "--for", "60s"),
    ("hold", "workload/shop/recorded", "--for", "60s"),
    ("hold", "workload/shop/silent", "--for", "60s"),
    ("hold", API, "--for", "2h"),
    ("hold", API, "--for", "soon"),
    ("hold", API),
    ("hold", API, "--for", "60s", "--release"),
    ("hold", API, "--release"),
)
SERVING: list[dict[str, Any]] = [{"name": "main", "image": "none", "ports": [{"number": 8080}]}]


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """Records of workloads on this host, with settings beside them."""
    (tmp_path / "settings.yaml").write_text(
        SETTINGS.replace("  here: {engine: recorded}", "  here: {engine: host, runtime: process}")
    )
    opened = Records.open(tmp_path / "state" / FILE)
    opened.applied.put_many(
        [
            workload("api", "here", engine="host", containers=SERVING),
            workload("cron", "here", engine="host", type="cron"),
            workload("stopped", "here", engine="host", containers=SERVING, defaultOptions={"suspend": True}),
            workload("recorded", "there", containers=SERVING),
            workload("silent", "here", engine="host"),
        ]
    )
    return opened


def test_only_a_workload_that_serves_on_this_host_has_requests_to_hold(tmp_path: Path, records: Records) -> None:
    with closing(records):
        transcript = ""
        for words in REFUSED:
            ended = here(*words, cwd=tmp_path)
            assert ended.code != 0, words
            transcript += f"$ reconciler {' '.join(words)}\n{ended.out}{ended.err}"
        golden("hold.txt", transcript)
        assert records.traffic_holds.all() == []
        assert records.events.list() == []


def test_a_hold_lasts_as_long_as_was_asked_and_can_be_released(tmp_path: Path, records: Records) -> None:
    with closing(records):
        ended = here("hold", API, "--for", "5m", "--reason", "a migration", cwd=tmp_path)
        assert re.match(
            rf"new requests to {API} wait until 20\S+Z; release them: reconciler hold {API} --release\n", ended.out
        )
        [hold] = records.traffic_holds.all()
        assert (str(hold.key), hold.reason, hold.until - hold.at) == (API, "a migration", pytest.approx(300, abs=5))
        assert here("hold", API, "--release", cwd=tmp_path).out.startswith(f"requests to {API} are released\n")
        assert records.traffic_holds.all() == []
        events = records.events.list(API)
        assert [each.reason for each in events] == ["HoldingRequests", "RequestsReleased"]
        assert re.fullmatch(rf"{re.escape(hold.by)} until 20\S+Z: a migration", events[0].message)
        assert events[1].message == hold.by


def put(sandbox: CommandSandbox, until: float) -> None:
    """Hold the requests of the workload that the sandbox has applied."""
    with closing(Records.open(sandbox.state / FILE)) as records:
        records.traffic_holds.put(WEB, "a migration", "ada", until)
        records.status_queue.add_many("main", [WEB])


def test_a_hold_is_shown_with_author_and_reason_until_its_time_is_over(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    put(sandbox, 4e9)
    shown = r"ada holds its requests until 2096-\S+Z: a migration"
    assert re.search(rf"HoldingRequests +True +HoldingRequests +{shown}", sandbox.run("describe", WEB).out)
    sandbox.applied()
    assert re.search(shown, sandbox.status("shop/workload/web.yaml"))
    put(sandbox, 1.0)
    assert "HoldingRequests" not in sandbox.run("describe", WEB).out, "no run is needed to end it"
    sandbox.applied()
    assert "HoldingRequests" not in sandbox.status("shop/workload/web.yaml")
    with closing(Records.open(sandbox.state / FILE)) as records:
        released = [each for each in records.events.list(WEB) if each.reason == "RequestsReleased"]
        assert [each.message for each in released] == [
            "its time is over: ada holds its requests until 1970-01-01T00:00:01Z: a migration"
        ]
        assert records.traffic_holds.over() == []
