"""Members of the group `readers` can read without access to the records, and can do nothing else."""

from __future__ import annotations

import grp
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from reconciler.cli import cli
from reconciler.cli.reader_requests import COMMANDS
from reconciler.daemon.api_process import SOCKET
from reconciler.records.store import FILE
from tests.support import processes
from tests.support.command_sandbox import SHOP, CommandResult, CommandSandbox, workload
from tests.support.programs import only_root
from tests.support.sandbox import DaemonProcess, DaemonSandbox, eventually

PASSWORD = "not-a-real-password"
GROUP = "users"
STRANGER = 12_345

becoming_another = only_root("only root can become another user")


@contextmanager
def with_readers() -> Iterator[DaemonSandbox]:
    """A sandbox with readers, in a place that every user may enter."""
    path = Path(tempfile.mkdtemp(prefix="reconciler-test-"))
    path.chmod(0o755)
    sandbox = DaemonSandbox(path, SHOP)
    sandbox.configure(readers=GROUP, sources=[sandbox.source(interval="1h")])
    sandbox.settings_file.chmod(0o644)
    yield sandbox
    shutil.rmtree(path)


@pytest.fixture
def sandbox() -> Iterator[DaemonSandbox]:
    """A sandbox with readers for one test, which starts its daemon."""
    with with_readers() as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[DaemonSandbox, DaemonProcess]]:
    """A sandbox and its daemon, for tests that change neither; the daemon ends in peace after the last of them."""
    with with_readers() as sandbox, sandbox.daemon() as daemon:
        ready(sandbox, daemon)
        yield sandbox, daemon
        assert all("text" not in line for line in daemon.log())
        assert daemon.stop() == 0


@pytest.fixture(scope="module")
def served(running: tuple[DaemonSandbox, DaemonProcess]) -> DaemonSandbox:
    """The sandbox whose daemon runs."""
    return running[0]


@pytest.fixture(scope="module")
def daemon(running: tuple[DaemonSandbox, DaemonProcess]) -> DaemonProcess:
    """The daemon that runs."""
    return running[1]


def member(
    sandbox: DaemonSandbox, *words: str, groups: Sequence[int] | None = None
) -> subprocess.CompletedProcess[str]:
    """One command of a member of the group, or of a user in the ``groups``."""
    return processes.reconciler(*words, environ=sandbox.environ, user=STRANGER, groups=_own(groups))


def _without_ages(text: str) -> str:
    """``text`` without the seconds since something happened."""
    return re.sub(r"\b\d+s(?=\s)", "<age>", text)


def _own(groups: Sequence[int] | None = None) -> Sequence[int]:
    return [grp.getgrnam(GROUP).gr_gid] if groups is None else groups


def ready(sandbox: DaemonSandbox, daemon: DaemonProcess) -> None:
    eventually(lambda: sandbox.applied(sandbox.repo.git("rev-parse", "main")), "the first commit is applied")
    eventually(lambda: (sandbox.state / SOCKET).exists(), "readers are let in")
    assert daemon.logged("readers") == []


@becoming_another
@pytest.mark.parametrize(
    "words",
    [
        ["get"],
        ["get", "-o", "wide", "--no-headers"],
        ["get", "-o", "yaml"],
        ["get", "-o", "name", "--sort-by", "-.name", "--limit", "3"],
        ["get", "-o", "jsonpath={.items[*].name}"],
        ["get", "secret", "db", "-o", "yaml"],
        ["get", "sources", "-o", "json"],
        ["get", "--since", "2h", "-l", "!team", "-o", "json"],
        ["get", "-l", "a=b=c"],
        ["get", "-l", "team=none"],
        ["describe", "web", "-o", "json"],
        ["describe", "main", "-o", "jsonpath={.live}"],
        ["status", "-o", "yaml"],
        ["history", "-o", "yaml", "--since", "1h30m"],
        ["events", "-o", "yaml", "--limit", "3"],
        ["get", "-o", "json"],
        ["describe", "workload/shop/web"],
        ["describe", "secret/db"],
        ["describe", "wl", "web", "--gvc", "shop"],
        ["events", "web", "-o", "json"],
        ["status"],
        ["status", "web", "-o", "json"],
        ["status", "wbe"],
        ["history"],
        ["history", "main", "--last", "1", "-o", "json"],
        ["history", "nonsense"],
        ["describe", "source/main"],
        ["get", "gvc"],
        ["get", "secret", "none"],
        ["events", "secret/db", "-o", "json"],
        ["snapshots"],
        ["notify", "list"],
        ["notifications", "-o", "json"],
        ["snapshots", "workload/shop/web"],
        ["snapshots", "--deleted", "-o", "json"],
        ["top", "-o", "json"],
        ["plan", "--format", "markdown"],
        ["plan", "--revision", "nonsense"],
        ["plan", "--source", "nonsense"],
        ["events", "--last", "5"],
        ["events", "none", "--last", "0"],
        ["plan"],
        ["plan", "--revision", "main", "--format", "json"],
        ["get", "workload", "nonsense"],
        ["describe", "workload/shop/wbe"],
        ["get", "--settings", "SETTINGS"],
    ],
    ids=" ".join,
)
def test_a_member_sees_what_root_sees(served: DaemonSandbox, words: list[str]) -> None:
    words = [word.replace("SETTINGS", str(served.settings_file)) for word in words]
    asked, own = member(served, *words), served.run(*words)
    assert (asked.returncode, _without_ages(asked.stdout), asked.stderr) == (
        own.returncode,
        _without_ages(own.stdout),
        own.stderr,
    )
    assert asked.stdout + asked.stderr
    assert PASSWORD not in asked.stdout + asked.stderr


@becoming_another
def test_a_member_sees_what_a_commit_would_change_and_not_the_secret_in_it(served: DaemonSandbox) -> None:
    secret = str(SHOP["secrets.yaml"]).replace(PASSWORD, "an0ther-password")
    files = {"secrets.yaml": secret, "shop/web.yaml": workload("web", "2")}
    served.repo.commit(files, branch="feature", parent=served.repo.git("rev-parse", "main"))
    asked = member(served, "plan", "--revision", "feature", "--detailed-exitcode")
    assert asked.returncode == 3, asked.stderr
    assert "workload/shop/web" in asked.stdout
    assert "secret/db" in asked.stdout
    assert "an0ther" not in asked.stdout + asked.stderr


@becoming_another
def test_no_file_of_the_state_directory_is_open_to_a_member(served: DaemonSandbox) -> None:
    stat_result = served.state.stat()
    assert (stat.S_IMODE(stat_result.st_mode), stat_result.st_gid) == (0o710, grp.getgrnam(GROUP).gr_gid)
    script = "import os, sys; os.setgroups([int(sys.argv[2])]); os.setgid(NOBODY); os.setuid(NOBODY)\n"
    script += "for each in sys.argv[3:]: print(each, os.access(each, os.R_OK), os.access(each, os.W_OK))\n"
    script += "os.listdir(sys.argv[1])"
    files = [str(path) for path in served.state.rglob("*")]
    command = [
        sys.executable,
        "-c",
        script.replace("NOBODY", str(STRANGER)),
        str(served.state),
        str(stat_result.st_gid),
    ]
    result = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert "PermissionError" in result.stderr
    opened = [line.split()[0] for line in result.stdout.splitlines() if "True" in line]
    assert opened == [str(served.state / SOCKET)]
    assert str(served.state / FILE) in result.stdout


@becoming_another
def test_a_reader_outside_the_group_is_advised_to_join_it(served: DaemonSandbox) -> None:
    asked = member(served, "get", groups=[])
    assert asked.returncode == 1
    assert f"become a member of the group {GROUP}" in asked.stderr


@becoming_another
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["plan", "--out", "/tmp/reconciler-test-plan"], "plan: --out may not be used by readers"),
        (["suspend", "main"], "this user may not"),
        (["apply"], "cannot be written: Permission denied"),
        (["backup", "/tmp/reconciler-test-backup"], "`backup` is not for readers"),
    ],
)
def test_a_member_can_change_nothing(served: DaemonSandbox, words: list[str], why: str) -> None:
    before = served.recorded()
    asked = member(served, *words)
    assert asked.returncode in (1, 2)
    assert why in asked.stderr
    assert "Traceback" not in asked.stderr
    assert not any(Path(word).exists() for word in words if word.startswith("/tmp"))
    assert served.recorded() == before


@becoming_another
def test_events_are_followed_until_the_reader_goes(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as daemon:
        ready(sandbox, daemon)
        words, out = ["events", "--follow", "-o", "json", "--last", "1"], sandbox.path / "followed"
        with out.open("wb") as written:
            command = ["-m", "reconciler.cli", *words]
            following = processes.start(
                command, written, written, environ=sandbox.environ, user=STRANGER, groups=_own()
            )
            try:
                eventually(lambda: out.read_text().count("\n") == 1, "the last event comes")
                sandbox.repo.commit({"shop/web.yaml": workload("web", "2")})
                eventually(lambda: '"Updated"' in out.read_text(), "what happens comes")
            finally:
                following.kill()
                following.wait()
        assert daemon.process.poll() is None


@becoming_another
def test_readers_come_and_go_with_the_settings(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as daemon:
        ready(sandbox, daemon)
        sandbox.configure(readers="root")
        eventually(lambda: sandbox.state.stat().st_gid == 0, "another group is let in")
        assert "become a member of the group root" in member(sandbox, "get").stderr
        del sandbox.settings["readers"]
        sandbox.configure()
        daemon.signal(signal.SIGHUP)
        eventually(lambda: not (sandbox.state / SOCKET).exists(), "no reader is accepted")
        assert stat.S_IMODE(sandbox.state.stat().st_mode) == 0o700
        assert member(sandbox, "get").returncode == 1
        sandbox.configure(readers="no-such-group")
        daemon.signal(signal.SIGHUP)
        eventually(lambda: daemon.logged("readers", group="no-such-group"), "a missing group is logged")
        assert daemon.stop() == 0


@becoming_another
def test_without_a_daemon_there_are_no_answers(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as daemon:
        ready(sandbox, daemon)
        assert daemon.stop() == 0
    asked = member(sandbox, "get")
    assert asked.returncode == 1
    assert "reconciler get" not in asked.stdout
    assert len(asked.stderr.splitlines()) == 1


def test_every_command_of_readers_exists() -> None:
    assert all(cli.get_command(click.Context(cli), name) is not None for name in COMMANDS)


def test_doctor_reports_what_readers_lack(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    plain = sandbox.settings.read_text()
    sandbox.settings.write_text(f"readers: no-such-group\n{plain}")
    assert "this host has no group no-such-group" in _messages(sandbox.run("doctor", "--format", "json"))
    sandbox.settings.write_text(f"readers: {GROUP}\n{plain}")
    sandbox.settings.chmod(0o600)
    assert f"the group {GROUP} may not read" in _messages(sandbox.run("doctor", "--format", "json"))
    sandbox.settings.chmod(0o644)
    assert f"members of {GROUP} may read" in _messages(sandbox.run("doctor", "--format", "json"))


def _messages(result: CommandResult) -> str:
    checks: list[dict[str, Any]] = result.json["checks"]
    return "\n".join(each["message"] for each in checks if each["about"] == "readers")
