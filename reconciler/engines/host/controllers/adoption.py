"""Brings replicas that an earlier daemon left up to date, from their files or from container labels; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from reconciler.engines.host.decisions.availability import is_current
from reconciler.engines.host.decisions.replica import Container, Ended, Hook, Phase, Replica
from reconciler.engines.host.decisions.transitions import recompute_ready
from reconciler.engines.host.runtimes.protocol import ContainerId, RunningContainer
from reconciler.engines.workload.spec import ContainerSpec, WorkloadSpec
from reconciler.reasons import Reason
from reconciler.times import iso

LOST = "it ended while no daemon watched"


class LabelContext(msgspec.Struct, frozen=True):
    """``now`` is monotonic time, ``wall`` wall-clock time; ``ready`` lists the replicas of the earlier endpoints file.

    ``ready`` is None if there was no such file.
    """

    now: float
    wall: float
    ready: Collection[str] | None = None


def resume_replica(replica: Replica, running: Mapping[ContainerId, RunningContainer], now: float) -> Replica:
    """``replica`` as an earlier daemon wrote it, updated with what has happened to its containers since."""
    places = [ContainerId(replica.key, replica.name, container.name) for container in replica.containers]
    containers = (
        _resume_container(container, running.get(place), now)
        for container, place in zip(replica.containers, places, strict=True)
    )
    return recompute_ready(replace(replica, containers=tuple(containers)), now)


def rebuild_replica(
    name: str, found: list[RunningContainer], wanted: WorkloadSpec | None, context: LabelContext
) -> Replica:
    """Rebuild a replica whose file is lost from the labels of its containers: version, identity and ports.

    A replica of the wanted version counts as current, unless its ports are unknown. Any other replica is outdated, and
    its probes and hooks are unknown. A replica counts as ready until a probe fails, unless the earlier endpoints file
    left it out: if none were ready, a rollout would end all of them at once.
    """
    first, started = found[0], min(each.started for each in found)
    replica = Replica(
        name,
        first.place.key,
        first.version,
        first.config_hash,
        started,
        (),
        index=first.index,
        ports={declared: port for each in found for declared, port in each.ports.items()},
        creation_timestamp=iso(context.wall + started - context.now),
    )
    specs: dict[str, ContainerSpec] = {}
    if wanted is not None and is_current(wanted, replica):
        specs = {each.name: each for each in wanted.containers}
        reachable = replica.ports.keys() >= {port for each in wanted.containers for port in each.ports}
        replica = replace(replica, gvc_version=wanted.gvc_version, config_hash=replica.config_hash if reachable else "")
    serves = not replica.ports or context.ready is None or name in context.ready
    containers = (
        _rebuild_container(
            each, specs.get(each.place.container, ContainerSpec(each.place.container)), serves, context.now
        )
        for each in found
    )
    return recompute_ready(replace(replica, containers=tuple(containers)), context.now)


def how_ended(running: RunningContainer, now: float) -> Ended:
    """How an ended container ended, as replicas record it."""
    code = -1 if running.code is None else running.code
    reason = running.reason or (Reason.COMPLETED if code == 0 else Reason.ERROR)
    return Ended(code, now, reason, LOST if running.code is None else "")


def _resume_container(container: Container, found: RunningContainer | None, now: float) -> Container:
    """``container`` updated with what happened while no daemon ran; a hook that ran at that time is over.

    If the runtime does not know the container, the earlier daemon had only begun to start it.
    """
    container = replace(container, post_start=_end_hook(container.post_start), pre_stop=_end_hook(container.pre_stop))
    if found is not None and found.alive:
        if container.phase is Phase.RUNNING:
            return replace(container, started=min(container.started, found.started))
        ready = container.wanted.readiness is None
        return Container(container.name, Phase.RUNNING, found.started, ready, wanted=container.wanted)
    if container.phase is not Phase.RUNNING:
        return container
    if found is None:
        return replace(container, phase=Phase.WAITING, start_at=now, ready=False, post_start=Hook.NONE)
    return replace(container, phase=Phase.ENDED, ready=False, last=how_ended(found, now))


def _end_hook(hook: Hook) -> Hook:
    return Hook.DONE if hook is Hook.RUNNING else hook


def _rebuild_container(found: RunningContainer, wanted: ContainerSpec, serves: bool, now: float) -> Container:
    phase = Phase.RUNNING if found.alive else Phase.ENDED
    last = None if found.alive else how_ended(found, now)
    ready = found.alive and (serves or wanted.readiness is None)
    wanted = replace(wanted, image=found.image or wanted.image)
    return Container(found.place.container, phase, started=found.started, ready=ready, last=last, wanted=wanted)
