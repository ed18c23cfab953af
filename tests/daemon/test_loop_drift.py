"""Changes at a location while the daemon runs are detected, reported everywhere and healed, without a fight."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.engines import LedgerEngine
from tests.support.sandbox import DaemonProcess, DaemonSandbox, eventually

KEY = "workload/shop/api"
OFTEN = {"interval": "200ms"}


class LedgerHarness:
    """A sandbox and the ledger of its location ``there``."""

    def __init__(self, path: Path, *words: str, **drift: object) -> None:
        self.sandbox = DaemonSandbox(path / "site", drift=drift)
        self.ledger = LedgerEngine(path / "world", "there")
        self._command = ["-m", "tests.daemon.daemon_with_ledger", str(path / "world"), *words]

    def daemon(self) -> AbstractContextManager[DaemonProcess]:
        """A daemon with that ledger."""
        return self.sandbox.daemon(*self._command)

    def converged(self) -> bool:
        """Whether the location is as recorded, and no drift is reported."""
        record = self.sandbox.recorded().get(f"{KEY}@there")
        there = self.ledger.resources().get(KEY)
        if record is None or there is None or (there["digest"], there["version"]) != (record.digest, record.version):
            return False
        with self.sandbox.records() as records:
            return not records.drifts.all()

    def reasons(self) -> list[str]:
        """Reasons of the events about drift, oldest first."""
        with self.sandbox.records() as records:
            return [each.reason for each in records.events.list() if each.reason.startswith("Drift")]

    def checked_at(self) -> float | None:
        """When the locations were last checked."""
        with self.sandbox.records() as records:
            return records.drifts.last_checked_at()

    def status(self) -> str:
        """The status file of the workload."""
        return self.sandbox.status("shop/workload/api.yaml")


@pytest.mark.parametrize("way", ["gone", "changed"])
def test_the_next_check_heals_drift(tmp_path: Path, way: str) -> None:
    harness = LedgerHarness(tmp_path, **OFTEN)
    with harness.daemon() as daemon:
        eventually(harness.converged, "the first commit is applied")
        harness.ledger.meddle(KEY, **({} if way == "gone" else {"digest": "another"}))
        eventually(lambda: "DriftHealed" in harness.reasons() and harness.converged(), "it is brought back")
        # The line follows the records.
        eventually(
            lambda: daemon.logged("reconciled", source="main", reason="drift", outcome="applied"), "it is logged"
        )
        assert harness.reasons() == ["DriftDetected", "DriftHealed"]
        eventually(lambda: "reason: Recorded" in harness.status(), "the branch reports health")
        daemon.stop()
    with harness.daemon():
        eventually(harness.converged)
        assert harness.reasons() == ["DriftDetected", "DriftHealed"]


def test_drift_that_an_engine_notices_is_healed_before_the_next_check(tmp_path: Path) -> None:
    harness = LedgerHarness(tmp_path, "watched", interval="1h")
    with harness.daemon() as daemon:
        eventually(harness.converged, "the first commit is applied")
        harness.ledger.meddle(KEY)
        eventually(lambda: "DriftHealed" in harness.reasons() and harness.converged(), "it is brought back")
        assert daemon.stop() == 0


def test_a_sync_checks_the_locations_too(tmp_path: Path) -> None:
    harness = LedgerHarness(tmp_path, interval="1h")
    with harness.daemon():
        eventually(harness.converged, "the first commit is applied")
        eventually(lambda: harness.checked_at() is not None, "the check at the start is over")
        harness.ledger.meddle(KEY)
        assert harness.sandbox.run("sync").returncode == 0
        eventually(lambda: "DriftHealed" in harness.reasons() and harness.converged(), "it is brought back")


def test_drift_from_before_the_start_is_detected_at_the_start(tmp_path: Path) -> None:
    harness = LedgerHarness(tmp_path, interval="1h")
    with harness.daemon() as daemon:
        eventually(harness.converged, "the first commit is applied")
        daemon.stop()
    harness.ledger.meddle(KEY)
    with harness.daemon():
        eventually(lambda: "DriftHealed" in harness.reasons() and harness.converged(), "it is brought back")


def test_a_drift_conflict_ends_and_the_command_shows_what_differs(tmp_path: Path) -> None:
    harness = LedgerHarness(tmp_path, **OFTEN, mostHeals=2)
    with harness.daemon():
        eventually(harness.converged, "the first commit is applied")
        for _ in range(3):
            eventually(harness.converged, "it is brought back")
            harness.ledger.meddle(KEY, digest="another")
            eventually(lambda: not harness.converged() or harness.reasons()[-1:] == ["DriftHealed"])
        eventually(lambda: "DriftConflict" in harness.reasons(), "healing stops")
        eventually(lambda: "type: Stalled" in harness.status(), "the branch reports it")
        [found] = json.loads(harness.sandbox.run("drift", "-o", "json").stdout)["items"]
        assert (found["key"], found["location"], found["what"], found["in_conflict"]) == (KEY, "there", "changed", True)
        assert harness.reasons().count("DriftConflict") == 1
        assert harness.sandbox.run("retry", KEY).returncode == 0
        eventually(harness.converged, "it is taken up again")
        eventually(lambda: "type: Stalled" not in harness.status(), "the branch reports it")


def test_a_rule_that_is_pasted_into_the_settings_lets_the_difference_be(tmp_path: Path) -> None:
    harness = LedgerHarness(tmp_path, **OFTEN, heal=False)
    with harness.daemon():
        eventually(harness.converged, "the first commit is applied")
        harness.ledger.meddle(KEY)
        eventually(lambda: "reason: Drifted" in harness.status(), "it is reported")
        assert f"    - {{key: {KEY}}}" in harness.sandbox.run("drift").stdout
        harness.sandbox.configure(drift={**OFTEN, "heal": True, "ignore": [{"key": KEY}]})
        eventually(lambda: "reason: Recorded" in harness.status(), "it no longer counts as drift")
        assert KEY not in harness.ledger.resources()


def test_an_unreachable_location_is_reported_once_and_so_is_its_return(tmp_path: Path) -> None:
    harness = LedgerHarness(tmp_path, **OFTEN)
    with harness.daemon() as daemon:
        eventually(harness.converged, "the first commit is applied")
        file = tmp_path / "world" / "world.json"
        sound = file.read_text()
        file.write_text("{")
        eventually(lambda: daemon.logged("location", location="there", reachable=False), "it is reported")
        with harness.sandbox.records() as records:
            checked = records.drifts.last_checked_at()
        file.write_text(sound)
        eventually(lambda: daemon.logged("location", location="there", reachable=True), "it can be seen again")
        assert len(daemon.logged("location")) == 2
        assert daemon.logged("location")[0]["message"].startswith("InternalError: JSONDecodeError at ")
        with harness.sandbox.records() as records:
            assert (records.drifts.last_checked_at() or 0.0) > (checked or 0.0)
        assert harness.reasons() == []
