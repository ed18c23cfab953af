"""The controller carries out just what is decided, at the second at which it is."""

from __future__ import annotations

import asyncio
import shutil
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from reconciler.engines.host.controllers import replicas as workload_replicas
from reconciler.engines.host.runtimes.protocol import ContainerStart
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.simulation.controller_simulation import ControllerSimulation
from tests.engines.host.simulation.decision_simulation import BEGINNING
from tests.engines.host.simulation.schedule import QUIET, Schedule, begin
from tests.engines.host.simulation.test_schedules import DAY, days_of, schedules
from tests.support.cases import cases
from tests.support.examples import examples
from tests.support.pace import in_time

CARRIED = ("start ", "terminate ", "kill ", "runprestop ", "remove ", "removed running ")
"""The acts that the runtime carries out."""

APART = 1 / 64
"""Seconds; a binary fraction, so that sums of it are exact."""


async def simulate_schedule(
    root: Path, schedule: Schedule, seconds: float, kind: type[ControllerSimulation] = ControllerSimulation
) -> ControllerSimulation:
    """The simulation after a schedule and ``seconds`` more."""
    simulation = kind(root, schedule)
    await simulation.open()
    await simulation.happen("push", schedule.first)
    for event in schedule.events:
        wait, verb, argument = (*event.split(), "")[:3]
        await simulation.run(float(wait))
        await simulation.happen(verb, argument)
    await simulation.run(seconds)
    return simulation


def carried_out(simulation: ControllerSimulation) -> list[str]:
    """What the runtime was asked for, a line each."""
    return sorted(
        f"{each.at:.6f} {each.verb} {each.replica}{'/' if each.container else ''}{each.container}"
        for each in simulation.programs.calls
    )


def decided(schedule: Schedule, seconds: float) -> list[str]:
    """What is decided in the same schedule without a controller, from the second 0 on."""
    simulation = begin(schedule)
    simulation.run(seconds)
    asked = [(at - BEGINNING, line) for at, line in simulation.carried_out if line.startswith(CARRIED)]
    return sorted(f"{at:.6f} {line}" for at, line in asked)


def played(
    root: Path, schedule: Schedule, seconds: float, kind: type[ControllerSimulation] = ControllerSimulation
) -> ControllerSimulation:
    """``simulate_schedule`` in a loop of its own, closed at the end."""

    async def whole() -> ControllerSimulation:
        simulation = await simulate_schedule(root, schedule, seconds, kind)
        await simulation.close()
        return simulation

    return asyncio.run(whole())


@pytest.mark.parametrize("case", [*cases("host/courses.yaml"), *cases("host/schedules.yaml")])
def test_what_is_carried_out_is_what_is_decided(case: dict[str, Any], tmp_path: Path) -> None:
    case.pop("course", None)
    seconds = case.pop("seconds", QUIET)
    schedule = msgspec.convert(case, Schedule)
    simulation = played(tmp_path, schedule, seconds)
    assert carried_out(simulation) == decided(schedule, seconds)
    assert "WorkloadError" not in {each.reason for each in simulation.news}


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(schedules())
def test_any_schedule_is_carried_out_as_decided(schedule: Schedule) -> None:
    events = tuple(_apart(event) for event in schedule.events)
    schedule = msgspec.structs.replace(schedule, events=events)
    with TemporaryDirectory() as root:
        simulation = played(Path(root), schedule, 2000.0)
    assert carried_out(simulation) == decided(schedule, 2000.0)
    assert "WorkloadError" not in {each.reason for each in simulation.news}


async def test_what_cannot_be_killed_is_killed_again(tmp_path: Path) -> None:
    async def whole() -> ControllerSimulation:
        simulation = ControllerSimulation(tmp_path, Schedule())
        await simulation.open()
        await simulation.happen("push", "stubborn")
        await simulation.run(100)
        simulation.programs.unkillable = 2
        await simulation.happen("delete", "")
        await simulation.run(QUIET)
        await simulation.close()
        return simulation

    simulation = await whole()
    assert [(call.at - 100, call.verb) for call in simulation.programs.calls if call.at > 100] == [
        (45, "terminate"),
        (90, "kill"),
        (100, "kill"),
        (110, "kill"),
        (110, "remove"),
    ]
    assert [event.message for event in simulation.news] == ["KillFailed: main cannot be killed"] * 2


@pytest.mark.parametrize("behaviour", ["good", "plain", "paired"])
@pytest.mark.parametrize("pool", [True, False])
async def test_replicas_whose_files_are_lost_are_taken_over_as_they_are(
    tmp_path: Path, behaviour: str, pool: bool
) -> None:
    simulation = ControllerSimulation(tmp_path, Schedule(replicas=3))
    await simulation.open()
    await simulation.happen("push", behaviour)
    await simulation.run(100)
    before = {replica.name: (replica.version, replica.config_hash, replica.ports) for replica in simulation.replicas()}
    asked = len(simulation.programs.calls)
    await simulation.happen("restart", "10")
    shutil.rmtree(tmp_path / "replicas")
    if not pool:
        shutil.rmtree(tmp_path / "endpoints")
    await simulation.run(100)
    assert {
        replica.name: (replica.version, replica.config_hash, replica.ports) for replica in simulation.replicas()
    } == before
    assert all(replica.ready for replica in simulation.replicas())
    assert len(simulation.programs.calls) == asked
    assert len(list((tmp_path / "replicas").glob("*/*/*.json"))) == 3
    await simulation.happen("push", "good")
    await simulation.run(0.5)
    assert sum(replica.ready for replica in simulation.replicas()) == 3, (
        "none is missing while the first new one starts"
    )
    await simulation.close()


class SlowRuntime(FakeRuntime):
    """A start takes a second: as long as that, the end of the run before is all that is known of a container."""

    async def start(self, launch: ContainerStart) -> None:
        """As Runtime.start."""
        await self._programs.clock.sleep(1)
        await super().start(launch)


class SlowSimulation(ControllerSimulation):
    """A simulation on which starts take a second."""

    runtime = SlowRuntime


async def test_an_end_is_that_of_its_own_start(tmp_path: Path) -> None:
    simulation = SlowSimulation(tmp_path, Schedule(replicas=2))
    await simulation.open()
    await simulation.happen("push", "plain")
    await simulation.run(100)
    await simulation.happen("crash", "0")
    await simulation.run(0.5)
    await simulation.happen("crash", "0")
    await simulation.run(5)
    replicas = simulation.replicas()
    assert [(each.ready, each.containers[0].restarts) for each in replicas] == [(True, 1)] * 2
    await simulation.close()


@pytest.mark.parametrize("days", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_days_are_carried_out_as_decided(tmp_path: Path, days: int) -> None:
    schedule, folders = days_of(days, "standard", parallel=False), count()
    simulation, _ = in_time(lambda: played(tmp_path / str(next(folders)), schedule, QUIET), 10.0)
    assert simulation.clock.monotonic() > days * DAY
    assert carried_out(simulation) == decided(schedule, QUIET)


def _apart(event: str) -> str:
    """``event`` a little later, so that it never falls together with what follows from another."""
    seconds, _, rest = event.partition(" ")
    return f"{float(seconds) + APART:.6f} {rest}"


async def test_a_bug_in_deciding_is_an_event_of_its_workload_which_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_bug(*_: object) -> None:
        raise KeyError("a text that may be a secret")

    simulation = ControllerSimulation(tmp_path, Schedule(replicas=2))
    await simulation.open()
    with monkeypatch.context() as patched:
        patched.setattr(workload_replicas, "decide_actions", raise_bug)
        await simulation.happen("push", "good")
        await simulation.run(60.0)
    [event] = simulation.news
    assert (event.reason, simulation.replicas()) == ("WorkloadError", ())
    assert event.message.startswith("InternalError: KeyError at reconciler/engines/host/controllers/replicas.py:")
    await simulation.run(120.0)
    assert [each.ready for each in simulation.replicas()] == [True, True]
    await simulation.close()
