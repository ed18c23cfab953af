"""A state directory that is deleted or replaced under the daemon: it stops with a message, and makes no new one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.host_sandbox import GVC, host_sandbox, open_place, served
from tests.support.sandbox import DaemonSandbox, eventually


def delete(state: Path) -> None:
    """Delete it, although the daemon may write there meanwhile."""
    while state.exists():
        with suppress(OSError):
            shutil.rmtree(state)


def move(state: Path) -> None:
    state.rename(state.with_name("moved"))


def replace(state: Path) -> None:
    move(state)
    state.mkdir(mode=0o700)


def delete_lock(state: Path) -> None:
    (state / "lock").unlink()


@pytest.mark.parametrize("lose", [delete, move, replace, delete_lock])
def test_the_daemon_stops_with_words(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    sandbox = DaemonSandbox(tmp_path)
    with sandbox.daemon() as running:
        eventually(lambda: len(sandbox.recorded()) == 3, "the shop is applied")
        there = {path.name for path in tmp_path.iterdir()}
        lose(sandbox.state)
        assert running.process.wait(60) == 2
        log = running.log_file.read_text()
    assert "was deleted or replaced while the daemon worked" in log
    assert "Traceback" not in log
    assert {path.name for path in tmp_path.iterdir()} - there <= {"moved"}
    if lose is replace:
        assert list(sandbox.state.iterdir()) == []
    if lose in (delete, move):
        assert not sandbox.state.exists()


def test_the_host_engine_makes_no_state_directory_anew() -> None:
    files = {
        "shop/gvc.yaml": GVC,
        "shop/web.yaml": served(replicas=1, command="sleep", args=["1000"], ports=None, readinessProbe=None),
    }
    with open_place() as path, host_sandbox(path, files) as sandbox, sandbox.daemon() as running:
        eventually(lambda: "workload/shop/web@here" in sandbox.recorded(), "the workload is applied")
        sandbox.state.rename(path / "moved")
        assert running.process.wait(60) == 2
        assert not sandbox.state.exists()
        (path / "moved").rename(sandbox.state)
