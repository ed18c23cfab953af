"""Fields, quantities and events of objects, also of those that no cluster should send."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from reconciler.engines.kubernetes.status.events import find_event, index_events, list_events
from reconciler.engines.kubernetes.status.fields import parse_quantity, read_message, read_seconds, read_version
from reconciler.engines.kubernetes.status.readiness import compute_readiness
from tests.engines.kubernetes.status.test_status_cases import FOLDERS, case_of, volumes_result, workload_result

MALFORMED = (None, [], {}, "", "2026-99-99T00:00:00Z", -1, [None], [[]], True)
DAMAGED = [
    "cron-failing",
    "image-not-found",
    "liveness-failing",
    "rollout-paused",
    "claim-without-storage-class",
    "snapshots",
]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", 0.5),
        ("2", 2.0),
        (2, 2.0),
        ("0.25", 0.25),
        ("20Gi", 20 * 2**30),
        ("20G", 20e9),
        ("128Mi", 2**27),
        ("1e3", 1000.0),
        ("12E", 12e18),
        ("3Ei", 3 * 2**60),
        ("183216842n", 0.183216842),
        ("250u", 0.00025),
        ("98304Ki", 98304 * 1024),
        ("", 0.0),
        ("nan", 0.0),
        ("inf", 0.0),
        ("Gi", 0.0),
        ("1e999", 0.0),
        (None, 0.0),
        (True, 0.0),
        ("1.5.2", 0.0),
        ([], 0.0),
    ],
)
def test_a_quantity_is_a_number(text: object, number: float) -> None:
    assert parse_quantity(text) == pytest.approx(number)


def test_a_text_of_the_cluster_is_one_safe_and_short_line() -> None:
    message = read_message({"message": "first\nsecond \x1b[31m" + "x" * 1000}, "message")
    assert message.startswith("first second \\u001b[31mxxx")
    assert len(message) == 500


def test_a_time_with_microseconds_is_read() -> None:
    assert read_seconds({"at": "1970-01-01T00:01:40.500000Z"}, "at") == 100.5
    assert read_seconds({"at": "yesterday"}, "at") == 0.0


def test_the_version_is_an_annotation_or_a_label() -> None:
    name = "reconciler.dev/version"
    assert read_version({"metadata": {"annotations": {name: "7"}, "labels": {name: "6"}}}) == 7
    assert read_version({"metadata": {"labels": {name: "6"}}}) == 6
    assert read_version({"metadata": {"labels": {name: "six"}}}) == 0


def event_of(**more: Any) -> dict[str, Any]:
    """An event of v1 about the pod web."""
    return {
        "involvedObject": {"kind": "Pod", "name": "web", "uid": "u1", "fieldPath": "spec.containers{main}"},
        "reason": "Unhealthy",
        "message": "Readiness probe failed: connection refused",
        "lastTimestamp": "2026-11-28T10:00:00Z",
        "count": 3,
        **more,
    }


def test_both_apis_of_events_mean_the_same() -> None:
    newer = {
        "regarding": event_of()["involvedObject"],
        "reason": "Unhealthy",
        "note": "Readiness probe failed: connection refused",
        "eventTime": "2026-11-28T09:59:00.000000Z",
        "series": {"count": 3, "lastObservedTime": "2026-11-28T10:00:00.000000Z"},
    }
    pod = {"kind": "Pod", "metadata": {"name": "web", "uid": "u1"}}
    [old] = list_events(index_events([event_of()]), pod)
    [new] = list_events(index_events([newer]), pod)
    assert old == new
    assert (old.container, old.count) == ("main", 3)


def test_the_newest_event_comes_first_and_another_object_has_none() -> None:
    index = index_events([event_of(message="a"), event_of(message="b", lastTimestamp="2026-11-28T10:05:00Z")])
    listed = list_events(index, {"kind": "Pod", "metadata": {"name": "web"}})
    assert [event.message for event in listed] == ["b", "a"]
    assert list_events(index, {"kind": "Pod", "metadata": {"name": "web", "uid": "u2"}}) == []
    assert find_event(listed, "Unhealthy", container="other") is None


def damage_parts(part: Any) -> Iterator[tuple[Any, Any]]:
    """Every mapping and list in ``part`` with a position in it."""
    positions: Iterator[Any] = iter(part) if isinstance(part, dict) else iter(range(len(part)))
    for position in positions:
        yield part, position
        if isinstance(part[position], dict | list):
            yield from damage_parts(part[position])


@pytest.mark.parametrize("name", DAMAGED)
def test_no_malformed_object_is_an_error(name: str) -> None:
    [folder] = [folder for folder in FOLDERS if folder.name == name]
    case = case_of(folder)
    show = volumes_result if "volumeset" in case else workload_result
    live = case["volumeset" if "volumeset" in case else "live"]
    objects = [part for key, value in live.items() if key != "claimed" for part in _as_list(value)]
    positions = [position for part in objects for position in damage_parts(part)]
    for number, (part, position) in enumerate(positions):
        original = part[position]
        part[position] = copy.deepcopy(MALFORMED[number % len(MALFORMED)])
        msgspec.json.encode(show(case))
        part[position] = original
    for part in objects:
        compute_readiness(part)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
