"""Temporary files of tests are in memory, stay after a failure, and leave no trace otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import scratch

TEST = """
import tempfile
def test_it(tmp_path):
    (tmp_path.parents[2] / "shown").write_text(f"{tempfile.gettempdir()} {tmp_path.parent}")
    assert CODE == 0
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in place of the one in memory."""
    monkeypatch.delenv("TMPDIR", raising=False)
    for name in [each for each in os.environ if each.startswith("PYTEST_")]:
        monkeypatch.delenv(name)  # those of this run
    (tmp_path / "memory").mkdir()
    return tmp_path / "memory"


@pytest.mark.parametrize("code", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_command_has_its_files_there_and_they_stay_where_it_fails(
    memory: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path | None] = []
    place = scratch.place
    monkeypatch.setattr(scratch, "place", lambda: folders.append(place(memory, 0)) or folders[0])
    (memory / "test_it.py").write_text(TEST.replace("CODE", str(code)))
    assert scratch.main("-q", "-p", "no:cacheprovider", "--rootdir", str(memory), str(memory / "test_it.py")) == code
    top = memory / f"rt{os.getpid()}"
    assert (memory / "shown").read_text() == f"{top} {top}/t"
    assert folders[0] is not None
    assert folders[0].exists() == bool(code)


def test_what_a_failed_run_left_goes_and_what_runs_stays(memory: Path) -> None:
    for name in ("rt999999999", f"rt{os.getppid()}", "rtx", "other"):
        (memory / name).mkdir()
    path = scratch.place(memory, 0)
    assert path is not None
    assert {each.name for each in memory.iterdir()} == {path.name, f"rt{os.getppid()}", "rtx", "other"}
    assert path.stat().st_mode & 0o7777 == 0o1777


def test_where_there_is_no_room_or_another_choice_the_disk_is_used(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scratch.place(memory, 1 << 60) is None
    assert scratch.place(memory / "missing", 0) is None
    monkeypatch.setenv("TMPDIR", "/tmp")
    assert scratch.place(memory, 0) is None
    assert not any(memory.iterdir())
