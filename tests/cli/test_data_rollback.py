"""`reconciler rollback --with-data`: which snapshots it restores, when, and what ends it."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.records.store import FILE, Records
from tests.support.command_sandbox import DB, SHOP, CommandResult, Desk, workload

DATA = "volumeset/shop/data"
TAGGED = DB.replace("name: db\n", "name: db\ntags: {reconciler/snapshot-on: new-version}\n")


def version(tag: int) -> str:
    """The shop's database in another version."""
    return TAGGED.replace("store:1", f"store:{tag}")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Versions 1, 2 and 3 of the database, with a commit without a new version between the last two."""
    desk = Desk(tmp_path, {**SHOP, "shop/db.yaml": version(1)})
    desk.applied()
    for files in ({"shop/db.yaml": version(2)}, {"shop/web.yaml": workload("web", "2")}, {"shop/db.yaml": version(3)}):
        desk.commit(files)
        desk.applied()
    return desk


def stages(desk: Desk) -> list[tuple[str, str, str]]:
    """The restores, oldest first: location, snapshot, stage."""
    items = desk.run("command", DATA, "-o", "json").json["items"][::-1]
    return [(each["spec"]["location"], each["spec"]["snapshotName"], each["lifecycleStage"]) for each in items]


def roll_back(desk: Desk, revision: str, *more: str) -> CommandResult:
    return desk.run("rollback", "main", revision, "--with-data", *more)


def approved(desk: Desk, revision: str) -> CommandResult:
    """A rollback with the digest that its refusal shows, if it shows one."""
    refused = roll_back(desk, revision)
    digest = re.search(r"--approve (\w+)", refused.err)
    return roll_back(desk, revision, "--approve", digest[1]) if digest else refused


@pytest.mark.parametrize(
    ("revision", "snapshot"),
    [("HEAD~1", "before-db-00003"), ("HEAD~2", "before-db-00003"), ("HEAD~3", "before-db-00002")],
)
def test_the_snapshot_before_the_next_version_is_restored(desk: Desk, revision: str, snapshot: str) -> None:
    refused = roll_back(desk, revision)
    assert refused.code == 1
    lost = re.findall(
        r"volume 0 of (\S+) at (\S+) goes back to (\S+) of \d+ s ago, before version (\d) of (\S+)\n", refused.err
    )
    assert lost == [(DATA, place, snapshot, snapshot[-1], "workload/shop/db") for place in ("here", "there")]
    assert re.search(
        r"error: what was written to these volumes since is lost; to approve it, add --approve \w{12}\n$", refused.err
    )
    other = roll_back(desk, revision, "--approve", "0123456789ab")
    assert (other.code, "lost; 0123456789ab is the digest of something else; to" in other.err) == (1, True)
    assert "'0123' is too short; write the first 8" in roll_back(desk, revision, "--approve", "0123").err
    assert stages(desk) == []
    done = approved(desk, revision)
    assert (done.code, " with 2 volumes; follow" in done.out) == (0, True)
    assert stages(desk) == [(place, snapshot, "pending") for place in ("here", "there")]
    desk.applied()
    assert stages(desk) == [(place, snapshot, "completed") for place in ("here", "there")]


def test_a_second_rollback_restores_what_the_first_version_wrote_last(desk: Desk) -> None:
    first = desk.repo.git("rev-parse", "main~3")
    approved(desk, first)
    desk.applied()
    desk.run("resume", "main")
    desk.applied()
    listed = desk.run("snapshots", DATA, "-o", "json").json["items"]
    names = sorted(each["name"] for each in listed if each["location"] == "here")
    assert names == [f"before-db-0000{number}" for number in range(2, 6)]
    assert "before-db-00005 " in roll_back(desk, first).err
    short = desk.repo.git("rev-parse", "main")[:12]
    assert f"has a snapshot from before a version newer than that of {short}; leave" in roll_back(desk, "HEAD").err


def test_the_snapshot_to_restore_outlives_the_release_that_a_rollback_is(desk: Desk) -> None:
    for number in range(4, 13):
        desk.commit({"shop/db.yaml": version(number)})
        desk.applied()
    gone = approved(desk, "main~12")
    assert "has a snapshot from before a version newer than that of" in gone.err
    assert approved(desk, "main~10").code == 0
    desk.applied()
    assert stages(desk) == [(place, "before-db-00003", "completed") for place in ("here", "there")]


def test_a_restore_waits_until_its_workload_is_back(desk: Desk) -> None:
    approved(desk, "HEAD~1")
    assert desk.run("suspend", "workload/shop/db").code == 0
    desk.run("apply")
    assert {stage for _, _, stage in stages(desk)} == {"pending"}
    desk.run("resume", "workload/shop/db")
    desk.applied()
    assert {stage for _, _, stage in stages(desk)} == {"completed"}


def test_who_follows_the_branch_again_restores_nothing(desk: Desk) -> None:
    approved(desk, "HEAD~1")
    desk.run("resume", "main")
    desk.applied()
    assert {stage for _, _, stage in stages(desk)} == {"cancelled"}
    with closing(Records.open(desk.state / FILE, read_only=True)) as records:
        reasons = [each.reason for each in records.events.list(DATA)]
    assert reasons.count("CommandCancelled") == 2


def test_another_rollback_replaces_what_the_first_one_would_restore(desk: Desk) -> None:
    approved(desk, "HEAD~1")
    approved(desk, "HEAD~3")
    desk.applied()
    found = json.dumps(stages(desk))
    assert found.count('"before-db-00003", "cancelled"') == found.count('"before-db-00002", "completed"') == 2
