"""A daemon of its own, and a receiver: what is pushed is sent, also after SIGKILL; the secrets are nowhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.reasons import Reason
from reconciler.records.store import FILE, Records
from reconciler.records.tables.events import NewEvent
from tests.notifications.receiver import Receiver
from tests.support.git import GitRepo
from tests.support.sandbox import GVC, DaemonSandbox, eventually, workload
from tests.support.waiting import serving

SECRET = "planted-7f3a"
STATES = ["pending", "running", "success", "failure", "recovery", "superseded"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    with serving(server):
        yield server


def make_sandbox(tmp_path: Path, receiver: Receiver) -> DaemonSandbox:
    """A sandbox that sends all states of runs to ``receiver``, after what was applied before."""
    sandbox = DaemonSandbox(tmp_path)
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "url").write_text(f"{receiver.url}/{SECRET}")
    hook = {"urlFile": str(tmp_path / "url"), "secretFile": str(tmp_path / "secret")}
    rule = {"name": "all", "channels": ["ops"], "states": STATES}
    sandbox.configure(notifications={"channels": {"ops": {"webhook": hook}}, "rules": [rule]})
    return sandbox


def tag_gvc(channel: str) -> str:
    """The GVC, which names ``channel``."""
    return f"{GVC}tags: {{reconciler/notify: {channel}}}\n"


def test_what_is_pushed_is_sent_and_the_secrets_are_nowhere(tmp_path: Path, receiver: Receiver) -> None:
    sandbox = make_sandbox(tmp_path, receiver)
    with sandbox.daemon() as daemon:
        eventually(lambda: any("is applied" in title for title in receiver.titles), "the first commit")
        refused = sandbox.repo.commit({"shop/api.yaml": workload("api").replace("spec:", "spce:")})
        eventually(lambda: any(refused[:12] in title and "refused" in title for title in receiver.titles), "a refusal")
        good = sandbox.repo.commit({"shop/api.yaml": workload("api", 8085)})
        recovered = f"main: {good[:12]} is applied; all is well again"
        eventually(lambda: recovered in receiver.titles, "the recovery")
    states = [event["data"]["state"] for event in receiver.events if event["data"]["commit"] == good]
    assert states in (["success"], ["running", "success"])
    [finding] = [event["data"]["findings"][0] for event in receiver.events if event["data"]["commit"] == refused]
    assert finding["path"] == "shop/api.yaml"
    with closing(sqlite3.connect(sandbox.state / FILE)) as records:
        assert SECRET not in "\n".join(records.iterdump())
    assert SECRET not in daemon.log_file.read_text()
    assert all(SECRET.encode() not in body for _, body in receiver.requests)
    assert all(SECRET not in str(headers) for headers, _ in receiver.requests)


def test_a_gvc_names_an_open_channel_and_is_sent_a_test_until_the_tag_is_gone(
    tmp_path: Path, receiver: Receiver
) -> None:
    sandbox = make_sandbox(tmp_path, receiver)
    hook = {"url": f"{receiver.url}/shop", "secretFile": str(tmp_path / "secret")}
    closed = {"url": f"{receiver.url}/ops", "secretFile": str(tmp_path / "secret")}
    sandbox.configure(
        notifications={"channels": {"ops": {"webhook": closed}, "shop": {"webhook": hook, "gvcs": ["shop"]}}}
    )
    with sandbox.daemon():
        refused = sandbox.repo.commit({"shop/gvc.yaml": tag_gvc("ops")})
        eventually(lambda: any(refused[:12] in title and "not open" in title for title in receiver.titles), "a refusal")
        assert "there is no rule 'gvc/shop'" in sandbox.run("notify", "test", "gvc/shop").stderr
        named = sandbox.repo.commit({"shop/gvc.yaml": tag_gvc("shop")})
        eventually(lambda: sandbox.applied(named), "the tag is applied")
        answer = sandbox.run("notify", "test", "gvc/shop")
        assert (answer.returncode, "A test of the rule gvc/shop" in answer.stdout) == (0, True), answer.stderr
        tests = [path for path, title in zip(receiver.paths, receiver.titles, strict=True) if "A test of" in title]
        assert [path.rpartition("/")[2] for path in tests] == ["shop"]
        without = sandbox.repo.commit({"shop/gvc.yaml": GVC})
        eventually(lambda: sandbox.applied(without), "the tag is gone")
        assert "there is no rule 'gvc/shop'" in sandbox.run("notify", "test", "gvc/shop").stderr


def test_without_the_setting_nothing_is_written(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    with sandbox.daemon():
        eventually(lambda: "workload/shop/api@here" in sandbox.recorded(), "the first commit is applied")
    with closing(sqlite3.connect(sandbox.state / FILE)) as records:
        for table in ("notices", "deliveries", "troubles", "trouble_groups"):
            assert records.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_a_daemon_that_is_killed_again_and_again_sends_each_commit_once(
    tmp_path: Path, receiver: Receiver, kills: int
) -> None:
    sandbox = make_sandbox(tmp_path, receiver)
    commits = []
    for kill in range(kills):
        with sandbox.daemon() as daemon:
            commits.append(sandbox.repo.commit({"shop/api.yaml": workload("api", 8100 + kill)}))
            eventually(lambda: sandbox.applied(commits[-1]), "it is applied")
            daemon.process.kill()
            daemon.process.wait()
    with sandbox.daemon():
        eventually(
            lambda: commits[-1] in {event["data"]["commit"] for event in receiver.events}, "the last one is sent"
        )
    ids: dict[str, set[str]] = {}
    for event in receiver.events:
        if event["data"]["state"] == "success":
            ids.setdefault(event["data"]["commit"], set()).add(event["id"])
    assert all(len(names) == 1 for names in ids.values()), "a repetition has the id of the first"
    assert commits[-1] in ids


def test_what_moves_between_sources_is_sent_to_the_new_one_and_its_end_to_both(
    tmp_path: Path, receiver: Receiver
) -> None:
    sandbox = DaemonSandbox(tmp_path)
    (tmp_path / "secret").write_text(SECRET)
    files = {f"{name}.yaml": workload(name, more="gvc: shop\n") for name in ("side", "stays")}
    side = GitRepo.create(tmp_path / "side.git", {**files})
    fields = {"events": ["cron"], "wait": "0s", "interval": "0s"}
    rules = [{"name": name, "channels": [name], "sources": [name], **fields} for name in ("main", "side")]
    hooks = {
        name: {"webhook": {"url": f"{receiver.url}/{name}", "secretFile": str(tmp_path / "secret")}}
        for name in ("main", "side")
    }
    sandbox.configure(
        sources=[sandbox.source(), sandbox.source("side")], notifications={"channels": hooks, "rules": rules}
    )
    key = "workload/shop/side"

    def happen(reason: Reason) -> None:
        with closing(Records.open(sandbox.state / FILE)) as records:
            records.events.append_many([NewEvent(key, reason, "it exits with 1", "here")])

    def sent(name: str) -> list[str]:
        pairs = zip(receiver.paths, receiver.titles, strict=True)
        return [title for path, title in pairs if path.endswith(f"/{name}")]

    begins, ends = f"{key} has failing executions", f"{key} is well again"
    with sandbox.daemon():
        eventually(lambda: f"{key}@here" in sandbox.recorded(), "it is applied")
        happen(Reason.EXECUTIONS_FAILING)
        eventually(lambda: sent("side") == [begins], "its first source is sent the beginning")
        assert sandbox.run("orphan", key).returncode == 0
        gone = side.commit({"side.yaml": None})
        eventually(lambda: sandbox.applied(gone, "side"), "its first source has it no more")
        sandbox.repo.commit({"shop/side.yaml": workload("side")})
        eventually(lambda: sandbox.recorded()[f"{key}@here"].source == "main", "it is of the other source")
        eventually(lambda: sent("main") == [begins], "that one is sent the beginning too")
        happen(Reason.EXECUTIONS_RECOVERED)
        eventually(lambda: sent("main") == sent("side") == [begins, ends], "both are sent the end")
