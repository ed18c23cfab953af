"""What counts as ready, at work and stuck."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import SourceUnreachable
from reconciler.model.record import Health
from reconciler.printable import truncate_text
from reconciler.reasons import Reason
from reconciler.status.conditions import (
    ResourceFacts,
    WaitReason,
    compute_conditions,
    condition_from_error,
    ready,
)
from reconciler.status.rollup import find_worst_health
from tests.status.samples import API, SHOP, failure, record

WAITS_FOR_APPROVAL = WaitReason(Reason.APPROVAL_REQUIRED, "waits for approval: reconciler approve abc")
RETAINED = WaitReason(
    Reason.RETAINED, "no longer in Git, and not deleted: the tag platform/protected keeps it", retained=True
)
HERE, THERE = record(location="here"), record(location="there")


def conditions_of(**facts: Any) -> dict[str, tuple[bool, str, str]]:
    defaults: dict[str, Any] = {"key": API, "source": "main", "digest": "d1"}
    return {
        each.type: (each.status, each.reason, each.message)
        for each in compute_conditions(ResourceFacts(**defaults | facts))
    }


def test_a_resource_is_ready_when_every_location_has_what_git_asks_for_and_is_well() -> None:
    assert conditions_of(records=(HERE, THERE)) == {"Ready": (True, "Applied", "applied at here, there")}
    assert conditions_of(key=SHOP, records=(record(SHOP),)) == {"Ready": (True, "Applied", "applied")}


def test_one_location_that_lags_behind_keeps_it_from_being_ready() -> None:
    lagging = (HERE, record(location="there", digest="d0"))
    message = "the latest change is not applied yet at there"
    assert conditions_of(records=lagging) == {
        "Ready": (False, "Pending", message),
        "Reconciling": (True, "Pending", message),
    }


def test_a_resource_that_is_not_recorded_is_pending() -> None:
    assert conditions_of()["Reconciling"] == (True, "Pending", "not applied yet")


@pytest.mark.parametrize(
    ("health", "reason", "message", "at_work"),
    [
        (Health.UNHEALTHY, "Unhealthy", "not healthy at there", False),
        (Health.UNKNOWN, "HealthUnknown", "health is not known at there", False),
        (Health.LOADING, "Loading", "loading at there", True),
        (Health.DELETING, "Deleting", "deleting at there", True),
    ],
)
def test_the_worst_location_speaks_for_the_resource(health: Health, reason: str, message: str, at_work: bool) -> None:
    found = conditions_of(records=(HERE, record(location="there", health=health)))
    assert found["Ready"] == (False, reason, message)
    assert ("Reconciling" in found) is at_work


def test_messages_of_engines_about_a_rollout_appear_in_conditions() -> None:
    far = state("1 of 2 replicas updated, 0 available")
    slow = record(location="here", health=Health.LOADING, state=far)
    message = "loading at here: 1 of 2 replicas updated, 0 available"
    found = conditions_of(records=(slow, THERE))
    assert (found["Ready"], found["Reconciling"]) == ((False, "Loading", message), (True, "Loading", message))
    ill = record(location="there", health=Health.UNHEALTHY, state=state("api-x:\n main: ended with 3 (Error)"))
    silent = record(location="far", health=Health.UNHEALTHY, state=b"[]")
    message = "not healthy at far; there: api-x: main: ended with 3 (Error)"
    assert conditions_of(records=(slow, ill, silent))["Ready"] == (False, "Unhealthy", message)
    endless = record(location="here", health=Health.UNHEALTHY, state=state("x" * 900))
    assert len(conditions_of(records=(endless,))["Ready"][2]) == 500


def test_unenforced_limits_are_a_condition_and_do_not_prevent_ready() -> None:
    one = [record(location=place, state=state("", "no limits")) for place in ("there", "here")]
    other = record(location="far", state=state("", "no limits; no firewall"))
    conditions = conditions_of(records=(*one, other))
    assert conditions["Ready"][0]
    message = "at here, there: no limits; at far: no limits; no firewall"
    assert conditions["NotEnforced"] == (True, "NotEnforced", message)
    assert "NotEnforced" not in conditions_of(records=(record(location="here", state=state('"NotEnforced"')),))


def state(message: str, lacking: str = "") -> bytes:
    """A deployment with the message of its engine, and what it lacks."""
    expected = [{"type": "NotEnforced", "reason": "NotEnforced", "message": lacking}] if lacking else []
    status = {"message": message, "conditions": [{"type": "Other", "message": "no"}, *expected]}
    return json.dumps({"name": "here", "status": status}).encode()


def test_a_failure_that_is_tried_again_is_work_under_way() -> None:
    conditions = conditions_of(records=(HERE,), failures=(failure(location="there"),))
    assert conditions["Ready"] == (False, "ProgramNotFound", "at there: no such image")
    assert "Stalled" not in conditions
    assert conditions["Reconciling"][0]


@pytest.mark.parametrize("fields", [{"retry": False}, {"attempts": 3}, {"attempts": 40}])
def test_a_failure_that_will_not_mend_itself_is_stalled(fields: dict[str, Any]) -> None:
    found = conditions_of(failures=(failure(location="a"), failure(location="b", reason=Reason.NO_COMMAND, **fields)))
    assert found["Stalled"] == (True, "NoCommand", "at b: no such image")
    assert "Reconciling" not in found


def test_without_a_limit_of_attempts_only_what_cannot_be_tried_again_is_stalled() -> None:
    assert "Stalled" not in conditions_of(failures=(failure(attempts=99),), attempts=0)


def test_a_resource_that_waits_names_the_reason() -> None:
    assert conditions_of(digest="", records=(HERE,), wait=WAITS_FOR_APPROVAL)["Ready"] == (
        False,
        WAITS_FOR_APPROVAL.reason,
        WAITS_FOR_APPROVAL.message,
    )
    assert conditions_of(digest="", records=(HERE,), wait=WAITS_FOR_APPROVAL)["Reconciling"][0]


def test_a_retained_resource_stays_ready_and_names_the_reason() -> None:
    assert conditions_of(digest="", records=(HERE,), wait=RETAINED) == {"Ready": (True, "Retained", RETAINED.message)}
    ill = (record(location="here", health=Health.UNHEALTHY),)
    assert conditions_of(digest="", records=ill, wait=RETAINED)["Ready"][1] == "Unhealthy"


def test_a_resource_that_left_git_is_to_be_deleted() -> None:
    assert conditions_of(digest="", records=(HERE,))["Reconciling"] == (
        True,
        "Deleting",
        "no longer in Git; to be deleted",
    )


def test_an_unbound_location_is_reported_and_does_not_prevent_ready() -> None:
    found = conditions_of(records=(HERE,), unbound=("there",))
    assert found["Ready"][0]
    assert found["Placed"] == (False, "LocationNotBound", "this host binds no location there")


def test_a_resource_without_a_bound_location_is_not_ready() -> None:
    found = conditions_of(records=(record(),), unbound=("there", "tokyo"))
    assert found["Ready"] == (False, "LocationNotBound", "this host binds no location there, tokyo")
    assert "Reconciling" not in found


def test_a_deleted_resource_has_no_conditions() -> None:
    assert conditions_of(digest="") == {}
    assert conditions_of(digest="", failures=(failure(),)) == {}


def test_an_error_becomes_a_condition_on_one_line_of_bounded_length() -> None:
    condition = condition_from_error("SourceReachable", SourceUnreachable("no\nanswer " + "x" * 900))
    assert (condition.type, condition.status, condition.reason) == ("SourceReachable", False, "SourceUnreachable")
    assert condition.message.startswith("no answer xxx")
    assert len(condition.message) == 500


RECORDS = st.builds(
    record,
    location=st.sampled_from(["", "a", "b"]),
    digest=st.sampled_from(["d1", "d0"]),
    health=st.sampled_from(Health),
)
FACTS = st.builds(
    ResourceFacts,
    key=st.just(API),
    source=st.just("main"),
    digest=st.sampled_from(["", "d1"]),
    records=st.lists(RECORDS, max_size=3).map(tuple),
    failures=st.lists(st.builds(failure, attempts=st.integers(1, 5), retry=st.booleans()), max_size=2).map(tuple),
    wait=st.sampled_from([None, WAITS_FOR_APPROVAL, RETAINED]),
    unbound=st.sampled_from([(), ("b",)]),
)


@given(FACTS)
def test_conditions_never_contradict_each_other(facts: ResourceFacts) -> None:
    conditions = {compute_condition.type: compute_condition for compute_condition in compute_conditions(facts)}
    assert bool(conditions) is facts.exists
    if not conditions:
        return
    is_ready = conditions["Ready"].status
    assert is_ready is ready(facts)
    assert not (is_ready and {"Reconciling", "Stalled"} & conditions.keys())
    assert not {"Reconciling", "Stalled"} <= conditions.keys()
    if is_ready:
        assert not facts.failures
        assert all(each.health.is_good for each in facts.records)
        assert all(each.digest == facts.digest for each in facts.records) or facts.wait == RETAINED


def test_health_rolls_up_to_the_worst() -> None:
    order = [Health.UNHEALTHY, Health.UNKNOWN, Health.LOADING, Health.DELETING, Health.HEALTHY]
    for one, other in product(order, order):
        assert find_worst_health((one, other)) is order[min(order.index(one), order.index(other))]
    assert find_worst_health(()) is Health.UNKNOWN
    gvc = ResourceFacts(SHOP, "main", "d1", records=(record(SHOP),), members=(Health.HEALTHY, Health.LOADING))
    assert gvc.health is Health.LOADING


def test_short_text_stays_as_it_is() -> None:
    assert truncate_text("a  b\tc") == "a b c"
