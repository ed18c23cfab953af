"""Root works as the owner of the state directory: no link in it, and nothing in it, makes root do anything as root."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.cli import commands
from tests.project.tree import ROOT
from tests.support import processes
from tests.support.command_sandbox import CommandResult, alone
from tests.support.host_sandbox import open_place
from tests.support.programs import OWNER, give_away, only_root
from tests.support.sandbox import SHOP, DaemonSandbox, eventually

pytestmark = only_root("only root can become another user")


def by_root(settings: Path, *words: str) -> CommandResult:
    """``reconciler WORDS`` for root, in a process that imports nothing more: modules may lie in a home of root."""
    ended = processes.reconciler(*words, cwd=Path("/"), environ={"RECONCILER_SETTINGS": str(settings)})
    return CommandResult(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def sandbox() -> Iterator[DaemonSandbox]:
    """A sandbox whose repository and state directory belong to another user."""
    with open_place() as place:
        sandbox = DaemonSandbox(place, SHOP)
        sandbox.state.mkdir(mode=0o700)
        give_away(sandbox.state, sandbox.repo.path)
        yield sandbox


@pytest.fixture
def vault(sandbox: DaemonSandbox) -> Path:
    """A directory that only root may enter."""
    vault = sandbox.path / "vault"
    vault.mkdir(mode=0o700)
    return vault


def owners(state: Path) -> set[tuple[int, int]]:
    return {(found.st_uid, found.st_gid) for path in (state, *state.rglob("*")) for found in [path.lstat()]}


def test_files_that_root_creates_belong_to_the_owner(sandbox: DaemonSandbox) -> None:
    result = by_root(sandbox.settings_file, "apply")
    assert result.code == 0, result.err
    assert owners(sandbox.state) == {(OWNER, OWNER)}
    assert len(sandbox.recorded()) == 3
    assert by_root(sandbox.settings_file, "suspend", "main").code == 0
    with sandbox.records() as records:
        assert records.events.list()[-1].message.startswith(os.environ.get("SUDO_USER") or "root")


@pytest.mark.parametrize("words", [["apply"], ["plan"], ["suspend", "main"], ["restore", "/nowhere"], ["doctor"]])
@pytest.mark.parametrize("name", ["lock", "records.sqlite", "records.sqlite-wal"])
def test_root_follows_no_link_out_of_the_state_directory(
    sandbox: DaemonSandbox, vault: Path, name: str, words: list[str]
) -> None:
    precious = vault / "shadow"
    precious.write_text("precious")
    precious.chmod(0o600)
    for target in (precious, vault / "new", Path("/etc/reconciler-test-new")):
        (sandbox.state / name).unlink(missing_ok=True)
        (sandbox.state / name).symlink_to(target)
        os.chown(sandbox.state / name, OWNER, OWNER, follow_symlinks=False)
        result = by_root(sandbox.settings_file, *words)
        assert "bug" not in result.out + result.err
        assert result.code in (1, 2) or words in (["plan"], ["doctor"])
        assert [path.name for path in vault.iterdir()] == ["shadow"]
        assert precious.read_text() == "precious"
        assert precious.stat().st_uid == 0
        assert not Path("/etc/reconciler-test-new").exists()


def test_root_backs_up_and_restores_where_only_root_may(sandbox: DaemonSandbox, vault: Path) -> None:
    assert by_root(sandbox.settings_file, "apply").code == 0
    file = vault / "records.sqlite"
    result = by_root(sandbox.settings_file, "backup", str(file))
    assert (result.code, result.err) == (0, "")
    found = file.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, [path.name for path in vault.iterdir()]) == (
        0o600,
        0,
        ["records.sqlite"],
    )
    before = sandbox.recorded()
    shutil.rmtree(sandbox.state)
    sandbox.state.mkdir(mode=0o700)
    give_away(sandbox.state)
    result = by_root(sandbox.settings_file, "restore", str(file))
    assert (result.code, result.err) == (0, "")
    assert (sandbox.recorded(), owners(sandbox.state)) == (before, {(OWNER, OWNER)})
    result = by_root(sandbox.settings_file, "restore", str(file))
    assert result.code == 1
    assert "there are records at" in result.err
    file.write_text("nonsense")
    result = by_root(sandbox.settings_file, "restore", str(file), "--force")
    assert f"{file} cannot be read as records" in result.err
    assert not [path for path in sandbox.state.iterdir() if "copy" in path.name]


def test_a_program_that_the_owner_may_not_read_is_no_bug(sandbox: DaemonSandbox, vault: Path) -> None:
    for part in ("reconciler", "schemas"):
        shutil.copytree(ROOT / part, vault / part, ignore=shutil.ignore_patterns("__pycache__"))
    result = alone(
        "apply", cwd=vault, fresh=True, PYTHONPATH=str(vault), RECONCILER_SETTINGS=str(sandbox.settings_file)
    )
    assert result.code == 1
    assert result.err.startswith("error: ")
    assert "cannot be read by the user 12345, to whom the state directory belongs" in result.err
    assert "Traceback" not in result.err


def test_a_plan_is_saved_where_root_may_write(sandbox: DaemonSandbox, vault: Path) -> None:
    out = vault / "plan.json"
    assert by_root(sandbox.settings_file, "plan", "--out", str(out)).code == 0
    assert json.loads(out.read_bytes())["summary"]
    result = by_root(sandbox.settings_file, "apply", "--plan", str(out))
    assert result.code == 0, result.err


def test_the_daemon_of_root_is_the_owner(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as running:
        eventually(lambda: len(sandbox.recorded()) == 3, "the shop is applied")
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        assert f"Uid:\t{OWNER}\t{OWNER}\t{OWNER}\t{OWNER}" in status
        assert f"Gid:\t{OWNER}\t{OWNER}\t{OWNER}\t{OWNER}" in status
        assert "CapEff:\t0000000000000000" in status
        assert by_root(sandbox.settings_file, "apply").code == 0
        assert running.stop() == 0


def test_a_state_directory_behind_a_link_of_another_user_is_refused(sandbox: DaemonSandbox, vault: Path) -> None:
    shutil.rmtree(sandbox.state)
    sandbox.state.symlink_to(vault)
    os.chown(sandbox.state, OWNER, OWNER, follow_symlinks=False)
    result = by_root(sandbox.settings_file, "apply")
    assert (result.code, list(vault.iterdir())) == (2, [])
    assert f"{sandbox.state} is a symbolic link of another user (uid {OWNER})" in result.err


def test_every_command_that_opens_the_state_directory_becomes_its_owner() -> None:
    folder = Path(commands.__file__).parent
    plain = {path.stem for path in folder.glob("*.py") if "read_settings(" in path.read_text()}
    opening = {path.stem for path in folder.glob("*.py") if "become_owner(" in path.read_text()}
    assert plain <= opening | {"backup", "settings"}, "backup becomes the owner for a while, settings opens no state"
