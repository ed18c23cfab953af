"""`reconciler secret`: files are encrypted, edited and rotated, and nothing of a secret stays anywhere else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
import time
from contextlib import chdir
from pathlib import Path

import pytest

from reconciler.sops.encrypt import decrypt_file
from reconciler.sops.keys import Keyring
from tests.support.git import git
from tests.support.records import reconciler as run
from tests.support.sops import fresh, needs_sops, sops
from tests.support.terminal import terminal

PLAIN = """# of the shop
kind: secret
name: db   # the one
type: dictionary
data:
  user: shop   # who
  password: correct horse
"""
PATIENCE = 60.0
PATIENT = """
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
print('editing', flush=True)
time.sleep(600)
"""
"""An editor that Ctrl-C ends without a word."""


@pytest.fixture(name="ours")
def _ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """An identity, which the environment names, and its recipient; db.yaml is there in plain text."""
    identity, recipient = fresh()
    (tmp_path / "identity.txt").write_text(identity)
    (tmp_path / "db.yaml").write_text(PLAIN)
    (tmp_path / "memory").mkdir()
    monkeypatch.setenv("SOPS_AGE_KEY_FILE", str(tmp_path / "identity.txt"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "memory"))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("SOPS_EDITOR", raising=False)
    return identity, recipient


def encrypted(folder: Path, recipient: str) -> bytes:
    """db.yaml, encrypted in place."""
    result = run("secret", "encrypt", "db.yaml", "--recipient", recipient, "--in-place", cwd=folder)
    assert (result.returncode, result.stdout) == (0, f"db.yaml: encrypted for {recipient}\n")
    assert result.stderr == "", "no commit has it"
    return (folder / "db.yaml").read_bytes()


def text_of(folder: Path, identity: str) -> str:
    """The content of db.yaml."""
    return decrypt_file((folder / "db.yaml").read_bytes(), Keyring((identity,))).text.decode()


def editor(folder: Path, script: str) -> None:
    """Make a Python ``script`` the editor; ``path`` is the file to edit in it."""
    (folder / "editor.py").write_text(
        f"import os, sys, time\nfrom pathlib import Path\npath = Path(sys.argv[1])\n{script}"
    )
    os.environ["EDITOR"] = f"{sys.executable} {folder / 'editor.py'}"


@pytest.fixture(autouse=True)
def _no_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "false")


def test_without_a_recipient_it_is_the_identity_of_this_host(tmp_path: Path, ours: tuple[str, str]) -> None:
    (tmp_path / "identity.txt").chmod(0o600)
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        "org: acme\nsources: [{name: main, url: x}]\nlocations: {here: {engine: recorded}}\n"
        f"secrets: {{identity: {tmp_path / 'identity.txt'}}}\n"
    )
    words = ("secret", "encrypt", "db.yaml", "--in-place", "--settings", str(settings))
    result = run(*words, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, f"db.yaml: encrypted for {ours[1]}\n"), result.stderr
    assert text_of(tmp_path, ours[0]) == PLAIN


def test_plain_text_that_git_has_stays_readable_there(tmp_path: Path, ours: tuple[str, str]) -> None:
    for words in (["init", "--quiet"], ["add", "db.yaml"]):
        git(tmp_path, *words)
    result = run("secret", "encrypt", "db.yaml", "--recipient", ours[1], "--in-place", cwd=tmp_path)
    assert (result.returncode, "stays readable in its history" in result.stderr) == (0, True)


@pytest.mark.parametrize("words", ["encrypt", "edit", "rotate"])
def test_help_has_an_example_and_fits_a_terminal(tmp_path: Path, words: str) -> None:
    result = run("secret", words, "--help", cwd=tmp_path)
    assert f"secret {words}" in result.stdout.rpartition("Example: ")[2]
    assert len(result.stdout.splitlines()) <= 40


def test_a_file_is_encrypted_in_place_and_keeps_its_layout(tmp_path: Path, ours: tuple[str, str]) -> None:
    (tmp_path / "db.yaml").chmod(0o640)
    raw = encrypted(tmp_path, ours[1]).decode()
    assert raw.startswith("# of the shop\nkind: secret\nname: db   # the one\ntype: dictionary\ndata:\n  user: ENC[")
    assert "correct" not in raw
    assert "who" not in raw
    assert (tmp_path / "db.yaml").stat().st_mode & 0o777 == 0o640
    assert text_of(tmp_path, ours[0]) == PLAIN
    checked = run("validate", "db.yaml", cwd=tmp_path)
    assert (checked.returncode, "1 notice in 1 document, 1 resource" in checked.stdout) == (0, True)


@needs_sops
def test_a_real_sops_opens_it(tmp_path: Path, ours: tuple[str, str]) -> None:
    encrypted(tmp_path, ours[1])
    assert b"password: correct horse\n" in sops(tmp_path, ours[0], "decrypt", "db.yaml").stdout


def test_rules_in_a_parent_folder_decide_recipients_and_fields(tmp_path: Path, ours: tuple[str, str]) -> None:
    ours_only = f"{{path_regex: '^shop/.*\\.yaml$', age: '{ours[1]}', encrypted_regex: ^password$}}"
    rules = f"creation_rules: [{{path_regex: other, age: age1no}}, {ours_only}]"
    (tmp_path / ".sops.yaml").write_text(rules)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "db.yaml").write_text(PLAIN)
    result = run("secret", "encrypt", "shop/db.yaml", cwd=tmp_path)
    assert "\n  user: shop   # who\n  password: ENC[" in result.stdout
    assert (tmp_path / "shop" / "db.yaml").read_text() == PLAIN
    result = run("secret", "encrypt", "db.yaml", cwd=tmp_path)
    assert (result.returncode, "fits db.yaml" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("", "not one mapping"),
        ("creation_rules: 1", "not a list"),
        ("creation_rules: [{}]", "no age recipient"),
        ("creation_rules: [{path_regex: '(', age: x}]", "path_regex"),
        ("creation_rules: [{age: [1]}]", "`age`"),
        ("creation_rules: [{age: x}]", "neither age1"),
        ("creation_rules: [{key_groups: [{}, {}]}]", "key groups"),
        ("creation_rules: [{age: x, encrypted_regex: a, encrypted_suffix: b}]", "only sops"),
    ],
)
def test_faulty_rules_are_refused(tmp_path: Path, ours: tuple[str, str], rules: str, why: str) -> None:
    (tmp_path / ".sops.yaml").write_text(rules)
    result = run("secret", "encrypt", "db.yaml", cwd=tmp_path)
    assert (result.returncode, result.stdout, why in result.stderr) == (2, "", True), result.stderr


def test_encrypt_refuses_what_it_should_not_encrypt(tmp_path: Path, ours: tuple[str, str]) -> None:
    (tmp_path / "gvc.yaml").write_text(f"{PLAIN}---\nkind: gvc\nname: shop\n")
    for words, code, why in (
        (["db.yaml"], 2, "--recipient"),
        (["db.yaml", "gvc.yaml", "--recipient", ours[1]], 2, "--in-place"),
        (["gvc.yaml", "--recipient", ours[1]], 1, "only secrets"),
        (["db.yaml", "--recipient", ours[0]], 2, "must stay secret"),
    ):
        result = run("secret", "encrypt", *words, cwd=tmp_path)
        assert (result.returncode, result.stdout, why in result.stderr) == (code, "", True), result.stderr
        assert ours[0] not in result.stderr
    encrypted(tmp_path, ours[1])
    assert "already" in run("secret", "encrypt", "db.yaml", "--recipient", ours[1], cwd=tmp_path).stderr


def test_an_edit_is_private_and_changes_only_what_it_changes(tmp_path: Path, ours: tuple[str, str]) -> None:
    before = encrypted(tmp_path, ours[1]).decode().splitlines()
    editor(
        tmp_path,
        """
assert path.read_text() == Path("%s").read_text()
assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
assert str(path).startswith(os.environ["XDG_RUNTIME_DIR"])
path.write_text(path.read_text().replace("correct horse", "battery"))
"""
        % (tmp_path / "plain.yaml"),
    )
    (tmp_path / "plain.yaml").write_text(PLAIN)
    result = run("secret", "edit", "db.yaml", cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "db.yaml: changed\n", "")
    assert text_of(tmp_path, ours[0]) == PLAIN.replace("correct horse", "battery")
    after = (tmp_path / "db.yaml").read_text().splitlines()
    changed = [old.split(":")[0].strip() for old, new in zip(before, after, strict=True) if old != new]
    assert set(changed) - {"lastmodified"} == {"password", "mac"}
    assert list((tmp_path / "memory").iterdir()) == []


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("", 0, "db.yaml: unchanged"),
        ("sys.exit(3)", 1, "code 3"),
        ("path.unlink()", 1, "removed the file"),
        ("path.write_text('data: [')", 1, "line 1"),
        ("path.write_text('kind: secret')", 1, "nothing to encrypt"),
        ("Path('{0}').write_text('mine')\npath.write_text(path.read_text() + '# x')", 1, "another program"),
    ],
)
def test_an_edit_that_comes_to_nothing_leaves_the_file(
    tmp_path: Path, ours: tuple[str, str], script: str, code: int, message: str
) -> None:
    raw = encrypted(tmp_path, ours[1])
    editor(tmp_path, script.replace("{0}", str(tmp_path / "db.yaml")))
    result = run("secret", "edit", "db.yaml", cwd=tmp_path)
    assert (result.returncode, message in result.stdout + result.stderr) == (code, True), result.stderr
    assert (tmp_path / "db.yaml").read_bytes() in (raw, b"mine")
    assert "correct" not in result.stdout + result.stderr
    assert list((tmp_path / "memory").iterdir()) == []


def test_a_missing_editor_is_reported(tmp_path: Path, ours: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    encrypted(tmp_path, ours[1])
    monkeypatch.setenv("EDITOR", "no-such-editor")
    result = run("secret", "edit", "db.yaml", cwd=tmp_path)
    assert (result.returncode, "no-such-editor does not start" in result.stderr) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_the_text_away(tmp_path: Path, ours: tuple[str, str], number: signal.Signals) -> None:
    raw = encrypted(tmp_path, ours[1])
    editor(tmp_path, f"Path('{tmp_path / 'begun'}').touch()\ntime.sleep(60)")
    command = [sys.executable, "-m", "reconciler.cli", "secret", "edit", "db.yaml"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert len(list((tmp_path / "memory").iterdir())) == 1
    process.send_signal(number)
    assert process.wait(PATIENCE) == 128 + number
    assert list((tmp_path / "memory").iterdir()) == []
    assert (tmp_path / "db.yaml").read_bytes() == raw


@pytest.mark.parametrize(
    ("edit", "answers", "shown", "sentence"),
    [
        ("", b"", "editing", "nothing was changed"),
        ("path.write_text(path.read_text() + 'more: new words')", b"", "editing", "nothing was changed"),
        ("path.write_text('data: [new words'); sys.exit()", b"", "Edit it again?", ""),
        ("path.write_text('data: [new words')", b"y\r", "Edit it again?", ""),
    ],
    ids=["unchanged", "saved", "asked", "asked twice"],
)
def test_ctrl_c_leaves_the_file_and_no_plain_text(
    tmp_path: Path, ours: tuple[str, str], edit: str, answers: bytes, shown: str, sentence: str
) -> None:
    raw = encrypted(tmp_path, ours[1])
    # The second time it only edits.
    once = f"if not Path('{tmp_path}/begun').exists():\n    Path('{tmp_path}/begun').touch()\n    {edit or 'pass'}\n"
    ends = "" if answers or shown != "editing" else PATIENT
    editor(tmp_path, once + ends)
    command = [sys.executable, "-m", "reconciler.cli", "secret", "edit", "db.yaml"]
    with chdir(tmp_path), terminal(command, {**os.environ, "TERM": "xterm"}, controlling=True) as screen:
        before = termios.tcgetattr(screen._master)[:4]
        for key in filter(None, [answers]):
            screen.until(lambda text: text.count(shown) == 1, "the question")
            screen.type(key)
        count = 2 if answers else 1
        screen.until(lambda text: text.count(shown) == count, "what it waits for")
        assert len(list((tmp_path / "memory").iterdir())) == 1
        screen.interrupt()
        text = screen.ended()
        assert (screen.process.returncode, "Traceback" in screen.written) == (130, False), text
        assert (sentence in text, termios.tcgetattr(screen._master)[:4]) == (True, before)
        assert "correct horse" not in text
        assert "new words" not in text
    assert list((tmp_path / "memory").iterdir()) == []
    assert (tmp_path / "db.yaml").read_bytes() == raw
    assert sorted(path.name for path in tmp_path.glob("*db.yaml*")) == ["db.yaml"]


def test_readers_come_and_go(tmp_path: Path, ours: tuple[str, str]) -> None:
    raw = encrypted(tmp_path, ours[1])
    other, theirs = fresh()
    result = run("secret", "rotate", "db.yaml", "--add", theirs, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "db.yaml: encrypted with a new key\n")
    assert text_of(tmp_path, ours[0]) == text_of(tmp_path, other) == PLAIN
    assert run("secret", "rotate", "db.yaml", "--remove", ours[1], cwd=tmp_path).returncode == 0
    assert text_of(tmp_path, other) == PLAIN
    result = run("secret", "edit", "db.yaml", cwd=tmp_path)
    assert (result.returncode, "not encrypted for the identity" in result.stderr) == (1, True)
    (tmp_path / "db.yaml").write_bytes(raw)
    for words, code, why in (
        (["--remove", theirs], 1, "not encrypted for"),
        (["--remove", ours[1]], 1, "be decrypted"),
        (["--add", "age1x"], 2, "neither age1"),
    ):
        result = run("secret", "rotate", "db.yaml", *words, cwd=tmp_path)
        assert (result.returncode, why in result.stderr) == (code, True), result.stderr
        assert (tmp_path / "db.yaml").read_bytes() == raw


def test_the_identity_of_the_settings_opens_files_too(
    tmp_path: Path, ours: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    encrypted(tmp_path, ours[1])
    monkeypatch.delenv("SOPS_AGE_KEY_FILE")
    result = run("secret", "rotate", "db.yaml", cwd=tmp_path)
    assert (result.returncode, "SOPS_AGE_KEY_FILE" in result.stderr) == (2, True)
    settings = "org: acme\nsources: [{name: main, url: .}]\nsecrets: {identity: identity.txt}\n"
    (tmp_path / "settings.yaml").write_text(settings)
    (tmp_path / "identity.txt").chmod(0o644)
    result = run("secret", "rotate", "db.yaml", "--settings", "settings.yaml", cwd=tmp_path)
    assert (result.returncode, "read or changed by others" in result.stderr) == (1, True)
    (tmp_path / "identity.txt").chmod(0o600)
    assert run("secret", "rotate", "db.yaml", "--settings", "settings.yaml", cwd=tmp_path).returncode == 0
    (tmp_path / "other.txt").write_text("nothing")
    result = run("secret", "rotate", "db.yaml", "--identity", "other.txt", cwd=tmp_path)
    assert (result.returncode, "line 1" in result.stderr, "nothing" in result.stderr) == (2, True, False)
