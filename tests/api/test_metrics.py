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
from tests.support.api import READER_PEER, ApiSite, api_site
from tests.support.programs import tool

LABELS = {"source", "location", "kind", "reason", "resource"}


def page(site: ApiSite) -> str:
    """The page as root reads it."""
    answer = site.client().request("GET", "/metrics")
    assert answer.status_code == 200, answer.text
    return answer.text


def samples(site: ApiSite) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of every metric by those of its labels, in the order of the table."""
    found: dict[str, dict[tuple[str, ...], float]] = {each.name: {} for each in METRICS}
    order = {each.name: each.labels for each in METRICS}
    for family in text_string_to_metric_families(page(site)):
        for name, labels, value, *_ in family.samples:
            assert set(labels) == set(order[name])
            found[name][tuple(labels[each] for each in order[name])] = value
    return found


def test_every_metric_of_the_table_is_on_the_page(site: ApiSite) -> None:
    families = {family.name for family in text_string_to_metric_families(page(site))}
    assert families == {each.name.removesuffix("_total") for each in METRICS}
    assert {name for each in METRICS for name in each.labels} <= LABELS


def test_metrics_count_what_is_recorded(site: ApiSite) -> None:
    found = samples(site)
    assert found["reconciler_loop_alive"] == {(): 1}
    assert found["reconciler_runs_total"] == {(): 1}
    assert found["reconciler_resources"]["main", "workload", "Recorded"] == 2
    assert found["reconciler_last_run_resources"]["main", "created"] == sum(found["reconciler_resources"].values())
    assert found["reconciler_requests_waiting"] == {(): 0}
    assert found["reconciler_drifts"] == {("main",): 0}


def test_every_label_has_few_values(site: ApiSite) -> None:
    """Those of the table are names in the settings, or words of the program."""
    words = {*Kind, *Health, *ReplicaState, *Reason, *ConditionType, *Result}
    # Outcomes of runs, and results in their plans.
    outcomes = {"applied", "created", "failed", "running", "unchanged", "updated", "waiting"}
    allowed = {str(each) for each in words} | outcomes | {"main"}
    for name, found in samples(site).items():
        assert {label for labels in found for label in labels} <= allowed, name


def test_steps_without_an_approval_are_counted(site: ApiSite) -> None:
    records = Records.open(site.state / FILE, clock_now=site.clock.now)
    try:
        assert samples(site)["reconciler_approvals_waiting"] == {("main",): 0}
        records.approvals.remember_plan("plan", "main/steps")
        records.approvals.remember_plan("steps", "main/steps")
        records.approvals.remember_plan("other", "mainland/steps")
        assert samples(site)["reconciler_approvals_waiting"] == {("main",): 1}
        records.approvals.approve("main/steps", "ann", site.clock.now() + 10)
        assert samples(site)["reconciler_approvals_waiting"] == {("main",): 0}
        assert records.approvals.waiting("main", site.clock.now() + 11) == 1
    finally:
        records.approvals.carry("main", "", ())
        records.approvals.carry("mainland", "", ())
        records.close()


def test_replicas_are_counted_at_each_location_by_state(site: ApiSite) -> None:
    row = ReplicaRow(Key(Kind.WORKLOAD, "shop", "web"), "here", "r", 1, ReplicaState.READY)
    scrape = Scrape(site.api.reader.records, (), True, 0.0, ("here", "there"), (row, row))
    metric = next(each for each in METRICS if each.name == "reconciler_replicas")
    found = dict(metric.samples(scrape))
    assert {labels for labels, value in found.items() if value} == {("here", "Ready")}
    assert found["here", "Ready"] == 2
    assert len(found) == 2 * len(ReplicaState)


def test_listed_resources_have_metrics_of_their_own(tmp_path: Path) -> None:
    listed = ["workload/shop/web", "gvc/shop", "gvc/none"]
    with api_site(tmp_path, FILES, api={"metrics": {"resources": listed}}) as made:
        found = samples(made)
        assert found["reconciler_resource_health"] == {
            ("gvc/shop", "", "Healthy"): 1,
            ("workload/shop/web", "here", "Recorded"): 1,
            ("workload/shop/web", "there", "Recorded"): 1,
        }  # fmt: skip
        records = Records.open(made.state / FILE, clock_now=made.clock.now)
        try:
            records.drifts.put_many([DriftRow("workload/shop/web", "here", "main", 1.0, b"{}")])
            drifted = samples(made)["reconciler_resource_drifted"]
            assert {labels for labels, value in drifted.items() if value} == {("workload/shop/web", "here")}
            assert len(drifted) == 3
        finally:
            records.close()
        assert "api" not in page(made), "another workload is in no label"


def test_listed_volume_sets_show_the_age_of_their_newest_copies(tmp_path: Path) -> None:
    with api_site(tmp_path, FILES, api={"metrics": {"resources": ["volumeset/shop/data"]}}) as made:
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
        records = Records.open(made.state / FILE, clock_now=made.clock.now)
        try:
            [web] = [each for each in records.applied.get("workload/shop/web") if each.location == "here"]
            records.applied.put(msgspec.structs.replace(web, key=Key.parse("volumeset/shop/data"), state=state))
            found = samples(made)["reconciler_resource_snapshot_timestamp_seconds"]
            proven = samples(made)["reconciler_resource_snapshot_proven_timestamp_seconds"]
        finally:
            records.close()
        assert proven == {("volumeset/shop/data", "here"): 0}, "the second volume has no proof"
        assert found == {("volumeset/shop/data", "here"): parse_time("2026-01-01T12:00:00Z")}


def test_replicas_of_listed_workloads_are_counted(site: ApiSite) -> None:
    rows = [
        ReplicaRow(Key(Kind.WORKLOAD, "shop", name), "here", "r", 1, ReplicaState.READY)
        for name in ("web", "web", "api")
    ]
    scrape = Scrape(site.api.reader.records, (), True, 0.0, ("here",), rows, resources=("workload/shop/web",))
    metric = next(each for each in METRICS if each.name == "reconciler_resource_replicas")
    assert dict(metric.samples(scrape)) == {("workload/shop/web", "here", "Ready"): 2}


def test_no_metric_names_a_resource_or_shows_a_secret(site: ApiSite) -> None:
    text = page(site)
    assert not [each for each in ("hunter2", "shop", "web-edits", "ann@example.com", '"db"') if each in text]


def test_viewers_read_metrics_and_callers_without_a_credential_do_not(site: ApiSite) -> None:
    assert site.client(READER_PEER).request("GET", "/metrics").status_code == 200
    assert site.client(None).request("GET", "/metrics").status_code == 401


def test_a_waiting_request_has_an_age(site: ApiSite) -> None:
    records = Records.open(site.state / FILE, clock_now=lambda: site.clock.now() - 90)
    number = records.requests.add("sync", {}, "ann")
    try:
        found = samples(site)
    finally:
        records.requests.record_result(number, {})
        records.close()
    assert found["reconciler_requests_waiting"] == {(): 1}
    assert found["reconciler_request_oldest_age_seconds"] == {(): pytest.approx(90)}


def test_promtool_accepts_the_page(site: ApiSite) -> None:
    command = [tool("promtool", "prometheus"), "check", "metrics"]
    checked = subprocess.run(command, input=page(site), capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
