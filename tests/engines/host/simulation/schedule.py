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
from tests.engines.host.simulation.decision_simulation import KEY, World

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


def begin(schedule: Schedule) -> World:
    """Let the events happen, up to the moment of the last one."""
    world = World(wanted_at_first(schedule), Timing(schedule.scale))
    world.push(schedule.first)
    for event in schedule.events:
        seconds, verb, argument = (*event.split(), "")[:3]
        world.run(float(seconds))
        world.at(0.0, partial(happen, world, verb, argument))
    return world


def play(schedule: Schedule) -> World:
    """Let it happen and wait; then what stumbled stands up; then a sound version comes: all must be as wanted."""
    world = begin(schedule)
    world.run(QUIET)
    world.at(0.0, partial(recover, world))
    world.run(QUIET)
    if world.behaviour in SOUND:
        at_rest(world)
    world.at(0.0, partial(world.push, "good"))
    world.run(QUIET)
    at_rest(world)
    return world


def recover(world: World) -> None:
    """Let every container be ready that runs."""
    if world.behaviour in SOUND:
        for place in world.places():
            world.readiness(place, True)


def happen(world: World, verb: str, argument: str) -> None:
    """One event."""
    places = world.places()
    if verb == "push":
        world.push(argument)
    elif verb == "touch":
        world.want(config_hash=f"{world.last.config_hash}+")
    elif verb == "scale":
        world.want(replicas=int(argument))
    elif verb in ("suspend", "resume"):
        world.want(suspended=verb == "suspend")
    elif verb == "delete":
        world.delete()
    elif verb == "restart":
        world.restart(float(argument))
    elif places:
        _trouble(world, verb, places[int(argument) % len(places)])


def _trouble(world: World, verb: str, place: tuple[str, str]) -> None:
    if verb == "crash":
        world.crash(place)
    elif verb == "dead":
        world.die(place)
    else:
        world.readiness(place, verb == "ready")


def at_rest(world: World) -> None:
    """Everything that is wanted is there, in the wanted version, and nothing else will ever happen."""
    wanted = world.wanted
    assert world.idle, "no rest"
    if wanted is None or wanted.suspended or not wanted.replicas:
        assert world.replicas == {}
        return
    assert len(world.replicas) == wanted.replicas
    assert all(is_current(wanted, each) and is_available(wanted, each, world.now) for each in world.replicas.values())
    if wanted.stateful:
        assert {replica.index for replica in world.replicas.values()} == set(range(wanted.replicas))
