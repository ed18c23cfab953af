"""With the Podman runtime too, just what is decided is carried out, at the second at which it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.engines.host.simulation.containers import ContainerSimulation
from tests.engines.host.simulation.schedule import QUIET, Schedule
from tests.engines.host.simulation.test_controller_simulation import carried_out, decided, played
from tests.engines.host.simulation.test_schedules import DAY, KINDS, days_of
from tests.support.cases import cases

CASES = [*cases("host/courses.yaml"), *cases("host/schedules.yaml")]


def check(root: Path, schedule: Schedule, seconds: float) -> ContainerSimulation:
    """Play a schedule with containers; what is carried out is what is decided, and each container has its replica."""
    simulation = played(root, schedule, seconds, ContainerSimulation)
    assert isinstance(simulation, ContainerSimulation)
    assert carried_out(simulation) == decided(schedule, seconds)
    assert "WorkloadError" not in {each.reason for each in simulation.news}
    assert simulation.replicas_in_podman() <= simulation.known_replicas()
    return simulation


@pytest.mark.parametrize("case", CASES[::5])
def test_what_is_carried_out_is_what_is_decided(case: dict[str, Any], tmp_path: Path) -> None:
    case.pop("course", None)
    seconds = case.pop("seconds", QUIET)
    check(tmp_path, msgspec.convert(case, Schedule), min(seconds, 2000.0))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "parallel"), KINDS)
def test_a_week_is_carried_out_as_decided(tmp_path: Path, kind: str, parallel: bool) -> None:
    simulation = check(tmp_path, days_of(7, kind, parallel), QUIET)
    assert simulation.clock.monotonic() > 7 * DAY


@pytest.mark.slow
def test_hours_are_carried_out_as_decided(tmp_path: Path) -> None:
    day = days_of(1, "standard", parallel=False)
    simulation = check(tmp_path, msgspec.structs.replace(day, events=day.events[:20]), 2000.0)
    assert len(simulation.programs.calls) > 20
