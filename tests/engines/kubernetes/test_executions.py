"""Executions on a cluster: one that cannot be started does not keep the schedule from its next time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from reconciler.engines.kubernetes import engine as kubernetes_engine
from reconciler.engines.kubernetes.status import executions
from reconciler.engines.protocol import Result
from reconciler.model.key import Key
from tests.engines.kubernetes.engine_kit import SPACE, ClusterHarness, change_body, engine_on_fake, make_step

KEY = "workload/shop/tick"


def make_schedule() -> dict[str, Any]:
    """A cron workload whose next time is far away."""
    body = change_body(ports=None)
    job = {"schedule": "0 0 1 1 *", "concurrencyPolicy": "Forbid", "restartPolicy": "Never"}
    body["spec"] = {"type": "cron", "containers": body["spec"]["containers"], "job": job}
    body["name"] = "tick"
    return body


class Run(NamedTuple):
    """An execution."""

    name: str
    status: str


def read_runs(harness: ClusterHarness) -> list[Run]:
    """The executions; what is seen is recorded, as a daemon does."""
    seen = harness.see()[KEY]
    [record] = harness.records.applied.get(Key.parse(KEY))
    harness.records.applied.put(msgspec.structs.replace(record, state=seen.state, health=seen.health))
    runs = msgspec.json.decode(seen.state)["status"].get("jobExecutions", [])
    return [Run(run["name"], run["status"]) for run in runs]


def test_an_execution_without_its_image_ends_and_the_next_one_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_engine, "TIMES_SECONDS", 0.1)
    with engine_on_fake(tmp_path) as harness:
        assert harness.apply(make_step(make_schedule()))[KEY].result is Result.APPLIED
        harness.catch_up()
        harness.server.pods.script(f"{SPACE}/tick-*", "PullError", "not found")
        first = harness.server.run_cron_job(SPACE, "tick")
        harness.server.converge()
        assert harness.server.run_cron_job(SPACE, "tick") == "", "the next time is skipped"
        monkeypatch.setattr(executions, "IMAGE_SECONDS", 0.5)
        harness.until(lambda: read_runs(harness) == [(first, "Invalid")], "it is seen")
        harness.until(lambda: first not in harness.names("Job"), "it ends")
        harness.server.pods.script(f"{SPACE}/tick-*", "Succeeded")
        harness.server.converge()
        second = harness.server.run_cron_job(SPACE, "tick")
        harness.server.converge()
        harness.until(lambda: (second, "Success") in read_runs(harness), "the next one runs")
        assert read_runs(harness)[0] == (first, "Invalid")
