"""A state directory without room stops the work and loses nothing; with room it goes on where it was."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from reconciler.records.store import FILE
from tests.crash.harness import PHASES, CrashHarness, Ending, assert_same
from tests.support.programs import small_disk
from tests.support.sandbox import eventually

SIZE = "size=24m"
"""Size of the disk: enough for the records of all phases and the other files of SQLite."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The state directory of the sandbox below ``tmp_path / "site"``."""
    with small_disk(tmp_path / "site" / "state", SIZE) as path:
        yield path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Ending]:
    """The outcome on a disk with room."""
    return CrashHarness.create(tmp_path_factory.mktemp("peace")).go_through([[] for _ in PHASES])


def fill(disk: Path, room: int) -> Path:
    """A file that leaves ``room`` bytes."""
    filler = disk / "filler"

    def taken() -> bool:
        # A daemon at work may take some of the room between the two calls.
        with suppress(OSError), filler.open("wb") as out:
            free = os.statvfs(disk)
            os.posix_fallocate(out.fileno(), 0, free.f_bavail * free.f_frsize - room)
            return True
        return False

    eventually(taken, "the disk is filled")
    return filler


def give_back(disk: Path) -> None:
    """Let the log of the records take no room; else a small change finds enough in it.

    SQLite refuses the checkpoint while the daemon reads or writes, so it is tried again.
    """
    with closing(sqlite3.connect(disk / FILE, isolation_level=None)) as records:
        eventually(
            lambda: records.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0, "the log is written back"
        )


@pytest.mark.parametrize("room", [pytest.param(300_000, marks=pytest.mark.slow), 1_500_000])
def test_a_daemon_waits_for_room_and_goes_on(tmp_path: Path, disk: Path, undisturbed: list[Ending], room: int) -> None:
    harness = CrashHarness.create(tmp_path / "site")
    filler = fill(disk, room)
    harness.sandbox.repo.commit(PHASES[0])
    with harness.daemon() as daemon:
        eventually(lambda: daemon.logged("records", reason="DiskFull"), "it logs the full disk")
        harness.check(read_only=True)
        assert daemon.process.poll() is None
        filler.unlink()
        daemon.signal(signal.SIGHUP)
        eventually(lambda: daemon.logged("reconciled", outcome="applied"), "it goes on")
        assert daemon.stop() == 0
    assert_same([harness.finish()], undisturbed[:1])


def test_a_daemon_retries_by_itself_after_a_full_disk(tmp_path: Path, disk: Path, undisturbed: list[Ending]) -> None:
    harness = CrashHarness.create(tmp_path / "site")
    harness.sandbox.repo.commit(PHASES[0])
    with harness.daemon() as daemon:
        eventually(lambda: harness.is_done(daemon), "all is applied and published")
        give_back(disk)
        filler = fill(disk, 0)
        harness.sandbox.repo.commit(PHASES[1])
        eventually(lambda: daemon.logged("records", reason="DiskFull"), "it logs the full disk")
        filler.unlink()
        eventually(lambda: len(daemon.logged("reconciled", outcome="applied")) == 2, "it goes on")
        assert daemon.stop() == 0
    assert_same([harness.finish()], undisturbed[1:2])


def test_apply_reports_a_full_disk_and_can_be_repeated(tmp_path: Path, disk: Path, undisturbed: list[Ending]) -> None:
    harness = CrashHarness.create(tmp_path / "site")
    harness.sandbox.repo.commit(PHASES[0])
    filler = fill(disk, 300_000)
    applied = harness.sandbox.run("apply")
    assert applied.returncode == 1
    assert "the disk is full" in applied.stderr
    assert "Traceback" not in applied.stderr
    filler.unlink()
    again = harness.sandbox.run("apply")
    assert (again.returncode, again.stderr) == (0, "")
    assert harness.records() == undisturbed[0].records


@pytest.mark.parametrize("command", ["apply", "run"])
def test_a_disk_without_any_room_is_reported_at_once(tmp_path: Path, disk: Path, command: str) -> None:
    harness = CrashHarness.create(tmp_path / "site")
    harness.sandbox.repo.commit(PHASES[0])
    fill(disk, 0)
    done = harness.sandbox.run(command)
    assert done.returncode == 1
    assert "the disk is full" in done.stderr
    assert "Traceback" not in done.stderr
