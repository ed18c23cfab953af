"""What counts as drift, what may be ignored, and the snippet of settings for it."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.gvc_resolution import resource_of
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.drift_policy import Ignore
from reconciler.model.key import PLACED, Key
from reconciler.model.record import Health, Record
from reconciler.model.resource import Resource
from reconciler.planning.drift import (
    Drift,
    DriftKind,
    ObservedState,
    describe_drift,
    drift_of,
    encode_drift,
    format_ignore_settings,
    path_matches,
    without_ignored,
)
from reconciler.planning.drift import (
    parse_drift as unpack_block,
)
from reconciler.planning.plan import ChangeClass, FieldChange
from tests.support.cases import cases
from tests.support.pace import in_time


def _resource(text: str) -> Resource:
    decoded = decode_manifests(text.encode(), ManifestContext("acme", "platform", bytes(32)))
    assert not decoded.faults, decoded.faults
    return resource_of(decoded.manifests[0], "shop", "shop/all.yaml", "")


def _drift(case: dict[str, Any]) -> Drift | None:
    applied = _resource(case["applied"])
    place = "here" if applied.key.kind in PLACED else ""
    record = Record(applied.key, place, "main", applied.digest, applied.body, 1, "ledger", Health.HEALTHY)
    there = None
    if case["there"] != "missing":
        other = _resource(case["there"])
        body = b"" if case.get("knows") == "digest" else other.body
        there = ObservedState(other.digest, case.get("version", 1), body)
    drift = drift_of(record, there)
    rules = [Ignore(rule["key"], rule.get("path", "")) for rule in case.get("ignore", [])]
    return None if drift is None else without_ignored(drift, record.body, rules)


@pytest.mark.parametrize("case", cases("planning/drift.yaml"))
def test_drift_is_as_its_case_expects(case: dict[str, Any]) -> None:
    drift = _drift(case)
    assert ("" if drift is None else describe_drift(drift)) == case["difference"]
    if "back" in case:
        assert drift is not None
        assert [f"{change.path} {change.before} {change.after}" for change in drift.changes] == case["back"]
    if drift is not None:
        assert unpack_block(encode_drift(drift)) == drift


def test_the_snippet_lets_be_just_what_it_was_made_from() -> None:
    web, db = Key.parse("workload/shop/web"), Key.parse("secret/db")
    change = FieldChange('tags["it\'s"]', "a", "b", ChangeClass.IN_PLACE)
    drifts = [
        Drift(web, "here", DriftKind.CHANGED, "d", (change,)),
        Drift(web, "there", DriftKind.CHANGED, "d", (change,)),
        Drift(db, "", DriftKind.MISSING),
    ]
    assert format_ignore_settings(drifts) == [
        "drift:",
        "  ignore:",
        "    - {key: workload/shop/web, path: 'tags[\"it''s\"]'}",
        "    - {key: secret/db}",
    ]
    rules = [Ignore("workload/shop/web", change.path), Ignore("secret/db")]
    assert [without_ignored(drift, b"{}", rules) for drift in drifts] == [None, None, None]
    assert format_ignore_settings([]) == []


@pytest.mark.parametrize(
    ("path", "field", "covered"),
    [
        ("spec", "spec.type", True),
        ("spec", "spec", True),
        ("spec.type", "spec", False),
        ("spec.containers[main]", "spec.containers[main2].image", False),
        ("spec.*.image", "spec.containers[main].image", False),
        ("spec.containers[*].image", "spec.containers[main].image", True),
        ("*", "tags.team", True),
        ("spec.(x|y", "spec.x", False),
    ],
)
def test_a_path_covers_itself_and_what_is_below(path: str, field: str, covered: bool) -> None:
    assert path_matches(path, field) is covered


def test_a_path_of_many_stars_takes_no_time() -> None:
    assert in_time(lambda: path_matches("tags." + "*a" * 30 + "*b", "tags." + "a" * 250), 1.0)[0] is False
    assert in_time(lambda: path_matches("tags." + "*a" * 30, "tags." + "a" * 250), 1.0)[0] is True
    assert path_matches("*.*s[*].image", "spec.containers[main].image")
