"""`reconciler rollback --with-data`: which snapshots it restores, when, and what ends it."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.records.store import FILE, Records
from tests.support.command_sandbox import DB, SHOP, CommandResult, CommandSandbox, workload

DATA = "volumeset/shop/data"
TAGGED = DB.replace("name: db\n", "name: db\ntags: {reconciler/snapshot-on: new-version}\n")


def version(tag: int) -> str:
    """The shop's database in another version."""
    return TAGGED.replace("store:1", f"store:{tag}")


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    """Versions 1, 2 and 3 of the database, with a commit without a new version between the last two."""
    sandbox = CommandSandbox(tmp_path, {**SHOP, "shop/db.yaml": version(1)})
    sandbox.applied()
    for files in ({"shop/db.yaml": version(2)}, {"shop/web.yaml": workload("web", "2")}, {"shop/db.yaml": version(3)}):
        sandbox.commit(files)
        sandbox.applied()
    return sandbox


def stages(sandbox: CommandSandbox) -> list[tuple[str, str, str]]:
    """The restores, oldest first: location, snapshot, stage."""
    items = sandbox.run("command", DATA, "-o", "json").json["items"][::-1]
    return [(each["spec"]["location"], each["spec"]["snapshotName"], each["lifecycleStage"]) for each in items]


def roll_back(sandbox: CommandSandbox, revision: str, *more: str) -> CommandResult:
    return sandbox.run("rollback", "main", revision, "--with-data", *more)


def approved(sandbox: CommandSandbox, revision: str) -> CommandResult:
    """A rollback with the digest that its refusal shows, if it shows one."""
    refused = roll_back(sandbox, revision)
    digest = re.search(r"--approve (\w+)", refused.err)
    return roll_back(sandbox, revision, "--approve", digest[1]) if digest else refused


@pytest.mark.parametrize(
    ("revision", "snapshot"),
    [("HEAD~1", "before-db-00003"), ("HEAD~2", "before-db-00003"), ("HEAD~3", "before-db-00002")],
)
def test_the_snapshot_before_the_next_version_is_restored(
    sandbox: CommandSandbox, revision: str, snapshot: str
) -> None:
    refused = roll_back(sandbox, revision)
    assert refused.code == 1
    sentence = r"volume 0 of (\S+) at (\S+) goes back to (\S+) of \d+ (?:s|min) ago, before version (\d) of (\S+)\n"
    lost = re.findall(sentence, refused.err)
    assert lost == [(DATA, location, snapshot, snapshot[-1], "workload/shop/db") for location in ("here", "there")]
    assert re.search(
        r"error: what was written to these volumes since is lost; to approve it, add --approve \w{12}\n$", refused.err
    )
    other = roll_back(sandbox, revision, "--approve", "0123456789ab")
    assert (other.code, "lost; 0123456789ab is the digest of something else; to" in other.err) == (1, True)
    assert "'012' is too short; write the first 4" in roll_back(sandbox, revision, "--approve", "012").err
    assert stages(sandbox) == []
    done = approved(sandbox, revision)
    assert (done.code, " with 2 volumes; follow" in done.out) == (0, True)
    assert stages(sandbox) == [(location, snapshot, "pending") for location in ("here", "there")]
    sandbox.applied()
    assert stages(sandbox) == [(location, snapshot, "completed") for location in ("here", "there")]


def test_a_second_rollback_restores_what_the_first_version_wrote_last(sandbox: CommandSandbox) -> None:
    first = sandbox.repo.git("rev-parse", "main~3")
    approved(sandbox, first)
    sandbox.applied()
    sandbox.run("resume", "main")
    sandbox.applied()
    listed = sandbox.run("snapshots", DATA, "-o", "json").json["items"]
    names = sorted(each["name"] for each in listed if each["location"] == "here")
    assert names == [f"before-db-0000{number}" for number in range(2, 6)]
    assert "before-db-00005 " in roll_back(sandbox, first).err
    short = sandbox.repo.git("rev-parse", "main")[:12]
    assert f"has a snapshot from before a version newer than that of {short}; leave" in roll_back(sandbox, "HEAD").err


def test_the_snapshot_to_restore_outlives_the_release_that_a_rollback_is(sandbox: CommandSandbox) -> None:
    for number in range(4, 13):
        sandbox.commit({"shop/db.yaml": version(number)})
        sandbox.applied()
    gone = approved(sandbox, "main~12")
    assert "has a snapshot from before a version newer than that of" in gone.err
    assert approved(sandbox, "main~10").code == 0
    sandbox.applied()
    assert stages(sandbox) == [(place, "before-db-00003", "completed") for place in ("here", "there")]


def test_a_restore_waits_until_its_workload_is_back(sandbox: CommandSandbox) -> None:
    approved(sandbox, "HEAD~1")
    assert sandbox.run("suspend", "workload/shop/db").code == 0
    sandbox.run("apply")
    assert {stage for _, _, stage in stages(sandbox)} == {"pending"}
    sandbox.run("resume", "workload/shop/db")
    sandbox.applied()
    assert {stage for _, _, stage in stages(sandbox)} == {"completed"}


def test_who_follows_the_branch_again_restores_nothing(sandbox: CommandSandbox) -> None:
    approved(sandbox, "HEAD~1")
    sandbox.run("resume", "main")
    sandbox.applied()
    assert {stage for _, _, stage in stages(sandbox)} == {"cancelled"}
    with closing(Records.open(sandbox.state / FILE, read_only=True)) as records:
        reasons = [each.reason for each in records.events.list(DATA)]
    assert reasons.count("CommandCancelled") == 2


def test_another_rollback_replaces_what_the_first_one_would_restore(sandbox: CommandSandbox) -> None:
    approved(sandbox, "HEAD~1")
    approved(sandbox, "HEAD~3")
    sandbox.applied()
    found = json.dumps(stages(sandbox))
    assert found.count('"before-db-00003", "cancelled"') == found.count('"before-db-00002", "completed"') == 2
