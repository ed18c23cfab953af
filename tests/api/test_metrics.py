"""The page that Prometheus reads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.api.metrics import METRICS, Scrape
from reconciler.engines.protocol import Result
from reconciler.engines.reading import ReplicaRow, ReplicaState
from reconciler.model.key import Key, Kind
from reconciler.model.record import Health
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import FILE, Records
from reconciler.records.tables.drift import DriftRow
from reconciler.times import parse_time
from tests.api.conftest import FILES
from tests.support.api import READER_PEER, ApiSandbox, api_sandbox
from tests.support.programs import tool

LABELS = {"source", "location", "kind", "reason", "resource"}


def page(sandbox: ApiSandbox) -> str:
    """The page as root reads it."""
    answer = sandbox.client().request("GET", "/metrics")
    assert answer.status_code == 200, answer.text
    return answer.text


def samples(sandbox: ApiSandbox) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of every metric by those of its labels, in the order of the table."""
    values: dict[str, dict[tuple[str, ...], float]] = {metric.name: {} for metric in METRICS}
    order = {metric.name: metric.labels for metric in METRICS}
    for family in text_string_to_metric_families(page(sandbox)):
        for name, labels, value, *_ in family.samples:
            assert set(labels) == set(order[name])
            values[name][tuple(labels[text] for text in order[name])] = value
    return values


def test_every_metric_of_the_table_is_on_the_page(sandbox: ApiSandbox) -> None:
    families = {family.name for family in text_string_to_metric_families(page(sandbox))}
    assert families == {each.name.removesuffix("_total") for each in METRICS}
    assert {name for each in METRICS for name in each.labels} <= LABELS


def test_metrics_count_what_is_recorded(sandbox: ApiSandbox) -> None:
    values = samples(sandbox)
    assert values["reconciler_loop_alive"] == {(): 1}
    assert values["reconciler_runs_total"] == {(): 1}
    assert values["reconciler_resources"]["main", "workload", "Recorded"] == 2
    assert values["reconciler_last_run_resources"]["main", "created"] == sum(values["reconciler_resources"].values())
    assert values["reconciler_requests_waiting"] == {(): 0}
    assert values["reconciler_drifts"] == {("main",): 0}


def test_every_label_has_few_values(sandbox: ApiSandbox) -> None:
    """Those of the table are names in the settings, or words of the program."""
    words = {*Kind, *Health, *ReplicaState, *Reason, *ConditionType, *Result}
    # Outcomes of runs, and results in their plans.
    outcomes = {"applied", "created", "failed", "running", "unchanged", "updated", "waiting"}
    allowed = {str(each) for each in words} | outcomes | {"main"}
    for name, found in samples(sandbox).items():
        assert {label for labels in found for label in labels} <= allowed, name


def test_steps_without_an_approval_are_counted(sandbox: ApiSandbox) -> None:
    records = Records.open(sandbox.state / FILE, clock_now=sandbox.clock.now)
    try:
        assert samples(sandbox)["reconciler_approvals_waiting"] == {("main",): 0}
        records.approvals.remember_plan("plan", "main/steps")
        records.approvals.remember_plan("steps", "main/steps")
        records.approvals.remember_plan("other", "mainland/steps")
        assert samples(sandbox)["reconciler_approvals_waiting"] == {("main",): 1}
        records.approvals.approve("main/steps", "ann", sandbox.clock.now() + 10)
        assert samples(sandbox)["reconciler_approvals_waiting"] == {("main",): 0}
        assert len(records.approvals.waiting_digests("main", sandbox.clock.now() + 11)) == 1
    finally:
        records.approvals.carry("main", "", ())
        records.approvals.carry("mainland", "", ())
        records.close()


def test_replicas_are_counted_at_each_location_by_state(sandbox: ApiSandbox) -> None:
    row = ReplicaRow(Key(Kind.WORKLOAD, "shop", "web"), "here", "r", 1, ReplicaState.READY)
    scrape = Scrape(sandbox.api.reader.records, (), True, 0.0, ("here", "there"), (row, row))
    metric = next(each for each in METRICS if each.name == "reconciler_replicas")
    values = dict(metric.samples(scrape))
    assert {labels for labels, value in values.items() if value} == {("here", "Ready")}
    assert values["here", "Ready"] == 2
    assert len(values) == 2 * len(ReplicaState)


def test_listed_resources_have_metrics_of_their_own(tmp_path: Path) -> None:
    listed = ["workload/shop/web", "gvc/shop", "gvc/none"]
    with api_sandbox(tmp_path, FILES, api={"metrics": {"resources": listed}}) as sandbox:
        found = samples(sandbox)
        assert found["reconciler_resource_health"] == {
            ("gvc/shop", "", "Healthy"): 1,
            ("workload/shop/web", "here", "Recorded"): 1,
            ("workload/shop/web", "there", "Recorded"): 1,
        }
        records = Records.open(sandbox.state / FILE, clock_now=sandbox.clock.now)
        try:
            records.drifts.put_many([DriftRow("workload/shop/web", "here", "main", 1.0, b"{}")])
            drifted = samples(sandbox)["reconciler_resource_drifted"]
            assert {labels for labels, value in drifted.items() if value} == {("workload/shop/web", "here")}
            assert len(drifted) == 3
        finally:
            records.close()
        assert "api" not in page(sandbox), "another workload is in no label"


def test_listed_volume_sets_show_the_age_of_their_newest_copies(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES, api={"metrics": {"resources": ["volumeset/shop/data"]}}) as sandbox:
        copies = [["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"], ["2026-01-01T12:00:00Z"], []]
        volumes = [
            {
                "index": index,
                "lifecycle": "bound",
                "currentSize": 10,
                "volumeSnapshots": [{"name": at, "created": at, "size": 10} for at in each],
            }
            for index, each in enumerate(copies)
        ]
        volumes[0]["lastProven"] = "2026-01-03T00:00:00Z"
        state = json.dumps({"name": "here", "volumes": volumes}).encode()
        records = Records.open(sandbox.state / FILE, clock_now=sandbox.clock.now)
        try:
            [web] = [record for record in records.applied.get("workload/shop/web") if record.location == "here"]
            records.applied.put(msgspec.structs.replace(web, key=Key.parse("volumeset/shop/data"), state=state))
            ages = samples(sandbox)["reconciler_resource_snapshot_timestamp_seconds"]
            proven = samples(sandbox)["reconciler_resource_snapshot_proven_timestamp_seconds"]
        finally:
            records.close()
        assert proven == {("volumeset/shop/data", "here"): 0}, "the second volume has no proof"
        assert ages == {("volumeset/shop/data", "here"): parse_time("2026-01-01T12:00:00Z")}


def test_replicas_of_listed_workloads_are_counted(sandbox: ApiSandbox) -> None:
    rows = [
        ReplicaRow(Key(Kind.WORKLOAD, "shop", name), "here", "r", 1, ReplicaState.READY)
        for name in ("web", "web", "api")
    ]
    scrape = Scrape(sandbox.api.reader.records, (), True, 0.0, ("here",), rows, resources=("workload/shop/web",))
    metric = next(each for each in METRICS if each.name == "reconciler_resource_replicas")
    assert dict(metric.samples(scrape)) == {("workload/shop/web", "here", "Ready"): 2}


def test_no_metric_names_a_resource_or_shows_a_secret(sandbox: ApiSandbox) -> None:
    text = page(sandbox)
    assert not [each for each in ("hunter2", "shop", "web-edits", "ann@example.com", '"db"') if each in text]


def test_viewers_read_metrics_and_callers_without_a_credential_do_not(sandbox: ApiSandbox) -> None:
    assert sandbox.client(READER_PEER).request("GET", "/metrics").status_code == 200
    assert sandbox.client(None).request("GET", "/metrics").status_code == 401


def test_a_waiting_request_has_an_age(sandbox: ApiSandbox) -> None:
    records = Records.open(sandbox.state / FILE, clock_now=lambda: sandbox.clock.now() - 90)
    number = records.requests.add("sync", {}, "ann")
    try:
        values = samples(sandbox)
    finally:
        records.requests.record_result(number, {})
        records.close()
    assert values["reconciler_requests_waiting"] == {(): 1}
    assert values["reconciler_request_oldest_age_seconds"] == {(): pytest.approx(90)}


def test_promtool_accepts_the_page(sandbox: ApiSandbox) -> None:
    command = [tool("promtool", "prometheus"), "check", "metrics"]
    checked = subprocess.run(command, input=page(sandbox), capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
