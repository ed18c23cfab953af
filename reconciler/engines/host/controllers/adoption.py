"""Brings replicas that an earlier daemon left up to date, from their files or from container labels; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from reconciler.engines.host.decisions.availability import is_current
from reconciler.engines.host.decisions.replica import Ended, HookState, Phase, Replica, ReplicaContainer
from reconciler.engines.host.decisions.transitions import recompute_ready
from reconciler.engines.host.runtimes.protocol import ContainerId, RunningContainer
from reconciler.engines.workload.spec import ContainerSpec, WorkloadSpec
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

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
        _resume_container(container, running.get(container_id), now)
        for container, container_id in zip(replica.containers, places, strict=True)
    )
    return recompute_ready(replace(replica, containers=tuple(containers)), now)


def rebuild_replica(
    name: str, running: list[RunningContainer], spec: WorkloadSpec | None, context: LabelContext
) -> Replica:
    """Rebuild a replica whose file is lost from the labels of its containers: version, identity and ports.

    A replica of the wanted version counts as current, unless its ports are unknown. Any other replica is outdated, and
    its probes and hooks are unknown. A replica counts as ready until a probe fails, unless the earlier endpoints file
    left it out: if none were ready, a rollout would end all of them at once.
    """
    first, started = running[0], min(container.started for container in running)
    replica = Replica(
        name,
        first.place.key,
        first.version,
        first.config_hash,
        started,
        (),
        index=first.index,
        ports={declared: port for container in running for declared, port in container.ports.items()},
        creation_timestamp=format_iso_time(context.wall + started - context.now),
    )
    specs: dict[str, ContainerSpec] = {}
    if spec is not None and is_current(spec, replica):
        specs = {container.name: container for container in spec.containers}
        reachable = replica.ports.keys() >= {port for container in spec.containers for port in container.ports}
        replica = replace(replica, gvc_version=spec.gvc_version, config_hash=replica.config_hash if reachable else "")
    serves = not replica.ports or context.ready is None or name in context.ready
    containers = (
        _rebuild_container(
            container,
            specs.get(container.place.container, ContainerSpec(container.place.container)),
            serves,
            context.now,
        )
        for container in running
    )
    return recompute_ready(replace(replica, containers=tuple(containers)), context.now)


def how_ended(running: RunningContainer, now: float) -> Ended:
    """How an ended container ended, as replicas record it."""
    code = -1 if running.code is None else running.code
    reason = running.reason or (Reason.COMPLETED if code == 0 else Reason.ERROR)
    return Ended(code, now, reason, LOST if running.code is None else "")


def _resume_container(
    container: ReplicaContainer, running_container: RunningContainer | None, now: float
) -> ReplicaContainer:
    """``container`` updated with what happened while no daemon ran; a hook that ran at that time is over.

    If the runtime does not know the container, the earlier daemon had only begun to start it.
    """
    container = replace(container, post_start=_end_hook(container.post_start), pre_stop=_end_hook(container.pre_stop))
    if running_container is not None and running_container.alive:
        if container.phase is Phase.RUNNING:
            return replace(container, started=min(container.started, running_container.started))
        ready = container.wanted.readiness is None
        return ReplicaContainer(
            container.name, Phase.RUNNING, running_container.started, ready, wanted=container.wanted
        )
    if container.phase is not Phase.RUNNING:
        return container
    if running_container is None:
        return replace(container, phase=Phase.WAITING, start_at=now, ready=False, post_start=HookState.NONE)
    return replace(container, phase=Phase.ENDED, ready=False, last=how_ended(running_container, now))


def _end_hook(hook: HookState) -> HookState:
    return HookState.DONE if hook is HookState.RUNNING else hook


def _rebuild_container(
    running_container: RunningContainer, container: ContainerSpec, serves: bool, now: float
) -> ReplicaContainer:
    phase = Phase.RUNNING if running_container.alive else Phase.ENDED
    last = None if running_container.alive else how_ended(running_container, now)
    ready = running_container.alive and (serves or container.readiness is None)
    container = replace(container, image=running_container.image or container.image)
    return ReplicaContainer(
        running_container.place.container,
        phase,
        started=running_container.started,
        ready=ready,
        last=last,
        wanted=container,
    )
