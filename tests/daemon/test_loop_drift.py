"""Changes at a location while the daemon runs are detected, reported everywhere and healed, without a fight."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.engines import LedgerEngine
from tests.support.sandbox import Running, Site, eventually

KEY = "workload/shop/api"
OFTEN = {"interval": "200ms"}


class World:
    """A site and the world of its location ``there``."""

    def __init__(self, path: Path, *words: str, **drift: object) -> None:
        self.site = Site(path / "site", drift=drift)
        self.ledger = LedgerEngine(path / "world", "there")
        self._command = ["-m", "tests.daemon.daemon_with_world", str(path / "world"), *words]

    def daemon(self) -> AbstractContextManager[Running]:
        """A daemon on that world."""
        return self.site.daemon(*self._command)

    def converged(self) -> bool:
        """Whether the location is as recorded, and no drift is reported."""
        record = self.site.recorded().get(f"{KEY}@there")
        there = self.ledger.world().get(KEY)
        if record is None or there is None or (there["digest"], there["version"]) != (record.digest, record.version):
            return False
        with self.site.records() as records:
            return not records.drifts.all()

    def reasons(self) -> list[str]:
        """Reasons of the events about drift, oldest first."""
        with self.site.records() as records:
            return [each.reason for each in records.events.list() if each.reason.startswith("Drift")]

    def checked_at(self) -> float | None:
        """When the locations were last checked."""
        with self.site.records() as records:
            return records.drifts.last_checked_at()

    def status(self) -> str:
        """The status file of the workload."""
        return self.site.status("shop/workload/api.yaml")


@pytest.mark.parametrize("way", ["gone", "changed"])
def test_the_next_check_heals_drift(tmp_path: Path, way: str) -> None:
    world = World(tmp_path, **OFTEN)
    with world.daemon() as daemon:
        eventually(world.converged, "the first commit is applied")
        world.ledger.meddle(KEY, **({} if way == "gone" else {"digest": "another"}))
        eventually(lambda: "DriftHealed" in world.reasons() and world.converged(), "it is brought back")
        # The line follows the records.
        eventually(
            lambda: daemon.logged("reconciled", source="main", reason="drift", outcome="applied"), "it is logged"
        )
        assert world.reasons() == ["DriftDetected", "DriftHealed"]
        eventually(lambda: "reason: Recorded" in world.status(), "the branch reports health")
        daemon.stop()
    with world.daemon():
        eventually(world.converged)
        assert world.reasons() == ["DriftDetected", "DriftHealed"]


def test_drift_that_an_engine_notices_is_healed_before_the_next_check(tmp_path: Path) -> None:
    world = World(tmp_path, "watched", interval="1h")
    with world.daemon() as daemon:
        eventually(world.converged, "the first commit is applied")
        world.ledger.meddle(KEY)
        eventually(lambda: "DriftHealed" in world.reasons() and world.converged(), "it is brought back")
        assert daemon.stop() == 0


def test_a_sync_checks_the_locations_too(tmp_path: Path) -> None:
    world = World(tmp_path, interval="1h")
    with world.daemon():
        eventually(world.converged, "the first commit is applied")
        eventually(lambda: world.checked_at() is not None, "the check at the start is over")
        world.ledger.meddle(KEY)
        assert world.site.run("sync").returncode == 0
        eventually(lambda: "DriftHealed" in world.reasons() and world.converged(), "it is brought back")


def test_drift_from_before_the_start_is_detected_at_the_start(tmp_path: Path) -> None:
    world = World(tmp_path, interval="1h")
    with world.daemon() as daemon:
        eventually(world.converged, "the first commit is applied")
        daemon.stop()
    world.ledger.meddle(KEY)
    with world.daemon():
        eventually(lambda: "DriftHealed" in world.reasons() and world.converged(), "it is brought back")


def test_a_drift_conflict_ends_and_the_command_shows_what_differs(tmp_path: Path) -> None:
    world = World(tmp_path, **OFTEN, mostHeals=2)
    with world.daemon():
        eventually(world.converged, "the first commit is applied")
        for _ in range(3):
            eventually(world.converged, "it is brought back")
            world.ledger.meddle(KEY, digest="another")
            eventually(lambda: not world.converged() or world.reasons()[-1:] == ["DriftHealed"])
        eventually(lambda: "DriftConflict" in world.reasons(), "healing stops")
        eventually(lambda: "type: Stalled" in world.status(), "the branch reports it")
        [found] = json.loads(world.site.run("drift", "-o", "json").stdout)["items"]
        assert (found["key"], found["location"], found["what"], found["in_conflict"]) == (KEY, "there", "changed", True)
        assert world.reasons().count("DriftConflict") == 1
        assert world.site.run("retry", KEY).returncode == 0
        eventually(world.converged, "it is taken up again")
        eventually(lambda: "type: Stalled" not in world.status(), "the branch reports it")


def test_a_rule_that_is_pasted_into_the_settings_lets_the_difference_be(tmp_path: Path) -> None:
    world = World(tmp_path, **OFTEN, heal=False)
    with world.daemon():
        eventually(world.converged, "the first commit is applied")
        world.ledger.meddle(KEY)
        eventually(lambda: "reason: Drifted" in world.status(), "it is reported")
        assert f"    - {{key: {KEY}}}" in world.site.run("drift").stdout
        world.site.configure(drift={**OFTEN, "heal": True, "ignore": [{"key": KEY}]})
        eventually(lambda: "reason: Recorded" in world.status(), "it no longer counts as drift")
        assert KEY not in world.ledger.world()


def test_an_unreachable_location_is_reported_once_and_so_is_its_return(tmp_path: Path) -> None:
    world = World(tmp_path, **OFTEN)
    with world.daemon() as daemon:
        eventually(world.converged, "the first commit is applied")
        file = tmp_path / "world" / "world.json"
        sound = file.read_text()
        file.write_text("{")
        eventually(lambda: daemon.logged("location", location="there", reachable=False), "it is reported")
        with world.site.records() as records:
            checked = records.drifts.last_checked_at()
        file.write_text(sound)
        eventually(lambda: daemon.logged("location", location="there", reachable=True), "it can be seen again")
        assert len(daemon.logged("location")) == 2
        assert daemon.logged("location")[0]["message"].startswith("InternalError: JSONDecodeError at ")
        with world.site.records() as records:
            assert (records.drifts.last_checked_at() or 0.0) > (checked or 0.0)
        assert world.reasons() == []
