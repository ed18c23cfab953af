"""Replicas that a former daemon left, as they are now: by their files, or by the labels of what runs; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from reconciler.clock import iso
from reconciler.engines.host.decisions.availability import is_current
from reconciler.engines.host.decisions.transitions import recompute_ready
from reconciler.engines.host.replica import Container, Ended, Hook, Phase, Replica
from reconciler.engines.host.runtimes.protocol import ContainerId, RunningContainer
from reconciler.engines.host.spec import ContainerSpec, WorkloadSpec

LOST = "it ended while nobody watched"


class LabelContext(msgspec.Struct, frozen=True):
    """``now`` of the monotonic clock, ``wall`` of the other, and the ``ready`` replicas that a former daemon listed.

    ``ready`` is None where it left no list.
    """

    now: float
    wall: float
    ready: Collection[str] | None = None


def as_found(replica: Replica, running: Mapping[ContainerId, RunningContainer], now: float) -> Replica:
    """``replica`` as a former daemon wrote it, with what has happened to its containers since."""
    places = [ContainerId(replica.key, replica.name, container.name) for container in replica.containers]
    containers = (
        _since(container, running.get(place), now) for container, place in zip(replica.containers, places, strict=True)
    )
    return recompute_ready(replace(replica, containers=tuple(containers)), now)


def from_labels(name: str, found: list[RunningContainer], wanted: WorkloadSpec | None, around: LabelContext) -> Replica:
    """The replica whose file is lost, by what its containers carry: version, identity and ports.

    A replica of the wanted version is one of those wanted, unless its ports are unknown; any other is an old one, of
    whose probes and hooks nothing is known. It counts as ready until a probe says otherwise, unless the former daemon
    has not listed it: were it not ready, a rollout would end all of them at once.
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
        ports={declared: given for each in found for declared, given in each.ports.items()},
        creation_timestamp=iso(around.wall + started - around.now),
    )
    specs: dict[str, ContainerSpec] = {}
    if wanted is not None and is_current(wanted, replica):
        specs = {each.name: each for each in wanted.containers}
        reachable = replica.ports.keys() >= {port for each in wanted.containers for port in each.ports}
        replica = replace(replica, gvc_version=wanted.gvc_version, config_hash=replica.config_hash if reachable else "")
    serves = not replica.ports or around.ready is None or name in around.ready
    containers = (
        _labelled(each, specs.get(each.place.container, ContainerSpec(each.place.container)), serves, around.now)
        for each in found
    )
    return recompute_ready(replace(replica, containers=tuple(containers)), around.now)


def how_ended(running: RunningContainer, now: float) -> Ended:
    """How an ended container ended, in the words of replicas."""
    code = -1 if running.code is None else running.code
    reason = running.reason or ("Completed" if code == 0 else "Error")
    return Ended(code, now, reason, LOST if running.code is None else "")


def _since(container: Container, found: RunningContainer | None, now: float) -> Container:
    """``container`` with what has happened to it while nobody watched; a hook that ran then is over.

    Of one that the runtime knows nothing of the daemon had just begun the start.
    """
    container = replace(container, post_start=_over(container.post_start), pre_stop=_over(container.pre_stop))
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


def _over(hook: Hook) -> Hook:
    return Hook.DONE if hook is Hook.RUNNING else hook


def _labelled(found: RunningContainer, wanted: ContainerSpec, serves: bool, now: float) -> Container:
    phase = Phase.RUNNING if found.alive else Phase.ENDED
    last = None if found.alive else how_ended(found, now)
    ready = found.alive and (serves or wanted.readiness is None)
    return Container(found.place.container, phase, started=found.started, ready=ready, last=last, wanted=wanted)
