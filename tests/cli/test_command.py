"""`reconciler command`: what it answers, what it lists, and what becomes of a command without a daemon."""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.model.key import Key
from reconciler.records.store import FILE, Records
from reconciler.records.tables.commands import NewCommand
from tests.support.command_sandbox import SHOP, CommandResult, CommandSandbox, golden
from tests.support.terminal import terminal

DATA, JOB = "volumeset/shop/data", "workload/shop/job"
SECRET = "hunter2"
CRON = """kind: workload
name: job
spec:
  type: cron
  containers: [{name: main, image: //image/job:1}]
  job: {schedule: 0 0 29 2 *}
"""
OVERRIDES = {"containerOverrides": [{"name": "main", "env": [{"name": "TOKEN", "value": SECRET}]}]}
HERE = ("location=here", "volumeIndex=0")

COMMANDS = (
    ("command", "gvc/shop", "deleteVolume"),
    ("command", DATA, "deleteVolumes"),
    ("command", DATA, "shrink"),
    ("command", JOB, "expandVolume"),
    ("command", "volumeset/shop/date", "deleteVolume"),
    ("command", "workload/shop/web", "runCronWorkload"),
    ("command", JOB, "stopReplica", "replica=report-x"),
    ("command", "workload/shop/web", "stopReplica", "name=web-x"),
    ("command", DATA, "expandVolume", "volumeIndex=0", "newStorageCapacity=20"),
    ("command", DATA, "expandVolume", "location=hree", "volumeIndex=0", "newStorageCapacity=20"),
    ("command", DATA, "expandVolume", *HERE),
    ("command", DATA, "expandVolume", *HERE, "newStorageCapacity=much"),
    ("command", DATA, "expandVolume", *HERE, "newStorageCapacity=010"),
    ("command", DATA, "expandVolume", *HERE, "capacity=20"),
    ("command", DATA, "expandVolume", *HERE, "newStorageCapacity"),
    ("command", DATA, "expandVolume", *HERE, "volumeIndex=1"),
    ("command", DATA, "deleteVolume", *HERE),
    ("command", DATA, "restoreVolume", *HERE, "snapshotName=1.10"),
    ("command", DATA, "--spec", "spec.yaml"),
    ("command", DATA),
    ("command", DATA, "createVolumeSnapshot", *HERE, "snapshotName=1.10", "tags.team=shop", "tags.year=2026"),
    ("command", DATA, "expandVolume", *HERE, "newStorageCapacity=5"),
    ("command", DATA, "deleteVolume", *HERE, "--yes"),
    ("command", JOB, "runCronWorkload", "--spec", "spec.yaml"),
    ("command", JOB),
    ("apply",),
    ("command", DATA),
    ("command", JOB),
    ("command", DATA, "restoreVolume", *HERE, "snapshotName=1.10", "--yes"),
    ("describe", DATA),
)


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    """A sandbox whose shop is applied, with a cron workload."""
    sandbox = CommandSandbox(tmp_path, {**SHOP, "shop/job.yaml": CRON})
    sandbox.applied()
    (tmp_path / "spec.yaml").write_text(json.dumps(OVERRIDES))
    return sandbox


def shown(words: tuple[str, ...], result: CommandResult) -> str:
    """A command and its answer, without what differs each time."""
    text = re.sub(r"\b\d+(s|m)\b", "<age>", result.out + result.err).replace(OPERATOR, "ann")
    text = re.sub(r"20\d\d-\S+Z", "<time>", text)
    if words[0] == "describe":
        text = text[text.index("Commands") : text.index("Events")]
    return f"$ reconciler {' '.join(words)}\n{text}"


OPERATOR = "root"


def test_commands_are_checked_wait_for_a_run_and_are_listed(sandbox: CommandSandbox) -> None:
    results = [sandbox.run(*words, SUDO_USER=OPERATOR) for words in COMMANDS]
    golden("command.txt", "".join(map(shown, COMMANDS, results)))
    assert SECRET not in str(results)
    with closing(Records.open(sandbox.state / FILE, read_only=True)) as records:
        states = {each.location: each.state.decode() for each in records.applied.get(Key.parse(DATA))}
    assert '"name":"1.10"' in states["here"]
    assert '"name"' not in states["there"].replace('"name":"there"', "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("createVolumeSnapshot", 2),
        ("createVolumeSnapshots volumeIndex=0", 2),
        ("createVolumeSnapshot volumeindex=0 snapshotName=a", 2),
        ("createVolumeSnapshot volumeIndex=zero snapshotName=a", 2),
        ("createVolumeSnapshot volumeIndex=0 snapshotName=..", 1),
    ],
)
def test_what_is_typed_wrong_exits_with_2_and_what_cannot_be_with_1(
    sandbox: CommandSandbox, words: str, code: int
) -> None:
    refused = sandbox.run("command", DATA, *words.split(), "location=here")
    assert (refused.code, refused.out) == (code, ""), refused
    assert refused.err.startswith("error: ")
    assert "Object" not in refused.err, "no words of a library"


def test_a_command_is_shown_in_the_form_of_the_api_and_can_be_cancelled(sandbox: CommandSandbox) -> None:
    asked = sandbox.run("command", JOB, "runCronWorkload", "location=there", "--spec", "spec.yaml", "-o", "json")
    assert asked.err == "no daemon runs; the next `reconciler apply` performs it\n"
    [command] = asked.json["items"]
    assert command == {
        "id": command["id"],
        "type": "runCronWorkload",
        "lifecycleStage": "pending",
        "spec": {
            "location": "there",
            "containerOverrides": [{"name": "main", "env": [{"name": "TOKEN", "value": "***"}]}],
        },
        "status": {"messages": []},
        "created": command["created"],
    }
    assert re.fullmatch(r"20\S+Z", command["created"])
    other = sandbox.run("command", DATA, "--cancel", command["id"])
    assert (other.code, other.err) == (
        1,
        f"error: {DATA} has no command {command['id']}; see: reconciler command {DATA}\n",
    )
    assert sandbox.run("command", JOB, "--cancel", command["id"]).out == f"the command {command['id']} is cancelled\n"
    assert sandbox.run("command", JOB, "--cancel", command["id"]).err == (
        f"error: the command {command['id']} is cancelled; only a pending one can be cancelled\n"
    )
    sandbox.applied()
    assert [each["lifecycleStage"] for each in sandbox.run("command", JOB, "-o", "json").json["items"]] == ["cancelled"]
    assert "CommandCancelled" in sandbox.run("events", JOB).out


def test_commands_that_no_daemon_performs_have_a_limit(sandbox: CommandSandbox) -> None:
    with closing(Records.open(sandbox.state / FILE)) as records:
        for _ in range(100):
            records.commands.add(NewCommand(JOB, "here", "runCronWorkload", {"location": "here"}, "ann"))
    refused = sandbox.run("command", JOB, "runCronWorkload")
    assert refused.err == f"error: 100 commands on {JOB} are still to be performed; wait for them\n"


@pytest.mark.parametrize(("answer", "stage"), [(b"y\n", ["pending"]), (b"n\n", [])])
def test_a_terminal_asks_before_data_is_destroyed(sandbox: CommandSandbox, answer: bytes, stage: list[str]) -> None:
    words = [sys.executable, "-m", "reconciler.cli", "command", DATA, "deleteVolume", *HERE]
    with terminal(words, sandbox.environ) as screen:
        screen.type(answer)
        screen.ended()
        assert screen.process.stderr is not None
        assert b"destroys the data of volume 0 of volumeset/shop/data at here. Go on?" in screen.process.stderr.read()
    assert [each["lifecycleStage"] for each in sandbox.run("command", DATA, "-o", "json").json["items"]] == stage
