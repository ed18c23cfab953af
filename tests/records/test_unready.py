"""What is not ready: found by what it is, and the same as a comparison of everything."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model.record import Health
from reconciler.records.store import Records
from tests.records.samples import entry, record
from tests.support.examples import examples

KEYS = st.sampled_from(["gvc/a", "gvc/b", "workload/a/x", "workload/a/y", "secret/s"])
DIGESTS = st.sampled_from(["d1", "d2", "d3"])
SOURCES = st.sampled_from(["main", "other"])
PLACES = st.sampled_from(["east", "west"])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("want"), KEYS, SOURCES, DIGESTS),
        st.tuples(st.just("drop"), KEYS, SOURCES, DIGESTS),
        st.tuples(st.just("apply"), KEYS, PLACES, DIGESTS),
        st.tuples(st.just("see"), KEYS, PLACES, st.sampled_from(Health)),
        st.tuples(st.just("remove"), KEYS, PLACES, DIGESTS),
    ),
    max_size=25,
)
ALL_OF_IT = """SELECT key FROM inventory WHERE health NOT IN (SELECT value FROM json_each(?1)) AND ?2 IN ('', source)
    UNION SELECT key FROM desired WHERE ?2 IN ('', source) AND NOT EXISTS
    (SELECT 1 FROM applied WHERE applied.key = desired.key AND applied.digest = desired.digest) ORDER BY key"""
GOOD = '["' + '","'.join(health for health in Health if health.is_good) + '"]'


@settings(max_examples=examples(150), deadline=None)
@given(CHANGES)
def test_what_is_not_ready_is_what_a_comparison_of_everything_finds(changes: list[tuple[str, str, str, str]]) -> None:
    records = Records.open(None)
    for change, key, where, what in changes:
        if change == "want":
            records.desired.replace(where, [], [entry(key, f"{what}.yaml", source=where, digest=what)])
        elif change == "drop":
            records.desired.replace(where, [key], [])
        elif change == "apply":
            records.applied.put(record(key, where, digest=what))
        elif change == "see":
            records.applied.update_seen(key, where, Health(what), b"{}")
        else:
            records.applied.remove([(key, where)])
    for source in ("", "main", "other"):
        rows = records._database.all(ALL_OF_IT, (GOOD, source))
        assert records.list_unready(source) == [key for (key,) in rows]
    records.close()


def test_the_question_what_is_not_ready_reads_no_index_of_everything(records: Records) -> None:
    asked: list[str] = []
    records._database._connection.set_trace_callback(asked.append)
    records.list_unready()
    records._database._connection.set_trace_callback(None)
    (sql,) = asked
    plan = [row[3] for row in records._database.all(f"EXPLAIN QUERY PLAN {sql}")]
    scans = [line for line in plan if line.startswith("SCAN")]
    assert scans == ["SCAN inventory USING INDEX inventory_unwell"], plan
