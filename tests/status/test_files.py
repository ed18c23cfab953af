"""The documents on the status branch: golden files, and what holds for any of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.reader import parse_documents
from reconciler.documents.schema.validator import get_checker
from reconciler.model.key import GVC_SCOPED, Key, Kind
from reconciler.model.record import Health
from reconciler.reasons import ConditionType, Reason
from reconciler.records.tables.sources import SourceRow
from reconciler.status.branch.layout import StatusLayout
from reconciler.status.conditions import ResourceFacts, WaitReason, compute_conditions, make_condition
from reconciler.status.overview import SourceOverview, render_readme, run_file, unready_in
from reconciler.status.render import resource_file
from tests.status.samples import API, COMMIT, SHOP, deployment, failure, record
from tests.support.pace import on_quiet_machine

SERVED = b"""{"locations": [{"location": "local", "endpoints": [
    {"url": "http://*.shop.example"}, {"url": "https://shop.example", "certificateExpires": "2026-03-31T00:00:00Z"}],
    "conditions": [{"type": "CertificateExpiring", "reason": "CertificateExpiring", "message": "it expires"}]}]}"""
GOLDEN = Path(__file__).parent / "golden"

WELL = ResourceFacts(
    API,
    "main",
    "d1",
    "shop/api.yaml",
    records=(
        record(location="gcp-us-east1", version=3, state=deployment(2, 2)),
        record(location="aws-us-west-2", version=2, state=deployment(1, 2, version=2), health=Health.LOADING),
    ),
)
GVC = ResourceFacts(
    SHOP, "main", "d1", "gvc.yaml", records=(record(SHOP, alias="a1b2c3d4e5f60"),), members=(Health.UNHEALTHY,)
)
FAILED = ResourceFacts(
    API,
    "main",
    "d1",
    "shop/api.yaml",
    failures=(failure(retry=False, message='no image "shop/api:2"\n| not found\x07 <b>bold</b> [x](http://y)'),),
    unbound=("tokyo",),
)
VOLUMES = ResourceFacts(
    Key.parse("volumeset/shop/db"),
    "main",
    records=(
        record("volumeset/shop/db", "local", state=b'{"name": "local", "volumes": [{"index": 0}, {"index": 1}]}'),
    ),
    wait=WaitReason(Reason.APPROVAL_REQUIRED, "waits for approval, since it deletes volumes: reconciler approve abc"),
)
DOMAIN = ResourceFacts(
    Key.parse("domain/shop.example"),
    "main",
    "d1",
    "shop/domain.yaml",
    records=(record("domain/shop.example", state=SERVED),),
)
status_path = StatusLayout(None).path
COUNTS = {
    (Kind.GVC, Health.HEALTHY): 2,
    (Kind.WORKLOAD, Health.HEALTHY): 10,
    (Kind.WORKLOAD, Health.LOADING): 1,
    (Kind.SECRET, Health.HEALTHY): 3,
}
TROUBLED = SourceOverview(
    "main",
    COMMIT,
    COUNTS,
    (
        make_condition(ConditionType.READY, False, Reason.STEPS_FAILED, "workload/shop/api: no image"),
        make_condition(ConditionType.SOURCE_REACHABLE, True, Reason.FETCHED),
        make_condition(ConditionType.SOURCE_STALE, False, Reason.FETCHED),
    ),
    102,
    [FAILED, VOLUMES],
    SourceRow("main", "main", "1" * 40, "2" * 40, "", "Ann <Lee>", "Let *the* API grow", 1_790_000_000),
    [WELL, FAILED],
)
EMPTY = SourceOverview("main", "", {})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("workload.yaml", resource_file(WELL)),
        ("domain.yaml", resource_file(DOMAIN)),
        ("gvc.yaml", resource_file(GVC)),
        ("failed.yaml", resource_file(FAILED)),
        ("volumeset.yaml", resource_file(VOLUMES)),
        ("reconciler.yaml", run_file(TROUBLED)),
        ("README.md", render_readme(TROUBLED, status_path)),
        ("empty.yaml", run_file(EMPTY)),
        ("empty.md", render_readme(EMPTY, status_path)),
    ],
)
def test_a_document_is_written_as_it_was(name: str, content: bytes) -> None:
    assert content.decode() == (GOLDEN / name).read_text()


def parsed(content: bytes, schema: str) -> Any:
    reading = parse_documents(content)
    assert reading.faults == []
    value = reading.documents[0].value
    assert get_checker(schema).valid(value), value
    return value


@pytest.mark.parametrize("facts", [WELL, GVC, FAILED, VOLUMES])
def test_a_status_file_matches_its_schema(facts: ResourceFacts) -> None:
    document = parsed(resource_file(facts), "status")
    assert document["key"] == str(facts.key)
    assert document["health"] == facts.health
    shown = [(each["type"], each["status"], each["reason"]) for each in document["conditions"]]
    assert shown == [(each.type, each.status, each.reason) for each in compute_conditions(facts)]


@pytest.mark.parametrize("overview", [TROUBLED, EMPTY])
def test_the_file_of_the_source_matches_its_schema(overview: SourceOverview) -> None:
    found = parsed(run_file(overview), "run-status")
    assert found["notReady"] == overview.unready == unready_in(run_file(overview))
    assert found["resources"] == overview.total


def test_a_file_without_the_number_of_unready_resources_gives_none() -> None:
    assert unready_in(None) is None
    assert unready_in(b"by: hand\n") is None


NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=[]), max_size=40)


@given(TEXT, TEXT, TEXT, NAMES)
def test_any_text_reads_back_and_stays_one_scalar(message: str, revision: str, path: str, name: str) -> None:
    found = record(Key(Kind.WORKLOAD, name, name), "here", revision=revision)
    facts = ResourceFacts(found.key, "no", "d1", path, (found,), (failure(found.key, message=message),))
    value = parsed(resource_file(facts).replace(b'revision: ""', b'revision: "?"'), "status")
    assert value["source"] == "no"
    assert value["key"] == f"workload/{name}/{name}"
    assert len(value["conditions"]) == 2


@given(TEXT)
def test_no_message_can_break_out_of_its_row(message: str) -> None:
    facts = ResourceFacts(API, "main", "d1", failures=(failure(message=message),))
    shown = render_readme(SourceOverview("main", COMMIT, COUNTS, unready=1, not_ready=[facts]), status_path).decode(
        errors="replace"
    )
    rows = [line for line in shown.split("\n") if line.startswith("| [")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 4


def test_at_most_a_hundred_resources_are_listed_and_the_rest_is_counted() -> None:
    many = [ResourceFacts(Key(Kind.SECRET, "", f"s{n}"), "main", "d1") for n in range(120)]
    shown = render_readme(SourceOverview("main", COMMIT, COUNTS, unready=500, not_ready=many), status_path).decode()
    assert shown.count("(_org/secret/s") == 100
    assert "\n\nand 400 more\n" in shown


@given(st.builds(Key, st.sampled_from(sorted(GVC_SCOPED)), st.text(min_size=1), st.text(min_size=1)))
def test_no_name_leads_out_of_its_directory(key: Key) -> None:
    parts = status_path(key).split("/")
    assert len(parts) == 3
    assert all(part and not part.startswith(".") and part.isascii() and part.isprintable() for part in parts)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("workload/shop/api", "shop/workload/api.yaml"),
        ("gvc/shop", "_org/gvc/shop.yaml"),
        ("user/ada@example.com", "_org/user/ada@example.com.yaml"),
        ("image/api:1.2", "_org/image/api%3A1.2.yaml"),
    ],
)
def test_files_lie_by_gvc_and_kind(key: str, path: str) -> None:
    assert status_path(Key.parse(key)) == path


def test_fifty_workloads_are_listed_and_the_rest_is_counted() -> None:
    many = [record(Key(Kind.WORKLOAD, "shop", f"w{n}"), "here") for n in range(60)]
    facts = [ResourceFacts(each.key, "main", "d1", records=(each,)) for each in many]
    overview = SourceOverview("main", COMMIT, {(Kind.WORKLOAD, Health.HEALTHY): 60}, workloads=facts)
    shown = render_readme(overview, status_path).decode()
    assert shown.count("(shop/workload/w") == 50
    assert "\n\nand 10 more\n" in shown


@given(TEXT, TEXT)
def test_no_subject_or_author_is_markup(subject: str, author: str) -> None:
    commit = SourceRow("main", "main", "1" * 40, "2" * 40, "", f"[x](y){author}", f"<b>**a**\n# {subject}", 1)
    lines = render_readme(SourceOverview("main", COMMIT, {}, commit=commit), status_path).decode().splitlines()
    assert [line[:2] for line in lines if line].count("# ") == 1
    assert not any("<b>" in line or "[x](y)" in line for line in lines)


def test_nothing_of_a_body_is_shown() -> None:
    secret = record("secret/db", body=b'{"data": {"password": "hunter2"}}', state=b'{"data": "hunter2"}')
    assert b"hunter2" not in resource_file(ResourceFacts(secret.key, "main", "d1", records=(secret,)))


def test_a_state_of_another_shape_is_left_out() -> None:
    odd = record(location="here", state=b'{"status": "fine", "volumes": 3}')
    found = parsed(resource_file(ResourceFacts(API, "main", "d1", records=(odd,))), "status")
    assert found["locations"] == [{"location": "here", "engine": "recorded", "health": "Healthy", "version": 3}]


def test_the_order_of_the_records_does_not_matter() -> None:
    turned = msgspec.structs.replace(WELL, records=WELL.records[::-1])
    assert resource_file(turned) == resource_file(WELL)


def test_a_hundred_thousand_files_take_seconds() -> None:
    best = min(on_quiet_machine(_timed(WELL)) for _ in range(5))
    assert best < 200e-6  # CPU seconds, and twice what a quiet machine needs


def _timed(facts: ResourceFacts) -> float:
    start = time.process_time()
    for _ in range(500):
        resource_file(facts)
    return (time.process_time() - start) / 500


@pytest.mark.parametrize("kind", ConditionType)
@pytest.mark.parametrize("status", [True, False])
def test_the_page_for_people_lists_the_conditions_that_are_not_as_they_should_be(
    kind: ConditionType, status: bool
) -> None:
    shown = render_readme(
        SourceOverview("main", COMMIT, COUNTS, (make_condition(kind, status, Reason.ERROR, "so it is"),)), status_path
    ).decode()
    assert ("**Error** so it is" in shown) is (status is kind.abnormal)
    normal = {"Ready", "Placed", "SourceReachable", "StatusPushed", "SettingsLoaded", "Notifying", "BackedUp"}
    assert {each for each in ConditionType if not each.abnormal} == normal
