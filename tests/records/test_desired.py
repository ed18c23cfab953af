"""The index of desired resources."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.records.store import Records
from reconciler.records.tables.desired import DesiredEntry
from tests.records.samples import entry
from tests.support.examples import examples

SHOP = (
    entry("gvc/shop", "shop/gvc.yaml", "location/local"),
    entry("identity/shop/api", "shop/api/identity.yaml", "gvc/shop"),
    entry("workload/shop/api", "shop/api/all.yaml", "gvc/shop", "identity/shop/api", position=1),
    entry("volumeset/shop/db", "shop/api/all.yaml", "gvc/shop"),
    entry("workload/shop-2/api", "other.yaml"),
    entry("gvc/root", "gvc.yaml"),
    entry("secret/db", "shop/db.yaml"),
)


def loaded(records: Records) -> Records:
    records.desired.replace("main", [], SHOP)
    return records


def test_the_entries_of_a_file_come_in_the_order_of_the_file(records: Records) -> None:
    found = loaded(records).desired.at_paths("main", ["shop/api/all.yaml", "gvc.yaml", "nowhere.yaml"])
    assert [one.key for one in found] == ["gvc/root", "volumeset/shop/db", "workload/shop/api"]
    assert records.desired.at_paths("other", ["gvc.yaml"]) == []


def test_referrers_of_a_resource_follow_every_change(records: Records) -> None:
    desired = loaded(records).desired
    assert desired.referrers("gvc/shop") == ["identity/shop/api", "volumeset/shop/db", "workload/shop/api"]
    workloads = desired.referrers_by_target(["gvc/shop", "identity/shop/api", "gvc/none"], "workload")
    assert workloads == {
        "gvc/shop": ["workload/shop/api"],
        "identity/shop/api": ["workload/shop/api"],
    }
    both = desired.referrers_of_any(["gvc/shop", "identity/shop/api", "gvc/none"])
    assert both == desired.referrers("gvc/shop")
    assert desired.select_referred(["gvc/shop", "gvc/none", "workload/shop/api"]) == {"gvc/shop"}
    assert [one.target for one in desired.references("workload/shop/api")] == ["gvc/shop", "identity/shop/api"]
    desired.replace("main", ["volumeset/shop/db"], [entry("workload/shop/api", "moved.yaml", "secret/db")])
    assert desired.referrers("gvc/shop") == ["identity/shop/api"]
    assert desired.referrers("secret/db") == ["workload/shop/api"]
    assert desired.references("volumeset/shop/db") == ()
    assert desired.get("volumeset/shop/db") is None


def test_a_gvc_belongs_to_the_directory_it_is_declared_in(records: Records) -> None:
    desired = loaded(records).desired
    assert desired.gvcs_in("main", "shop") == ["shop"]
    assert desired.gvcs_in("main", "") == ["root"]
    assert desired.gvcs_in("main", "shop/api") == []
    assert desired.gvcs_in("other", "shop") == []


def test_files_below_a_directory_do_not_include_its_neighbours(records: Records) -> None:
    desired = loaded(records).desired
    desired.replace("main", [], [entry("secret/next", "shop-2/s.yaml")])
    assert desired.paths_below("main", "shop") == [
        "shop/api/all.yaml",
        "shop/api/identity.yaml",
        "shop/db.yaml",
        "shop/gvc.yaml",
    ]
    assert len(desired.paths_below("main", "")) == 7


def test_members_of_a_gvc_are_found_by_key_and_not_by_a_similar_name(records: Records) -> None:
    assert loaded(records).desired.keys_of_gvc("shop") == [
        "identity/shop/api",
        "volumeset/shop/db",
        "workload/shop/api",
    ]


def test_a_key_that_another_source_took_over_is_not_removed_by_the_first(records: Records) -> None:
    desired = loaded(records).desired
    desired.replace("other", [], [entry("secret/db", "db.yaml", "gvc/shop", source="other")])
    desired.replace("main", ["secret/db", "gvc/root"], [])
    assert (desired.count("main"), desired.count("other")) == (5, 1)
    assert "secret/db" in desired.referrers("gvc/shop")
    assert [key for key, _ in desired.scan("other")] == ["secret/db"]


def test_a_scan_comes_in_the_order_of_the_keys_of_the_applied_records(records: Records) -> None:
    keys = [key for key, _ in loaded(records).desired.scan()]
    assert keys == sorted(one.key for one in SHOP)


def test_a_scan_goes_on_while_others_write(records: Records) -> None:
    seen = []
    for key, digest in loaded(records).desired.scan("main"):
        records.status_queue.add_many("main", [key])
        seen.append((key, digest))
    assert len(seen) == len(SHOP)


KEYS = st.sampled_from(["gvc/a", "gvc/b", "workload/a/x", "workload/a/y", "workload/b/x", "secret/s"])
SOURCES = st.sampled_from(["main", "other"])
ADDED = st.lists(
    st.tuples(KEYS, st.sampled_from(["a.yaml", "d/b.yaml", "d/e/c.yaml"]), st.lists(KEYS, max_size=3)), max_size=5
)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.tuples(SOURCES, st.lists(KEYS, max_size=4), ADDED), max_size=6))
def test_replace_does_what_a_dict_does(
    changes: list[tuple[str, list[str], list[tuple[str, str, list[str]]]]],
) -> None:
    records = Records.open(None)
    model: dict[str, DesiredEntry] = {}
    for source, removed, added in changes:
        entries = [entry(key, path, *targets, source=source) for key, path, targets in added]
        records.desired.replace(source, removed, entries)
        model = {key: one for key, one in model.items() if key not in removed or one.source != source}
        model |= {one.key: one for one in entries}
    assert list(records.desired.scan()) == [(key, one.digest) for key, one in sorted(model.items())]
    for key in ["gvc/a", "gvc/b", "workload/a/x", "workload/a/y", "workload/b/x", "secret/s"]:
        assert records.desired.get(key) == model.get(key)
        referring = {one.key for one in model.values() for reference in one.references if reference.target == key}
        assert records.desired.referrers(key) == sorted(referring)
    for source in ("main", "other"):
        assert records.desired.count(source) == sum(one.source == source for one in model.values())
    records.close()
