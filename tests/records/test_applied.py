"""The applied records, and the counts of them."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model.key import Key, Kind
from reconciler.model.record import Health
from reconciler.records.store import Records
from reconciler.records.tables.applied import WORST_FIRST
from tests.records.samples import record
from tests.support.examples import examples


def test_a_record_is_replaced_at_its_location_only(records: Records) -> None:
    api = Key.parse("workload/shop/api")
    records.applied.put_many([record(str(api), "west"), record(str(api), "east")])
    records.applied.put(record(str(api), "west", digest="d2"))
    assert [(one.location, one.digest) for one in records.applied.get(api)] == [("east", "d1"), ("west", "d2")]
    assert records.applied.get_many([api, "gvc/none"]) == {str(api): records.applied.get(str(api))}
    without = tuple(msgspec.structs.replace(one, body=b"{}") for one in records.applied.get(api))
    assert records.applied.get_many([api], bodies=False) == {str(api): without}


def test_bodies_are_those_of_the_wanted_digests(records: Records) -> None:
    web = msgspec.structs.replace(record("workload/shop/web", "west", digest="d2"), body=b'{"a":1}')
    records.applied.put_many([record("workload/shop/web", "east"), web, record("secret/s"), record("gvc/shop")])
    wanted = {"workload/shop/web": "d2", "secret/s": "d1", "gvc/shop": "d2", "gvc/none": "d1"}
    assert records.applied.bodies(wanted) == {"workload/shop/web": b'{"a":1}', "secret/s": record("secret/s").body}


def test_observed_state_does_not_change_the_applied_fields(records: Records) -> None:
    records.applied.put(record("workload/shop/api", "west"))
    records.applied.update_seen("workload/shop/api", "west", Health.UNHEALTHY, b"{}")
    records.applied.update_seen("workload/shop/api", "north", Health.UNHEALTHY, b"{}")
    (one,) = records.applied.get("workload/shop/api")
    assert (one.health, one.state, one.digest, one.version) == (Health.UNHEALTHY, b"{}", "d1", 3)
    assert records.applied.counts() == {(Kind.WORKLOAD, Health.UNHEALTHY): 1}


def test_a_resource_is_gone_with_its_last_location(records: Records) -> None:
    for location in ("west", "east", "north"):
        records.applied.put(record("workload/shop/api", location))
    records.applied.remove([("workload/shop/api", "west")])
    assert (records.applied.exists("workload/shop/api"), records.applied.inventory("main")) == (True, 1)
    records.applied.remove([("workload/shop/api", "east"), ("workload/shop/api", "north")])
    assert (records.applied.exists("workload/shop/api"), records.applied.inventory("main")) == (False, 0)
    assert records.applied.counts() == {}


def test_scans_stream_in_order_of_key_and_location(records: Records) -> None:
    put = [("workload/a/x", "west"), ("workload/a/x", "east"), ("workload/a-b/x", "west"), ("gvc/a", "")]
    records.applied.put_many([record(key, location) for key, location in put])
    records.applied.put(record("gvc/z", source="other"))
    assert [row[:2] for row in records.applied.scan("main")] == sorted(put)
    assert next(records.applied.scan("other")) == ("gvc/z", "", "d1", "recorded")
    assert len(list(records.applied.scan())) == 5


ALL = ["gvc/shop", "identity/shop/api", "secret/api", "workload/blog/api", "workload/shop/api", "workload/shop/web"]


@pytest.mark.parametrize(
    ("kind", "gvc", "name", "limit", "expected"),
    [
        (None, None, None, None, ALL),
        (None, None, None, 2, ALL[:2]),
        (Kind.WORKLOAD, None, None, None, ALL[3:]),
        (Kind.WORKLOAD, "shop", None, None, ALL[4:]),
        (Kind.WORKLOAD, "shop", "api", None, ["workload/shop/api"]),
        (Kind.WORKLOAD, None, "api", None, ["workload/blog/api", "workload/shop/api"]),
        (None, "shop", None, None, ["identity/shop/api", "workload/shop/api", "workload/shop/web"]),
        (None, None, "api", None, ["identity/shop/api", "secret/api", "workload/blog/api", "workload/shop/api"]),
        (Kind.GVC, None, "shop", None, ["gvc/shop"]),
        (Kind.WORKLOAD, None, "pi", None, []),
        (Kind.WORKLOAD, None, "%", None, []),
    ],
)
def test_records_are_listed_by_kind_gvc_and_name(
    records: Records, kind: Kind | None, gvc: str | None, name: str | None, limit: int | None, expected: list[str]
) -> None:
    records.applied.put_many([record(key) for key in ALL])
    assert [str(one.key) for one in records.applied.items(kind, gvc, name, limit)] == expected


def test_members_of_a_gvc_are_known_without_their_bodies(records: Records) -> None:
    records.applied.put_many([record(key) for key in ALL])
    assert records.applied.keys_of_gvc("shop") == ["identity/shop/api", "workload/shop/api", "workload/shop/web"]


def test_a_resource_counts_once_with_the_worst_health_of_its_locations(records: Records) -> None:
    for better, first in enumerate(WORST_FIRST):
        for second in WORST_FIRST[better:]:
            key = f"workload/{first.lower()}/{second.lower()}"
            records.applied.put_many([record(key, "a", health=first), record(key, "b", health=second)])
    counts = records.applied.counts("main")
    assert [counts[Kind.WORKLOAD, health] for health in WORST_FIRST] == [6, 5, 4, 3, 2, 1]


PLACES = st.tuples(st.sampled_from(["workload/a/x", "workload/a/y", "gvc/a"]), st.sampled_from(["", "e", "w"]))
CHANGES = st.one_of(
    st.tuples(st.just("put"), PLACES, st.sampled_from(list(Health))),
    st.tuples(st.just("seen"), PLACES, st.sampled_from(list(Health))),
    st.tuples(st.just("remove"), PLACES, st.just(Health.HEALTHY)),
)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(CHANGES, max_size=20))
def test_stored_counts_equal_computed_counts(
    changes: list[tuple[str, tuple[str, str], Health]],
) -> None:
    records = Records.open(None)
    model: dict[tuple[str, str], Health] = {}
    for change, (key, location), health in changes:
        if change == "put":
            records.applied.put(record(key, location, health=health))
            model[key, location] = health
        elif change == "seen":
            records.applied.update_seen(key, location, health, b"{}")
            model |= {(key, location): health} if (key, location) in model else {}
        else:
            records.applied.remove([(key, location)])
            model.pop((key, location), None)
    worst: dict[str, Health] = {}
    for (key, _), health in model.items():
        worst[key] = min(worst.get(key, health), health, key=WORST_FIRST.index)
    counted = Counter((Key.parse(key).kind, health) for key, health in worst.items())
    assert records.applied.counts() == counted
    assert records.applied.inventory("main") == len(worst)
    assert {str(one.key) for one in records.applied.items()} == set(worst)
    records.close()


def test_a_resource_that_changes_hands_is_counted_for_its_new_source(records: Records) -> None:
    records.applied.put(record("gvc/shop"))
    records.applied.put(record("gvc/shop", source="other"))
    assert (records.applied.inventory("main"), records.applied.inventory("other")) == (0, 1)
    assert records.applied.counts("main") == {}
