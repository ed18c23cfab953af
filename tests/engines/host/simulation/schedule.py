"""Schedules: what users, programs and the machine do, a line each, ``SECONDS VERB ARGUMENT``; and how they run.

``SECONDS`` after the line before. Verbs: ``push BEHAVIOUR`` (behaviour.py), ``touch`` (something else that replicas
start with has changed), ``scale N``, ``suspend``, ``resume``, ``delete``, ``crash K``, ``dead K`` (liveness), ``unready
K`` and ``ready K`` (readiness), ``restart DOWNTIME`` of the daemon. ``K`` counts the running containers, round and
round.
"""

from __future__ import annotations

from functools import partial

import msgspec

from reconciler.engines.host.decisions.availability import is_available, is_current
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.workload.spec import RolloutBounds, Type, WorkloadSpec
from reconciler.model.kinds.workload import Options
from tests.engines.host.simulation.behaviour import SOUND
from tests.engines.host.simulation.decision_simulation import KEY, DecisionSimulation

QUIET = 20_000.0
"""Seconds in which everything comes to rest: many times the longest backoff, and all replicas one after another."""


class Schedule(msgspec.Struct, forbid_unknown_fields=True):
    """A workload and what happens to it, from its version ``first`` on. ``scale`` is that of its terminations."""

    name: str = ""
    type: str = "standard"
    replicas: int = 1
    surge: int = 1
    unavailable: int = 0
    min_ready: float = 0.0
    parallel: bool = False
    first: str = "good"
    scale: float = 1.0
    events: tuple[str, ...] = ()


def wanted_at_first(schedule: Schedule) -> WorkloadSpec:
    """The workload of a schedule, before its first version."""
    rollout = RolloutBounds(schedule.min_ready, schedule.surge, schedule.unavailable, schedule.parallel)
    return WorkloadSpec(KEY, Type(schedule.type), 0, "", "", schedule.replicas, (), Options(), rollout)


def begin(schedule: Schedule) -> DecisionSimulation:
    """Let the events happen, up to the moment of the last one."""
    simulation = DecisionSimulation(wanted_at_first(schedule), Timing(schedule.scale))
    simulation.push(schedule.first)
    for event in schedule.events:
        seconds, verb, argument = (*event.split(), "")[:3]
        simulation.run(float(seconds))
        simulation.at(0.0, partial(happen, simulation, verb, argument))
    return simulation


def play(schedule: Schedule) -> DecisionSimulation:
    """Let it happen and wait; then what stumbled stands up; then a sound version comes: all must be as wanted."""
    simulation = begin(schedule)
    simulation.run(QUIET)
    simulation.at(0.0, partial(recover, simulation))
    simulation.run(QUIET)
    if simulation.behaviour in SOUND:
        at_rest(simulation)
    simulation.at(0.0, partial(simulation.push, "good"))
    simulation.run(QUIET)
    at_rest(simulation)
    return simulation


def recover(simulation: DecisionSimulation) -> None:
    """Let every container be ready that runs."""
    if simulation.behaviour in SOUND:
        for place in simulation.places():
            simulation.readiness(place, True)


def happen(simulation: DecisionSimulation, verb: str, argument: str) -> None:
    """One event."""
    places = simulation.places()
    if verb == "push":
        simulation.push(argument)
    elif verb == "touch":
        simulation.want(config_hash=f"{simulation.last.config_hash}+")
    elif verb == "scale":
        simulation.want(replicas=int(argument))
    elif verb in ("suspend", "resume"):
        simulation.want(suspended=verb == "suspend")
    elif verb == "delete":
        simulation.delete()
    elif verb == "restart":
        simulation.restart(float(argument))
    elif places:
        _trouble(simulation, verb, places[int(argument) % len(places)])


def _trouble(simulation: DecisionSimulation, verb: str, container: tuple[str, str]) -> None:
    if verb == "crash":
        simulation.crash(container)
    elif verb == "dead":
        simulation.die(container)
    else:
        simulation.readiness(container, verb == "ready")


def at_rest(simulation: DecisionSimulation) -> None:
    """Everything that is wanted is there, in the wanted version, and nothing else will ever happen."""
    spec = simulation.wanted
    assert simulation.idle, "no rest"
    if spec is None or spec.suspended or not spec.replicas:
        assert simulation.replicas == {}
        return
    assert len(simulation.replicas) == spec.replicas
    assert all(
        is_current(spec, each) and is_available(spec, each, simulation.now) for each in simulation.replicas.values()
    )
    if spec.stateful:
        assert {replica.index for replica in simulation.replicas.values()} == set(range(spec.replicas))
