"""Secret data stays where it is: in no output, no file but the records, no status and no log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.sops.encrypt import EncryptionRules, encrypt_secrets
from tests.cli.test_plan import CHANGED
from tests.support.command_sandbox import SECRET, SETTINGS, CommandSandbox
from tests.support.git import File
from tests.support.rule_cases import private
from tests.support.sops import MOMENT, fresh

OLD, NEW = "canary-5d41402a-old", "canary-7d793037-new"
CANARY = "canary-"
PATIENCE = 60.0

WRONG: dict[str, str] = {
    "a list": f"kind: secret\nname: x\ntype: dictionary\ndata: [{OLD}]\n",
    "a text": f"kind: secret\nname: x\ntype: dictionary\ndata: {OLD}\n",
    "a deeper value": f"kind: secret\nname: x\ntype: dictionary\ndata: {{password: {{inner: {OLD}}}}}\n",
    "another field": f"kind: secret\nname: x\ntype: opaque\ndata: {{payload: {OLD}, paylod: {OLD}}}\n",
    "a wrong choice": f"kind: secret\nname: x\ntype: opaque\ndata: {{payload: {OLD}, encoding: {OLD}}}\n",
    "no type": f"kind: secret\nname: x\ndata: {{password: {OLD}}}\n",
    "a wrong type": f"kind: secret\nname: x\ntype: usrpass\ndata: {{password: {OLD}}}\n",
    "a missing quote": f'kind: secret\nname: x\ntype: dictionary\ndata:\n  password: "{OLD}\n',
    "a tab": f"kind: secret\nname: x\ntype: dictionary\ndata:\n\tpassword: {OLD}\n",
    "a tag": f"kind: secret\nname: x\ntype: dictionary\ndata:\n  password: !{OLD} {OLD}\n",
    "a key twice": f"kind: secret\nname: x\ntype: dictionary\ndata: {{password: {OLD}, password: {OLD}}}\n",
    "an alias": f"kind: secret\nname: x\ntype: dictionary\ndata: {{password: *{OLD}}}\n",
    "a merge": f"kind: secret\nname: x\ntype: dictionary\ndata:\n  <<: {OLD}\n",
}


STARTED: list[str] = []
"""Arguments and environment of every process that was started while ``watched`` was on."""
watched: list[bool] = []


def _note(event: str, args: tuple[object, ...]) -> None:
    if watched and event in ("subprocess.Popen", "os.exec", "os.posix_spawn"):
        STARTED.append(repr(args))


sys.addaudithook(_note)


def all_output(sandbox: CommandSandbox) -> Iterator[str]:
    """The output of every command on the current state, and the arguments of programs that it starts."""
    forms = ("text", "json", "markdown")
    watched.append(True)
    for words in (
        *(["validate", "--format", form] for form in ("text", "json", "github", "gitlab", "sarif")),
        *(["plan", "--format", form, "--blame"] for form in forms),
        ["plan", "--out", "plan.json"],
        ["apply", "--plan", "plan.json"],
        ["apply"],
        *(["diff", "main~1", "main", "--format", form, "--blame"] for form in forms),
        *(["get", "-o", form] for form in ("text", "json", "yaml")),
        ["describe", "secret/db"],
        ["describe", "workload/shop/api"],
        ["events"],
        ["events", "-o", "json"],
        ["history"],
        ["history", "-o", "json"],
        ["drift"],
        ["drift", "-o", "json"],
        ["doctor"],
        ["doctor", "--format", "json"],
        ["suspend", "secret/db"],
        ["resume", "secret/db"],
        ["orphan", "secret/db"],
        ["adopt", "secret/db"],
        ["retry", "secret/db"],
        ["rollback", "main", "main"],
        ["resume", "main"],
        ["approve", "deadbeef"],
        ["backup", "copy.sqlite"],
        ["restore", "copy.sqlite"],
        ["sync"],
    ):
        result = sandbox.run(*words)
        assert "Traceback" not in result.err
        yield result.out + result.err
    watched.pop()
    yield (sandbox.path / "plan.json").read_text()


def left_behind(sandbox: CommandSandbox, *, records: bool = False) -> Iterator[bytes]:
    """Every byte on the disk but for the manifests themselves, and every byte of the status branch.

    Of the ``records`` and their backup only where nothing secret may be in them either.
    """
    for path in (*sandbox.state.rglob("*"), sandbox.path / "copy.sqlite"):
        if path.is_file() and (records or ".sqlite" not in path.name):
            yield path.read_bytes()
    listed = sandbox.repo.git("rev-list", "--objects", "reconciler/status", "--not", "main").splitlines()
    for line in listed:
        yield sandbox.repo.git("cat-file", "-p", line.split()[0]).encode()


def test_no_command_shows_secret_data_and_no_file_but_the_records_holds_it(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.commit({"secrets.yaml": SECRET.format(password=OLD)})
    output = list(all_output(sandbox))
    sandbox.commit(CHANGED | {"secrets.yaml": SECRET.format(password=NEW)})
    output += all_output(sandbox)
    sandbox.commit({"secrets.yaml": SECRET.format(password=OLD) + "descripton: x\n"})
    output += all_output(sandbox)
    assert [text for text in output if CANARY in text] == []
    assert [text for text in left_behind(sandbox) if CANARY.encode() in text] == []
    assert STARTED
    assert [each for each in STARTED if CANARY in each] == []


@pytest.mark.parametrize("form", ["encrypted", "on this host"])
def test_encrypted_and_hosted_values_are_not_in_the_records(tmp_path: Path, form: str) -> None:
    sandbox = CommandSandbox(tmp_path)
    identity, recipient = fresh()
    private(tmp_path / "host" / "age.txt", identity)
    sandbox.settings.write_text(f"{SETTINGS}secrets: {{identity: host/age.txt, directory: host}}\n")

    def secret(value: str) -> bytes:
        plain, _, policy = SECRET.partition("---")
        private(tmp_path / "host" / "db", value)
        if form == "encrypted":
            return (
                encrypt_secrets(plain.format(password=value).encode(), [recipient], EncryptionRules(), MOMENT)
                + f"---{policy}".encode()
            )
        return SECRET.format(password="{file: db}").encode()

    sandbox.commit({"secrets.yaml": secret(OLD)})
    output = list(all_output(sandbox))
    assert "secret/db" in sandbox.recorded()
    sandbox.commit({"secrets.yaml": secret(NEW)})
    output += all_output(sandbox)
    (tmp_path / "host" / ("age.txt" if form == "encrypted" else "db")).chmod(0o644)
    sandbox.commit({"secrets.yaml": secret(OLD) + b"# more\n"})
    output += all_output(sandbox)
    assert any("others" in text for text in output), "what can no longer be decrypted is reported"
    assert [text for text in output if CANARY in text or identity in text] == []
    assert [text for text in left_behind(sandbox, records=True) if CANARY.encode() in text] == []
    assert [each for each in STARTED if CANARY in each or identity in each] == []


def test_the_records_that_hold_it_are_for_their_owner_alone(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    assert sandbox.state.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in sandbox.state.glob("records.sqlite*"))


def test_a_changed_secret_shows_as_changed(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    sandbox.commit({"secrets.yaml": SECRET.format(password=NEW)})
    (step,) = sandbox.plan()["steps"]
    assert step["key"] == "secret/db"
    assert [(change["path"], change["before"], change["after"]) for change in step["changes"]] == [
        ("data.password", "***", "***")
    ]


@pytest.mark.parametrize("fault", WRONG)
def test_findings_do_not_quote_what_is_secret(tmp_path: Path, fault: str) -> None:
    (tmp_path / "m").mkdir()
    sandbox = CommandSandbox(tmp_path)
    (tmp_path / "m" / "secret.yaml").write_text(WRONG[fault])
    sandbox.commit({"wrong.yaml": WRONG[fault]})
    texts = []
    for words in (["validate", "m"], ["validate", "--format", "json"], ["apply"], ["events"]):
        result = sandbox.run(*words)
        assert result.code == (words == ["validate", "m"] or words[0] != "events"), result
        texts.append(result.out + result.err)
    assert [text for text in texts if CANARY in text] == []
    assert [text for text in left_behind(sandbox) if CANARY.encode() in text] == []


def test_the_log_of_the_daemon_reveals_no_secret(tmp_path: Path) -> None:
    files: dict[str, File] = {"secrets.yaml": SECRET.format(password=OLD)}
    sandbox = CommandSandbox(tmp_path)
    sandbox.settings.write_text(sandbox.settings.read_text() + "log: {level: debug}\n")
    sandbox.commit(files)
    log = tmp_path / "log"
    with log.open("wb") as file:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "reconciler.cli", "run", "--settings", str(sandbox.settings)],
            stdout=file,
            stderr=file,
            env={**os.environ, "NOTIFY_SOCKET": ""},
        )
    try:
        follow(sandbox, sandbox.repo.git("rev-parse", "main"), daemon)
        follow(sandbox, sandbox.commit({"secrets.yaml": SECRET.format(password=NEW)}), daemon)
        follow(sandbox, sandbox.commit({"secrets.yaml": WRONG["a text"]}), daemon)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(PATIENCE)
    assert b"applied" in log.read_bytes()
    assert CANARY.encode() not in log.read_bytes()
    assert [text for text in left_behind(sandbox) if CANARY.encode() in text] == []


def follow(sandbox: CommandSandbox, commit: str, daemon: subprocess.Popen[bytes]) -> None:
    """Return when the daemon has written in its log that it read ``commit``."""
    deadline = time.monotonic() + PATIENCE
    while commit.encode() not in (sandbox.path / "log").read_bytes():
        assert daemon.poll() is None, (sandbox.path / "log").read_text()
        assert time.monotonic() < deadline, (sandbox.path / "log").read_text()
        time.sleep(0.02)
