"""Records that older programs wrote: what each migration makes of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from docs.generate import database_schema
from reconciler.model.key import Key
from reconciler.pipeline.report import Report, decode_reports
from reconciler.reasons import Reason
from reconciler.records.migrations import (
    CHANGES,
    COMMANDS,
    FIELDS,
    LOCATIONS,
    MIGRATIONS,
    OUTBOX,
    REASONS,
    RENAMED,
    SCHEDULES,
    SCHEMA_FILE,
    TRAFFIC_HOLDS,
    schema,
)
from reconciler.records.store import Records
from reconciler.records.tables.commands import NewCommand
from reconciler.records.tables.events import NewEvent, WaitingEvents
from reconciler.records.tables.schedules import SchedulePosition
from reconciler.records.tables.status_queue import Change

RETAINED = "workload/shop/kept"
FAILED = "workload/shop/failed"
FOUGHT = "workload/shop/fought"
HOSTED = "workload/shop/hosted"
PLAIN = "workload/shop/plain"

STATE = {
    "status": {
        "message": 'NoRights: it cannot be written; db ended with 143 (NotAlive): said "reason":"NotAlive"',
        "versions": [{"containers": {"db": {"restarts": {"count": 1, "reason": "NotAlive"}}}}],
    }
}
RESULT = {"reports": [{"source": "main", "outcome": "moved", "reason": "PlanMoved", "message": "it moved"}]}

SQL = "SELECT type, name, tbl_name, sql FROM sqlite_master"

Rows = Sequence[tuple[object, ...]]


def older(path: Path, version: int, rows: dict[str, Rows]) -> None:
    """A file as the program with ``version`` migrations made it, with ``rows`` by the statement that inserts them."""
    path.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(path)) as file:
        for statement in (each for statements in MIGRATIONS[:version] for each in statements):
            file.execute(statement)
        for statement, values in rows.items():
            file.executemany(f"INSERT INTO {statement} VALUES ({', '.join('?' * len(values[0]))})", values)
        file.execute("INSERT INTO meta VALUES ('secret_key', x'00')")
        file.execute(f"PRAGMA user_version = {version}")
        file.commit()
    path.chmod(0o600)


def applied(key: str, engine: str, state: object = {}) -> tuple[object, ...]:
    encoded = msgspec.json.encode(state)
    return (key, "here", "main", "d1", 1, engine, "Unhealthy", "", "c1", 1.0, b"{}", encoded)


APPLIED = "applied (key, location, source, digest, version, engine, health, alias, revision, applied_at, body, state)"
ROWS: dict[str, Rows] = {
    APPLIED: [applied(each, "recorded") for each in (RETAINED, FAILED, FOUGHT, PLAIN)]
    + [applied(HOSTED, "host", STATE)],
    "events (at, run, key, location, type, reason, message)": [
        *((1.0, 1, PLAIN, "", "Warning", old, "") for old in RENAMED),
        (1.0, 1, PLAIN, "", "Normal", "Created", "NotAlive by name"),
        (1.0, 1, PLAIN, "", "Normal", "Recovered", "over: SourceGone: it is not there"),
        (1.0, 1, PLAIN, "", "Warning", "ContainerEnded", "web-1: main ended with 143 (NotAlive): no answer"),
    ],
    "failures": [
        (FAILED, "here", "NoRights", "no", 1, 1.0, 2.0, 1),
        (PLAIN, "here", "NoFreePort", "no", 1, 1.0, 2.0, 1),
    ],
    "drifts": [(FOUGHT, "here", "main", 1.0, b"", 1), (PLAIN, "here", "main", 1.0, b"", 0)],
    "conditions": [
        ("/host", "SettingsTaken", 0, "Usage", "a word too many", 1.0),
        ("main", "Ready", 0, "StepsFailed", "workload/shop/web at here: HostTrouble: no", 1.0),
        ("main", "SourceReachable", 0, "SourceGone", "gone", 1.0),
        ("main", "SourceStale", 0, "Fresh", "", 1.0),
        ("main", "StatusPushed", 1, "Written", "", 1.0),
        ("side", "SourceReachable", 1, "Read", "", 1.0),
        ("side", "StatusPushed", 0, "PushRaced", "", 1.0),
        ("side", "StatusStale", 0, "Written", "", 1.0),
        (RETAINED, "Waiting", 1, "Kept", "no longer in Git", 1.0),
    ],
    "requests (kind, args, by, at, taken, done, result)": [
        ("apply", b"{}", "ann", 1.0, 1.0, 1.0, msgspec.json.encode(RESULT)),
        ("apply", b"{}", "ann", 1.0, None, None, None),
    ],
}  # fmt: skip


def test_former_reasons_become_the_new_ones_wherever_they_are_recorded(path: Path) -> None:
    older(path, MIGRATIONS.index(REASONS), ROWS)
    with closing(Records.open(path)) as records:
        events = records.events.list()
        assert [each.reason for each in events[: len(RENAMED)]] == list(RENAMED.values())
        assert [each.message for each in events[len(RENAMED) :]] == [
            "NotAlive by name",
            "over: SourceNotFound: it is not there",
            "web-1: main ended with 143 (LivenessFailed): no answer",
        ]
        assert [each.reason for each in records.failures.all()] == ["PermissionDenied", "NoFreePort"]
        conditions = {
            scope: {each.type: each.reason for each in records.conditions.get(scope)}
            for scope in ("/host", "main", "side", RETAINED)
        }
        assert conditions == {
            "/host": {"SettingsLoaded": "InvalidSettings"},
            "main": {
                "Ready": "StepsFailed",
                "SourceReachable": "SourceNotFound",
                "SourceStale": "Fetched",
                "StatusPushed": "Pushed",
            },
            "side": {"SourceReachable": "Fetched", "StatusPushed": "PushConflict", "StatusStale": "Pushed"},
            RETAINED: {"Waiting": "Retained"},
        }
        [ready, *_] = records.conditions.get("main")
        assert ready.message == "workload/shop/web at here: WorkloadError: no"


def test_former_reasons_in_the_state_of_a_workload_and_in_an_answer_become_the_new_ones(path: Path) -> None:
    older(path, MIGRATIONS.index(REASONS), ROWS)
    with closing(Records.open(path)) as records:
        [record] = records.applied.get(HOSTED)
        status = msgspec.json.decode(record.state)["status"]
        assert status["message"] == (
            'PermissionDenied: it cannot be written; db ended with 143 (LivenessFailed): said "reason":"NotAlive"'
        )
        assert status["versions"][0]["containers"]["db"]["restarts"]["reason"] == "LivenessFailed"
        assert {each.state for key in (RETAINED, PLAIN) for each in records.applied.get(key)} == {b"{}"}
        first, second = records.requests.get(1), records.requests.get(2)
        assert first is not None
        assert first.result is not None
        assert second is not None
        [report] = first.result["reports"]
        assert (report["outcome"], report["reason"], report["message"]) == ("plan_changed", "PlanChanged", "it moved")
        assert second.result is None


def test_the_status_files_of_resources_whose_reason_is_another_one_are_written_anew(path: Path) -> None:
    older(path, MIGRATIONS.index(REASONS), ROWS)
    with closing(Records.open(path)) as records:
        assert set(records.status_queue.take("main").keys) == {RETAINED, FAILED, FOUGHT, HOSTED}


REPORT = {
    "source": "main",
    "held": "d1",
    "message": 'a text with "held":"d1" in it',
    "left_out": "1 error",
    "troubles": ["workload/shop/web: waits"],
}


def test_tables_and_columns_with_former_names_keep_what_is_in_them(path: Path) -> None:
    rows: dict[str, Rows] = {
        "seals": [("secret/db", "d1", b"{}")],
        "plans (digest, held)": [("p1", "main/h1")],
        "drifts": [(FOUGHT, "here", "main", 1.0, b"", 1)],
        "requests (kind, args, by, at, taken, done, result)": [
            ("apply", b"{}", "ann", 1.0, 2.0, 3.0, msgspec.json.encode({"reports": [REPORT]})),
            ("apply", b"{}", "ann", 1.0, 2.0, None, None),
        ],
    }
    older(path, MIGRATIONS.index(FIELDS), rows)
    with closing(Records.open(path)) as records:
        assert records.secret_data.get("secret/db", "d1") == b"{}"
        assert records.approvals.hold_digests("p1") == records.approvals.hold_digests("h1") == ["main/h1"]
        assert [row.in_conflict for row in records.drifts.all()] == [True]
        first, second = records.requests.get(1), records.requests.get(2)
        assert first is not None
        assert first.result is not None
        assert second is not None
        assert (first.started, second.started, second.result) == (2.0, 2.0, None)
        assert decode_reports({"reports": [{**first.result["reports"][0], "outcome": "waiting", "revision": ""}]}) == [
            Report(
                "main", "", "waiting", hold_digest="d1", message='a text with "held":"d1" in it',
                skipped_files="1 error", not_applied=["workload/shop/web: waits"],
            )
        ]  # fmt: skip


def test_older_records_take_holds_of_requests(path: Path) -> None:
    older(path, MIGRATIONS.index(TRAFFIC_HOLDS), {})
    with closing(Records.open(path, clock_now=lambda: 100.0)) as records:
        records.traffic_holds.put(PLAIN, "a migration", "ada", 160.0)
        [hold] = records.traffic_holds.all()
        assert (str(hold.key), hold.reason, hold.by, hold.at, hold.until) == (PLAIN, "a migration", "ada", 100.0, 160.0)


def test_older_records_take_commands_on_resources(path: Path) -> None:
    older(path, MIGRATIONS.index(COMMANDS), {})
    with closing(Records.open(path, clock_now=lambda: 100.0)) as records:
        name = records.commands.add(NewCommand(PLAIN, "here", "runCronWorkload", {"location": "here"}, "ada"))
        [command] = records.commands.open()
        assert (command.id, str(command.key), command.stage, command.created) == (name, PLAIN, "pending", 100.0)


def test_older_records_find_what_is_applied_at_a_location(path: Path) -> None:
    older(path, MIGRATIONS.index(LOCATIONS), {APPLIED: [applied(HOSTED, "host", STATE), applied(PLAIN, "recorded")]})
    with closing(Records.open(path)) as records:
        assert [str(record.key) for record in records.applied.items_at("here", "host")] == [HOSTED]
        assert list(records.applied.scan_at("here", "host")) == [(HOSTED, "d1", 1)]
        assert list(records.applied.scan_at("there", "host")) == []


def test_older_records_take_positions_of_schedules(path: Path) -> None:
    older(path, MIGRATIONS.index(SCHEDULES), {})
    with closing(Records.open(path)) as records:
        assert records.schedules.at_location("here") == {}
        records.schedules.put_many("here", [(Key.parse(PLAIN), SchedulePosition("* * * * *", 7))])
        assert records.schedules.at_location("here") == {Key.parse(PLAIN): ("* * * * *", 7)}


def test_older_records_know_later_changes_of_resources(path: Path) -> None:
    older(path, MIGRATIONS.index(CHANGES), {APPLIED: [applied(PLAIN, "recorded")]})
    with closing(Records.open(path)) as records:
        assert records.changes.newest() == 0
        records.status_queue.add_many("main", [PLAIN])
        [record] = records.applied.get(PLAIN)
        records.applied.remove([(PLAIN, record.location)])
        assert records.changes.after(0, 10) == [Change(1, PLAIN, None), Change(2, PLAIN, record.body)]


def test_older_records_take_events_that_wait(path: Path) -> None:
    older(path, MIGRATIONS.index(OUTBOX), {})
    with closing(Records.open(path)) as records:
        waiting = WaitingEvents("1", "main", "abc", 7.0, (NewEvent(PLAIN, Reason.CHANGE_COMMITTED, "created"),))
        records.outbox.add(waiting._replace(revision="old"))
        records.outbox.add(waiting)
        assert records.outbox.all() == [waiting]
        for _ in range(2):
            records.outbox.release(waiting)
        assert [event.message for event in records.events.list(PLAIN)] == ["created"]
        assert records.outbox.is_empty()


def test_a_new_file_has_the_schema_that_all_migrations_create(path: Path) -> None:
    assert SCHEMA_FILE.read_text() == database_schema.statements(), "run: python -m docs.generate"
    older(path, len(MIGRATIONS), {})
    fresh = path.with_name("fresh.db")
    Records.open(fresh).close()
    with closing(sqlite3.connect(path)) as migrated, closing(sqlite3.connect(fresh)) as made:
        assert set(made.execute(SQL)) == set(migrated.execute(SQL))
        assert made.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert len(schema()) < sum(map(len, MIGRATIONS))
