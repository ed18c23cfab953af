"""`reconciler notify` and `reconciler mute`: what was sent, to whom, and what is not sent for a while."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.records.store import FILE, Records
from tests.notifications.receiver import Receiver
from tests.support.sandbox import DaemonSandbox, eventually, workload
from tests.support.waiting import serving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    with serving(server):
        yield server


@pytest.fixture
def sandbox(tmp_path: Path, receiver: Receiver) -> DaemonSandbox:
    (tmp_path / "secret").write_text("hunter2-secret")
    harness = DaemonSandbox(tmp_path)
    hook = {"url": receiver.url, "secretFile": str(tmp_path / "secret")}
    harness.configure(notifications={"channels": {"ops": {"webhook": hook}}})
    return harness


def find_last_status(sandbox: DaemonSandbox) -> str:
    """How the last message stands."""
    with sandbox.records() as records:
        return str(records.deliveries.list(1)[0].status)


def test_a_rule_is_tried_and_what_was_sent_is_listed(sandbox: DaemonSandbox, receiver: Receiver) -> None:
    with sandbox.daemon():
        eventually(lambda: "workload/shop/api@here" in sandbox.recorded(), "the first commit is applied")
        tried = sandbox.run("notify", "test", "ops")
        assert (tried.returncode, "sent" in tried.stdout) == (0, True), tried
        assert receiver.titles == ["A test of the rule ops"]
        receiver.answers = [(401, {})]
        refused = sandbox.run("notify", "test")
        assert (refused.returncode, "127.0.0.1 answers 401" in refused.stdout) == (1, True), refused
        broken = sandbox.repo.commit({"shop/api.yaml": workload("api").replace("spec:", "spce:")})
        eventually(lambda: any(broken[:12] in title for title in receiver.titles), "the refusal is sent")
        eventually(lambda: find_last_status(sandbox) == "sent", "its end is recorded")
    listed = sandbox.run("notify", "list")
    lines = [line.split() for line in listed.stdout.splitlines() if not line.startswith("      ")]
    assert [line[3] for line in lines] == ["sent", "refused", "sent"]
    items = json.loads(sandbox.run("notify", "list", "-o", "json").stdout)["items"]
    assert [(item["event"], item["status"]) for item in items] == [
        ("refused", "sent"),
        ("test", "refused"),
        ("test", "sent"),
    ]
    shown = sandbox.run("notify", "show", str(items[0]["id"]))
    assert "The last good revision stays applied." in shown.stdout
    assert "hunter2" not in listed.stdout + shown.stdout + json.dumps(items)
    missing = sandbox.run("notify", "show", "4711")
    assert (missing.returncode, "there is no message 4711" in missing.stderr) == (1, True)


def test_without_a_daemon_a_test_waits_and_unknown_rules_are_refused(sandbox: DaemonSandbox) -> None:
    sandbox.run("apply")
    tried = sandbox.run("notify", "test")
    assert (tried.returncode, tried.stdout) == (0, "no daemon runs; the next one sends it\n"), tried
    unknown = sandbox.run("notify", "test", "opps")
    assert (unknown.returncode, "there is no rule 'opps'; did you mean ops?" in unknown.stderr) == (1, True), unknown


def test_without_the_setting_a_test_is_refused(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    sandbox.run("apply")
    tried = sandbox.run("notify", "test")
    assert (tried.returncode, "the settings have no `notifications`" in tried.stderr) == (1, True), tried


def test_a_mute_has_a_reason_and_an_end(sandbox: DaemonSandbox) -> None:
    sandbox.run("apply")
    for words in (("gvc/shop", "--reason", "x"), ("gvc/shop", "--until", "2h"), ("gvc/none", "--until", "2h")):
        assert sandbox.run("mute", *words).returncode in (1, 2), words
    muted = sandbox.run("mute", "gvc/shop", "--reason", "the  database\nmoves", "--until", "2h")
    assert (muted.returncode, muted.stdout.startswith("nothing is sent about gvc/shop until ")) == (0, True), muted
    assert "the database moves" in sandbox.run("mute").stdout
    records = Records.open(sandbox.state / FILE, read_only=True)
    assert [mute.target for mute in records.mutes.all()] == ["gvc/shop"]
    records.close()
    assert sandbox.run("mute", "gvc/shop", "--end").returncode == 0
    assert sandbox.run("mute", "gvc/shop", "--end").returncode == 1
    assert sandbox.run("mute").stderr == "nothing is muted\n"
