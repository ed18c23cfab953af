"""Cases of decisions: what is wanted and what there is, as short YAML, and acts as short lines."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.engines.host.decisions.actions import (
    Action,
    Create,
    Decision,
    Remove,
    Resize,
    ScheduleRestart,
    StopReplica,
)
from reconciler.engines.host.decisions.replica import Ended, HookState, Phase, Replica, ReplicaContainer
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.workload.spec import ContainerSpec, RolloutBounds, Type, WorkloadSpec
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Command, Options, Probe

KEY = Key(Kind.WORKLOAD, "shop", "web")
HOOK = Command(("sh", "-c", "true"))
PROBE = Probe(exec=HOOK)


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """``wanted`` of a case. ``containers`` by name.

    ``hooks`` (preStop), ``greets`` (postStart) and ``probed`` (readiness) name those that have one.
    """

    replicas: int = 1
    version: int = 2
    config_hash: str = ""
    type: Type = Type.STANDARD
    surge: int = 1
    unavailable: int = 0
    min_ready: float = 0.0
    parallel: bool = False
    suspended: bool = False
    pending: str = ""
    base_hash: str = ""
    containers: tuple[str, ...] = ("main",)
    hooks: tuple[str, ...] = ()
    greets: tuple[str, ...] = ()
    probed: tuple[str, ...] = ()


class _WrittenContainer(msgspec.Struct, forbid_unknown_fields=True):
    """A container of a case, where it is more than one that runs: as Container, with ``ended`` and ``reason`` for
    the last end."""

    name: str = "main"
    phase: Phase = Phase.RUNNING
    started: float = 0.0
    ready: bool = True
    alive: bool = True
    failures: int = 0
    start_at: float = 0.0
    ended: float | None = None
    reason: str = "Error"
    post_start: HookState = HookState.NONE
    pre_stop: HookState = HookState.NONE
    sigterm_at: float | None = None
    sigkill_at: float | None = None
    message: str = ""
    hook: bool = False
    probed: bool = False
    own_sleep: bool = False
    total: int | None = None


class _There(msgspec.Struct, forbid_unknown_fields=True):
    """A replica of a case: ``ready`` since when, left out where it is not."""

    name: str
    version: int = 2
    config_hash: str = ""
    created: float = 0.0
    ready: float | None = None
    ending: float | None = None
    reason: str = ""
    index: int = -1
    containers: tuple[_WrittenContainer, ...] = ()
    failing: str = ""
    base_hash: str = ""


def wanted_from(written: dict[str, Any] | None) -> WorkloadSpec | None:
    """What is wanted; None where the workload is deleted."""
    if written is None:
        return None
    asked = msgspec.convert(written, _Asked)
    containers = tuple(
        ContainerSpec(
            name,
            pre_stop=HOOK if name in asked.hooks else None,
            post_start=HOOK if name in asked.greets else None,
            readiness=PROBE if name in asked.probed else None,
        )
        for name in asked.containers
    )
    return WorkloadSpec(
        KEY,
        asked.type,
        asked.version,
        f"digest-{asked.version}",
        asked.config_hash,
        asked.replicas,
        containers,
        Options(),
        RolloutBounds(asked.min_ready, asked.surge, asked.unavailable, asked.parallel),
        suspended=asked.suspended,
        pending=asked.pending,
        base_hash=asked.base_hash,
    )


def replica_from(written: dict[str, Any]) -> Replica:
    """A replica; without ``containers`` it has one that runs, and is ready where the replica is."""
    there = msgspec.convert(written, _There)
    containers = there.containers or (_WrittenContainer(ready=there.ready is not None, message=there.failing),)
    return Replica(
        there.name,
        KEY,
        there.version,
        there.config_hash,
        there.created,
        tuple(_container(each) for each in containers),
        index=there.index,
        ready_since=there.ready,
        ending=there.ending,
        reason=there.reason,
        base_hash=there.base_hash,
    )


def _container(written: _WrittenContainer) -> ReplicaContainer:
    return ReplicaContainer(
        written.name,
        written.phase,
        written.started,
        written.ready and written.phase is Phase.RUNNING,
        written.alive,
        failures=written.failures,
        start_at=written.start_at,
        last=None if written.ended is None else Ended(1, written.ended, written.reason),
        post_start=written.post_start,
        pre_stop=written.pre_stop,
        sigterm_at=written.sigterm_at,
        sigkill_at=written.sigkill_at,
        message=written.message,
        wanted=ContainerSpec(
            written.name,
            pre_stop=HOOK if written.hook else None,
            readiness=PROBE if written.probed else None,
            own_sleep=written.own_sleep,
            termination_seconds=written.total,
        ),
    )


def timing_from(written: dict[str, float] | None) -> Timing:
    """The times of a case: the documented ones, but for those that it names."""
    return msgspec.convert(written or {}, Timing)


def line(act: Action) -> str:
    """``end web-a Replaced``, ``create``, ``create 2``, ``await web-a/main until 30 after 2`` and the like."""
    if isinstance(act, Create):
        return "create" if act.index < 0 else f"create {act.index}"
    if isinstance(act, StopReplica):
        return f"end {act.replica} {act.reason}"
    if isinstance(act, Remove | Resize):
        return f"{type(act).__name__.lower()} {act.replica}"
    verb = "await" if isinstance(act, ScheduleRestart) else type(act).__name__.lower()
    tail = f" until {act.start_at:g} after {act.failures}" if isinstance(act, ScheduleRestart) else ""
    return f"{verb} {act.replica}/{act.container}{tail}"


def lines(decision: Decision) -> list[str]:
    """The acts of a decision, in their order."""
    return [line(act) for act in decision.actions]
