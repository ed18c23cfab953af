"""Records that an older program left: cases/records/version-1.sql is what the first version wrote for this shop."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from reconciler.model.key import Key, Kind
from reconciler.model.record import Health
from reconciler.records.migrations import MIGRATIONS
from reconciler.records.store import FILE, Records
from tests.support.cases import CASES
from tests.support.desk import Desk, workload

DIGEST = "10c7502c9083acbb4ce1a88c8130db43"
"""The digest of the deletes that the first version put on hold."""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A shop that the first version has applied, updated, and was to delete a database from."""
    desk = Desk(tmp_path)
    desk.commit({"shop/web.yaml": workload("web", "2")}, message="Serve the new page")
    desk.commit({"shop/db.yaml": None}, message="Retire the database")
    desk.state.mkdir(mode=0o700)
    file = desk.state / FILE
    file.touch(mode=0o600)
    with closing(sqlite3.connect(file)) as records:
        records.executescript((CASES / "records" / "version-1.sql").read_text())
    return desk


def schema_version(desk: Desk) -> int:
    """The version in the file."""
    with closing(sqlite3.connect(desk.state / FILE)) as records:
        return int(records.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("words", [["get"], ["plan"], ["approve", DIGEST], ["suspend", "main"]])
def test_reading_commands_migrate_nothing_and_name_the_one_that_does(desk: Desk, words: list[str]) -> None:
    result = desk.run(*words)
    assert (result.code, schema_version(desk)) == (1, 1)
    assert f"must first be brought to {len(MIGRATIONS)}: start the daemon or run 'reconciler apply' once" in result.err


def test_a_newer_program_goes_on_where_the_first_one_ended(desk: Desk) -> None:
    assert desk.run("apply").out.startswith("main: waiting at ")
    assert schema_version(desk) == len(MIGRATIONS)
    items = {each["name"]: each for each in desk.run("get", "-o", "json").json["items"]}
    assert items["web"]["version"] == 2
    assert items["api"]["version"] == 1
    assert items["shop"]["alias"] == "3zv8nzytpvojp"
    assert [run["outcome"] for run in desk.run("history", "-o", "json").json["items"]][-3:] == [
        "waiting",
        "applied",
        "applied",
    ]
    assert desk.run("approve", DIGEST).code == 0
    assert "2 deleted" in desk.applied().out
    assert desk.plan()["steps"] == []


def test_a_backup_of_the_first_version_is_restored(desk: Desk) -> None:
    os.rename(desk.state / FILE, desk.path / "copy.sqlite")
    result = desk.run("restore", "copy.sqlite")
    assert (result.code, result.err) == (0, "")
    assert desk.plan()["hold_digest"] == DIGEST


def test_a_migration_turns_healthy_into_recorded_where_nothing_runs(desk: Desk) -> None:
    with closing(Records.open(desk.state / FILE)) as records:
        assert {record.health for record in records.applied.items() if record.location} == {Health.RECORDED}
        assert {record.health for record in records.applied.items() if not record.location} == {Health.HEALTHY}
        assert {health for kind, health in records.applied.counts() if kind is Kind.WORKLOAD} == {Health.RECORDED}
        for record in records.applied.items(Kind.WORKLOAD):
            state = msgspec.json.decode(record.state)
            [version] = state["status"]["versions"]
            [container] = version["containers"].values()
            assert container["resources"]["replicas"] > container["resources"]["replicasReady"] == 0
            assert [each["ready"] for each in (container, version, state["status"])] == [False] * 3
            assert (state["workload"]["health"], state["workload"]["currentReplicaCount"]) == ("Recorded", 0)
        waiting = set(records.status_queue.take("main").keys)
        assert {record.key for record in records.applied.items(Kind.WORKLOAD)} <= set(map(Key.parse, map(str, waiting)))


def test_the_conditions_of_the_first_version_have_the_reasons_of_today(desk: Desk) -> None:
    with closing(Records.open(desk.state / FILE)) as records:
        assert {each.type: each.reason for each in records.conditions.get("main")}["StatusPushed"] == "Pushed"
