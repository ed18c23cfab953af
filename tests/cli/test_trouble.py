"""An expected error is one line with a way out; a traceback would be a bug."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from reconciler.cli.commands import apply
from reconciler.daemon.lock import StateLock
from reconciler.records.store import FILE
from tests.support.command_sandbox import CommandSandbox

STRANGER = 65534

READERS = (["get"], ["describe", "workload/shop/api"], ["events"], ["plan"], ["validate"])
ALL = (*READERS, ["apply"], ["approve", "0" * 32])
AND_THE_DAEMON = (*ALL, ["run"])


def complaint_of(sandbox: CommandSandbox, words: list[str], code: int = 1) -> str:
    """The one complaint with which a command ends."""
    result = sandbox.run(*words)
    assert result.code == code, result
    assert result.err.startswith("error: "), result
    assert result.out == ""
    return result.err


@pytest.mark.parametrize("words", AND_THE_DAEMON, ids=lambda words: words[0])
def test_settings_with_faults_are_named_with_their_places(tmp_path: Path, words: list[str]) -> None:
    sandbox = CommandSandbox(tmp_path, settings="org: acme\nsorces: []\nsources: [\n")
    assert f"{sandbox.settings}:" in complaint_of(sandbox, words, 2)
    sandbox.settings.write_text("org: acme\nsorces: []\nsources: [{name: main, url: ./m, interval: soon}]\n")
    complaint = complaint_of(sandbox, words, 2)
    assert f"{sandbox.settings}:2:1: error: unknown field `sorces` [unknown-field]\n     2 | sorces: []\n" in complaint
    assert f"{sandbox.settings}:3:" in complaint, "all faults are reported at once"


@pytest.mark.parametrize("words", AND_THE_DAEMON, ids=lambda words: words[0])
def test_records_of_a_newer_program_are_left_alone(tmp_path: Path, words: list[str]) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    with sqlite3.connect(sandbox.state / FILE) as records:
        records.execute("PRAGMA user_version = 999")
    records.close()
    assert "made by a newer reconciler" in complaint_of(sandbox, words)


@pytest.mark.parametrize("words", ALL, ids=lambda words: words[0])
def test_records_that_are_no_records_are_named(tmp_path: Path, words: list[str]) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.state.mkdir()
    (sandbox.state / FILE).write_text("something else\n" * 100)
    assert str(sandbox.state / FILE) in complaint_of(sandbox, words)


@pytest.mark.parametrize("words", [["plan"], ["validate"], ["diff", "a", "b"]], ids=lambda words: words[0])
def test_a_repository_that_is_not_there_is_named(tmp_path: Path, words: list[str]) -> None:
    sandbox = CommandSandbox(tmp_path)
    shutil.rmtree(sandbox.repo.path)
    assert str(sandbox.repo.path) in complaint_of(sandbox, words)


def test_an_empty_repository_is_an_error_and_never_a_deletion(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    before = sandbox.recorded()
    sandbox.commit({"README.md": "all gone\n"}, whole=True)
    assert "holds no manifest" in complaint_of(sandbox, ["plan"])
    result = sandbox.run("apply")
    assert result.code == 1
    assert result.out.startswith("main: unreadable: source main: ")
    assert sandbox.recorded() == before


def test_history_that_was_rewritten_is_not_followed(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    sandbox.commit({"README.md": "another history\n", "gvc.yaml": "kind: gvc\nname: x\nspec: {}\n"}, parent="")
    assert "allowRewrite" in complaint_of(sandbox, ["plan"])
    assert sandbox.run("apply").out.startswith("main: unreadable: ")


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.state.write_text("a file where the directory should be")
    assert str(sandbox.state) in complaint_of(sandbox, ["get"])
    assert str(sandbox.state) in complaint_of(sandbox, ["apply"], 2)


def test_a_user_without_permission_gets_the_path_that_is_closed() -> None:
    with TemporaryDirectory() as folder:
        sandbox = CommandSandbox(Path(folder))
        sandbox.applied()
        for words in ALL:
            sandbox.run(*words)  # imports all modules that the other user may not be able to read
        sandbox.path.chmod(0o755)
        with as_somebody_else(sandbox.state):
            for words in ALL:
                assert str(sandbox.state) in complaint_of(sandbox, words, 2 if words == ["apply"] else 1), words


@contextmanager
def as_somebody_else(private: Path) -> Iterator[None]:
    """Without permission to read ``private``; root becomes another user, since root always may."""
    private.chmod(0)
    os.seteuid(STRANGER if os.getuid() == 0 else os.getuid())
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        private.chmod(0o700)


def test_a_full_disk_on_stdout_ends_in_one_line(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "reconciler.cli", "plan", "--settings", str(sandbox.settings)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == "error: the output could not be written: No space left on device\n"


def test_a_terminal_that_knows_few_signs_gets_all_the_words(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    sandbox.commit({"secrets.yaml": None, "shop/api.yaml": None})
    result = sandbox.run("plan", real=True, PYTHONIOENCODING="ascii")
    assert (result.code, result.err) == (0, "")


def test_a_daemon_that_ends_before_it_answers_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "GRACE_SECONDS", 0.2)
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    lock = StateLock(sandbox.state)
    lock.acquire("a daemon that does nothing")
    try:
        result = sandbox.run("apply", "--timeout", "0")
    finally:
        lock.release()
    assert result.code == 1
    assert "the daemon did not finish the run in time" in result.err
