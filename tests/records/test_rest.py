"""Sources, blobs, seals, failures, journal, events, runs, requests, approvals, pending, conditions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model.key import Key
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables import commands, requests, runs
from reconciler.records.tables.commands import CommandStage, NewCommand
from reconciler.records.tables.events import NewEvent
from reconciler.records.tables.journal import NewStep
from reconciler.records.tables.sources import SourceRow
from reconciler.status.conditions import make_condition
from tests.records.samples import entry, event, failure, record
from tests.support.examples import examples


def test_a_source_that_is_forgotten_is_loaded_from_nothing(records: Records) -> None:
    for name in ("web", "main"):
        records.sources.put(SourceRow(name, "main", "c1", "t1", "s1"))
    records.sources.put(SourceRow("main", "main", "c2", "t2", "s1"))
    assert records.sources.names() == ["main", "web"]
    assert (found := records.sources.get("main")) is not None
    assert found.commit == "c2"
    records.sources.forget("main")
    assert records.sources.get("main") is None


def test_another_decoder_empties_the_cache_and_the_same_one_keeps_it(records: Records) -> None:
    records.documents.use("reader 1", keep=True)
    records.documents.put_many([("a", b"1"), ("b", b"2")])
    records.documents.use("reader 1", keep=True)
    assert records.documents.get_many(["b", "a", "c"]) == {"a": b"1", "b": b"2"}
    records.documents.use("reader 2", keep=True)
    assert records.documents.get_many(["a", "b"]) == {}


def test_a_reader_gets_no_document_of_another_decoder(records: Records) -> None:
    records.documents.use("reader 1", keep=True)
    records.documents.put_many([("a", b"1")])
    records.documents.use("reader 2", keep=False)
    assert records.documents.get_many(["a"]) == {}
    records.documents.use("reader 1", keep=False)
    assert records.documents.get_many(["a"]) == {"a": b"1"}


def test_the_cache_keeps_the_blobs_that_something_desired_comes_from(records: Records) -> None:
    records.desired.replace("main", [], [entry("gvc/shop", "shop.yaml")])
    records.documents.put_many([("blob of shop.yaml", b"1"), ("old", b"2")])
    assert records.documents.sweep() == 1
    assert records.documents.get_many(["blob of shop.yaml", "old"]) == {"blob of shop.yaml": b"1"}


def test_a_seal_lives_as_long_as_it_is_desired_or_applied(records: Records) -> None:
    records.desired.replace("main", [], [entry("secret/db", "db.yaml", digest="new")])
    records.applied.put(record("secret/db", digest="old"))
    for digest in ("oldest", "old", "new"):
        records.secret_data.put(Key.parse("secret/db"), digest, digest.encode())
    assert records.secret_data.sweep() == 1
    assert [records.secret_data.get("secret/db", digest) for digest in ("oldest", "old", "new")] == [
        None,
        b"old",
        b"new",
    ]
    records.applied.put(record("secret/db", digest="new"))
    assert records.secret_data.sweep() == 1


CANARY = b"correct horse battery staple"


def test_the_data_of_secrets_is_in_no_other_table(path: Path, records: Records) -> None:
    records.desired.replace("main", [], [entry("secret/db", "db.yaml")])
    records.secret_data.put("secret/db", "d1", b'{"password":"' + CANARY + b'"}')
    records.applied.put(record("secret/db"))
    raw = sqlite3.connect(path)
    tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    holding = {t for t in tables for row in raw.execute(f"SELECT * FROM {t}") if CANARY.decode() in str(row)}
    raw.close()
    assert holding == {"secret_data"}


def test_nothing_is_left_in_the_file_of_a_seal_that_was_swept(path: Path, records: Records) -> None:
    records.secret_data.put("secret/db", "d1", CANARY)
    records.secret_data.sweep()
    records.close()
    assert CANARY not in path.read_bytes()


def test_failures_are_due_when_their_time_has_come_and_they_may_be_tried_again(records: Records) -> None:
    later, sooner = failure("workload/a/x", "w", next_attempt=9.0), failure("workload/a/y", "w", next_attempt=4.0)
    for one in (later, sooner, failure("gvc/a", next_attempt=0.0, retry=False)):
        records.failures.put(one)
    assert records.failures.next_attempt() == 4.0
    assert records.failures.due(3.9) == []
    assert records.failures.due(9.0) == [sooner, later]
    assert records.failures.count() == 3
    records.failures.clear("workload/a/y", "w")
    records.failures.clear("gvc/a")
    assert records.failures.all() == [later]
    records.failures.clear(later.key, "elsewhere")
    assert records.failures.get(later.key) == (later,)


def test_failures_of_a_source_are_those_of_what_it_desires_or_owns(records: Records) -> None:
    for key in ("gvc/desired", "gvc/owned", "gvc/of-another"):
        records.failures.put(failure(key))
    records.desired.replace("main", [], [entry("gvc/desired", "g.yaml")])
    records.desired.replace("other", [], [entry("gvc/of-another", "g.yaml", source="other")])
    records.applied.put(record("gvc/owned"))
    assert [str(one.key) for one in records.failures.all("main")] == ["gvc/desired", "gvc/owned"]


def test_the_journal_keeps_the_order_in_which_steps_were_begun(records: Records) -> None:
    first = records.journal.begin(1, [NewStep(f"workload/a/w{n}", "w", "create", b"%d" % n) for n in (3, 1, 2)])
    second = records.journal.begin(1, [NewStep(Key.parse("gvc/a"), "", "delete", b"4")])
    assert [row.step for row in records.journal.open()] == [b"3", b"1", b"2", b"4"]
    records.journal.end([first[1], second[0]])
    assert [(row.id, row.step) for row in records.journal.open()] == [(first[0], b"3"), (first[2], b"2")]
    assert records.journal.begin(2, []) == []


def test_a_step_and_its_outcome_change_places_in_one_commit(path: Path, records: Records) -> None:
    ids = records.journal.begin(1, [NewStep("gvc/a", "", "create", b"")])
    reader = Records.open(path, read_only=True)
    with records.transaction():
        records.applied.put(record("gvc/a"))
        records.journal.end(ids)
        assert (len(reader.journal.open()), reader.applied.exists("gvc/a")) == (1, False)
    assert (len(reader.journal.open()), reader.applied.exists("gvc/a")) == (0, True)
    reader.close()


def test_only_the_newest_events_stay_and_their_numbers_go_on(records: Records) -> None:
    records.events.append_many(event("gvc/a", str(n)) for n in range(10))
    records.events.trim(3)
    assert [one.message for one in records.events.list()] == ["7", "8", "9"]
    last = records.events.list()[-1].id
    records.events.append_many([event("gvc/b", "10")])
    assert [(one.key, one.message) for one in records.events.list(after_id=last)] == [("gvc/b", "10")]


def test_events_are_listed_by_key_the_last_ones_or_those_that_follow(records: Records) -> None:
    records.events.append_many(event(f"gvc/{'ab'[n % 2]}", str(n)) for n in range(10))
    assert [one.message for one in records.events.list(limit=3)] == ["7", "8", "9"]
    assert [one.message for one in records.events.list(Key.parse("gvc/a"), limit=2)] == ["6", "8"]
    assert [one.message for one in records.events.list("gvc/a", after_id=3, limit=2)] == ["4", "6"]
    assert records.events.list("gvc/c") == []


def test_a_run_is_open_until_it_is_finished(records: Records) -> None:
    number = records.runs.start("main", "c1", "poll")
    assert (begun := records.runs.last("main")) is not None
    assert (begun.id, begun.started, begun.finished, begun.counts) == (number, 1000.0, None, {})
    records.runs.finish(number, "applied", "d1", {"applied": 3}, "all is well")
    assert (ended := records.runs.last("main")) is not None
    assert (ended.finished, ended.outcome, ended.digest, ended.counts) == (1000.0, "applied", "d1", {"applied": 3})
    assert ended.message == "all is well"
    other = records.runs.start("other", "c9", "signal")
    assert [one.id for one in records.runs.list(limit=1)] == [other]


def test_only_a_run_that_is_open_is_ended_as_interrupted(records: Records) -> None:
    done, left = records.runs.start("main", "c1", "poll"), records.runs.start("main", "c2", "poll")
    records.runs.finish(done, "applied", "d1", {})
    other = records.runs.start("other", "c9", "poll")
    records.runs.end_interrupted("main")
    outcomes = {
        number: (run.outcome, run.finished) for number in (done, left, other) if (run := records.runs.find(number))
    }
    assert outcomes == {done: ("applied", 1000.0), left: ("interrupted", 1000.0), other: ("", None)}


def test_old_runs_are_forgotten(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "KEEP", 2)
    numbers = [records.runs.start("main", "c1", "poll") for _ in range(5)]
    assert [one.id for one in records.runs.list()] == numbers[:-3:-1]


def test_a_request_is_open_until_it_is_done_even_where_work_on_it_began(records: Records) -> None:
    first, second = records.requests.add("apply", {"wait": True}, "ann"), records.requests.add("sync", {}, "bob")
    records.requests.start(first)
    assert [(one.id, one.started) for one in records.requests.open()] == [(first, 1000.0), (second, None)]
    records.requests.record_result(first, {"run": 7})
    assert [one.id for one in records.requests.open()] == [second]
    assert (answered := records.requests.get(first)) is not None
    assert (answered.kind, answered.args, answered.by, answered.result) == ("apply", {"wait": True}, "ann", {"run": 7})
    assert records.requests.get(999) is None


def test_requests_that_are_long_done_are_forgotten_and_open_ones_never(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "KEEP", 2)
    waiting, answered = records.requests.add("sync", {}, "ann"), records.requests.add("sync", {}, "ann")
    records.requests.record_result(answered, {})
    for _ in range(3):
        records.requests.add("sync", {}, "ann")
    assert records.requests.get(waiting) is not None
    assert records.requests.get(answered) is None


def test_commands_that_ended_are_forgotten_by_number_and_by_age(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "KEEP", 3)
    waiting, *ended = [records.commands.add(NewCommand("workload/shop/a", "here", "run", {}, "ann")) for _ in range(5)]
    for name in ended:
        records.commands.finish(name, CommandStage.COMPLETED, ["done"], {})
    assert [one.id for one in records.commands.list("workload/shop/a")] == [*ended[:0:-1], waiting]
    monkeypatch.setattr(commands, "KEEP_SECONDS", -1.0)
    records.commands.finish(ended[-1], CommandStage.FAILED, ["late"], {})
    assert [one.id for one in records.commands.list("workload/shop/a")] == [waiting]
    assert [one.id for one in records.commands.open("workload/shop/a")] == [waiting]


def test_an_approval_holds_until_it_is_used_or_expires(records: Records) -> None:
    records.approvals.approve("h1", "ann")
    records.approvals.approve("h2", "ann", expires=50.0)
    assert records.approvals.valid(49.0) == {"h1", "h2"}
    assert records.approvals.valid(50.0) == {"h1"}
    records.approvals.consume("h1")
    assert records.approvals.valid(49.0) == {"h2"}


def test_the_rest_of_an_approved_run_is_approved_as_long_as_the_whole(records: Records) -> None:
    records.approvals.remember_plan("p1", "main/h1")
    records.approvals.approve("main/h1", "ann", expires=50.0)
    records.approvals.approve("other/h1", "ann")
    records.approvals.carry("main", "h2", ["s1", "s2"])
    records.approvals.carry("main", "h2", ["s2"])
    assert records.approvals.valid(49.0) == {"main/s2", "other/h1"}
    assert records.approvals.valid(50.0) == {"other/h1"}
    assert records.approvals.hold_digests("p1") == []


def test_the_digest_of_a_plan_leads_to_what_it_holds(records: Records) -> None:
    records.approvals.remember_plan("p1", "h1")
    records.approvals.remember_plan("p2", "")
    assert [records.approvals.hold_digests(digest) for digest in ("p1", "h1", "p2", "p3")] == [["h1"], ["h1"], [""], []]


def test_the_beginning_of_a_digest_leads_to_all_that_begin_so(records: Records) -> None:
    for digest, hold in (("abc1", "main/def1"), ("abc2", "main/def2"), ("def1", "main/def1"), ("%", "main/x")):
        records.approvals.remember_plan(digest, hold)
    found = {prefix: records.approvals.hold_digests(prefix) for prefix in ("abc", "abc1", "def1", "de", "main", "%")}
    assert found == {
        "abc": ["main/def1", "main/def2"],
        "abc1": ["main/def1"],
        "def1": ["main/def1"],
        "de": ["main/def1", "main/def2"],
        "main": [],
        "%": ["main/x"],
    }


def test_a_key_added_while_its_status_is_written_is_written_again(records: Records) -> None:
    records.status_queue.add_many("main", ["gvc/b", "gvc/a"])
    taken = records.status_queue.take("main")
    assert taken.keys == ["gvc/a", "gvc/b"]
    records.status_queue.add_many("main", [Key.parse("gvc/a")])
    records.status_queue.clear("main", taken.keys, taken.upto)
    assert records.status_queue.take("main").keys == ["gvc/a"]
    assert records.status_queue.count("main") == 1


def test_a_cleared_number_is_never_used_again(records: Records) -> None:
    records.status_queue.add_many("main", ["gvc/a"])
    taken = records.status_queue.take("main")
    records.status_queue.clear("main", taken.keys, taken.upto)
    records.status_queue.add_many("main", ["gvc/a"])
    records.status_queue.clear("main", taken.keys, taken.upto)
    assert records.status_queue.take("main").keys == ["gvc/a"]


PENDING = st.lists(st.one_of(st.sampled_from("abc"), st.sampled_from(["take", "clear"])), max_size=30)


@settings(max_examples=examples(80), deadline=None)
@given(PENDING)
def test_no_key_is_lost_however_adding_and_writing_mix(moves: list[str]) -> None:
    records = Records.open(None)
    changed: dict[str, int] = {}
    written: dict[str, int] = {}
    taken, seen = records.status_queue.take("main"), dict(changed)
    for move in moves:
        if move == "take":
            taken, seen = records.status_queue.take("main"), dict(changed)
        elif move == "clear":
            records.status_queue.clear("main", taken.keys, taken.upto)
            written |= {key: seen[key[-1]] for key in taken.keys}
        else:
            changed[move] = changed.get(move, 0) + 1
            records.status_queue.add_many("main", [f"gvc/{move}"])
    behind = [f"gvc/{name}" for name, number in sorted(changed.items()) if written.get(f"gvc/{name}", 0) < number]
    assert records.status_queue.take("main").keys == behind
    records.close()


def test_a_condition_reports_whether_it_changed_and_since_when_it_is_true() -> None:
    times = iter([1.0, 3.0, 5.0])
    records = Records.open(None, clock_now=lambda: next(times))
    conditions = records.conditions
    assert conditions.set("main", make_condition(ConditionType.READY, True, Reason.APPLIED, "all applied"))
    assert not conditions.set("main", make_condition(ConditionType.READY, True, Reason.APPLIED, "all applied"))
    assert conditions.set("main", make_condition(ConditionType.READY, True, Reason.APPLIED, "all 3 applied"))
    assert [one.since for one in conditions.get("main")] == [1.0]
    assert conditions.set("main", make_condition(ConditionType.READY, False, Reason.STEPS_FAILED, "one failed"))
    assert conditions.set("main", make_condition(ConditionType.SOURCE_REACHABLE, True, Reason.FETCHED))
    found = [(one.type, one.status, one.reason, one.since) for one in conditions.get("main")]
    assert found == [("Ready", False, "StepsFailed", 3.0), ("SourceReachable", True, "Fetched", 5.0)]
    assert conditions.get("other") == []
    records.close()


def test_an_event_has_the_time_of_now_the_type_of_its_reason_and_one_line_of_text(records: Records) -> None:
    records.events.append("gvc/a", Reason.NO_FREE_PORT, "a\n port " + "x" * 600, location="here", run=3)
    records.events.append_many([NewEvent("", Reason.SETTINGS_REFUSED, "no"), NewEvent("gvc/a", Reason.CREATED, "made")])
    first, second, third = records.events.list()
    assert (first.at, first.run, first.key, first.location, first.type) == (1000.0, 3, "gvc/a", "here", "Warning")
    assert (first.reason, first.message[:8], len(first.message), first.message[-1]) == (
        "NoFreePort",
        "a port x",
        500,
        "…",
    )
    assert (second.type, second.reason, second.key) == ("Warning", "SettingsRefused", "")
    assert (third.type, third.reason) == ("Normal", "Created")


def test_a_failure_with_an_unknown_reason_is_read_as_failed(records: Records) -> None:
    records.failures.put(failure("gvc/a"))
    records._database.write("UPDATE failures SET reason = 'OfLongAgo'")
    assert [each.reason for each in records.failures.all()] == [Reason.FAILED]


def test_secrets_without_data_are_found_without_looking_at_all_else(records: Records) -> None:
    secrets = [entry("secret/kept", "k.yaml"), entry("secret/led", "l.yaml")]
    others = [entry(f"workload/shop/w{number}", f"{number}.yaml") for number in range(5000)]
    records.desired.replace("main", [], [*secrets, *others])
    records.desired.replace("other", [], [entry("secret/theirs", "t.yaml", source="other")])
    records.secret_data.put("secret/kept", "d1", b"{}")
    assert records.secret_data.missing("main") == ["secret/led"]

    def steps(question: Callable[[], object]) -> int:
        """Steps of SQLite's machine, in tens."""
        done: list[None] = []
        records._database._connection.set_progress_handler(lambda: done.append(None), 10)
        question()
        records._database._connection.set_progress_handler(None, 0)
        return len(done)

    all_else = steps(lambda: records.desired.paths_below("main", ""))
    assert steps(lambda: records.secret_data.missing("main")) < all_else / 50
