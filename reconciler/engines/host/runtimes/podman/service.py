"""A connection to the Podman service, and all that is done through it for one location."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import httpx2

from reconciler.clock import Clock
from reconciler.engines.host.runtimes import cgroups
from reconciler.engines.host.runtimes.podman.api.answers import NEW, AllStats, Listed, PodmanError, read, wall_time
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient, Request
from reconciler.engines.host.runtimes.podman.api.image_users import ImageUsers
from reconciler.engines.host.runtimes.podman.capabilities import CGROUPFS, Capabilities, discover
from reconciler.engines.host.runtimes.podman.exec import Execution
from reconciler.engines.host.runtimes.podman.labels import Labelled, PodmanLabels
from reconciler.engines.host.runtimes.podman.network.firewall import Firewall
from reconciler.engines.host.runtimes.podman.network.published_ports import PublishedPorts
from reconciler.engines.host.runtimes.podman.network.sandbox import SandboxMaker
from reconciler.engines.host.runtimes.podman.spec import limits_body, quota_body
from reconciler.engines.host.runtimes.podman.starting import Starter
from reconciler.engines.host.runtimes.podman.sweep import ForeignMemberError, Sweeper
from reconciler.engines.host.runtimes.podman.tracked import KILLED, Outcome, Tracked, running_container, track
from reconciler.engines.host.runtimes.protocol import ContainerId, Usage
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason


class Service(NamedTuple):
    """The parts of a connection."""

    client: PodmanClient
    capabilities: Capabilities
    labels: PodmanLabels
    sweeper: Sweeper
    starter: Starter
    sandboxes: SandboxMaker
    execution: Execution
    users: ImageUsers
    ports: PublishedPorts
    firewall: Firewall


async def connect(
    socket: Path, root: Path, labels: PodmanLabels, firewall: Firewall, transport: httpx2.AsyncBaseTransport | None
) -> Service:
    """Connect to the service at ``socket``, for the location whose directory is ``root``.

    Raises EngineError if it does not answer, or is too old.
    """
    client = PodmanClient(socket, transport)
    try:
        capabilities = await discover(client, socket, root)
    except BaseException:
        await client.close()
        raise
    sweeper = Sweeper(client, capabilities, labels)
    starter = Starter(client, sweeper, capabilities.surroundings(labels))
    ports = PublishedPorts(labels.owner)
    sandboxes = SandboxMaker(client, starter, capabilities, labels, ports, firewall)
    users, execution = ImageUsers(client), Execution(client, capabilities)
    return Service(client, capabilities, labels, sweeper, starter, sandboxes, execution, users, ports, firewall)


async def adopt(service: Service, clock: Clock) -> list[Tracked]:
    """All containers of the location, by their labels; halves of starts are deleted. Raises EngineError.

    A container without a sandbox that runs has lost its network: its whole replica is ended.
    """
    await service.sweeper.delete_network_parts()
    listed = await service.sweeper.list_containers()
    pairs = [(each, labelled) for each in listed if (labelled := service.labels.read(each.labels)) is not None]
    found = await asyncio.gather(*(_adopt_one(service, clock, each, labelled) for each, labelled in pairs))
    newest: dict[ContainerId, Tracked] = {}
    surplus = [each.id for each, tracked in zip((one for one, _ in pairs), found, strict=True) if tracked is None]
    for tracked in sorted(filter(None, found), key=_age_order):
        if (older := newest.get(tracked.running.place)) is not None:
            surplus.append(older.id)
        newest[tracked.running.place] = tracked
    await service.sweeper.delete_wholly(surplus)
    adopted = list(newest.values())
    open_replicas = {_replica(each) for each in adopted if each.running.alive and not each.running.place.container}
    lost = {_replica(each) for each in adopted} - open_replicas
    for key, replica in sorted(lost):
        # The removal of the replica reports it.
        with contextlib.suppress(ForeignMemberError):
            await service.sweeper.delete_replica(key, replica)
    for each in adopted:
        if (
            each.running.alive
            and each.labelled.cpu
            and _replica(each) not in lost
            and not cgroups.has_quota(each.groups)
        ):
            # The daemon died between the start and its limit.
            with contextlib.suppress(PodmanError):
                await limit_cpu(service, each)
    await service.sandboxes.adopt(each for each in adopted if _replica(each) not in lost)
    return [_end_if_lost(each, lost) for each in adopted if _replica(each) not in lost or each.running.place.container]


async def release(service: Service) -> None:
    """Remove what the location has on this host, as it has no containers. Failures are left to the next daemon."""
    await service.sweeper.release()
    if service.capabilities.publishes_ports:
        for table in (service.ports, service.firewall):
            with contextlib.suppress(EngineError):
                await table.remove()


async def limit_cpu(service: Service, tracked: Tracked) -> None:
    """Set the quota of CPU of a running container, if this Podman can. Raises PodmanError."""
    body = quota_body(tracked.labelled.cpu, service.capabilities.controllers)
    if body is None:
        return
    # A request costs a hundred times as much. The groups of systemd are its own to change.
    if service.capabilities.cgroup_manager == CGROUPFS and cgroups.set_quota(tracked.groups, tracked.labelled.cpu):
        return
    await service.client.send(Request("POST", f"containers/{tracked.id}/update", body=body), safe=True)


async def resize(service: Service, tracked: Tracked, cpu: int, memory: int) -> None:
    """Change the limits of a running container, as far as this Podman has any. Raises EngineError."""
    used = (await usage(service, [tracked])).get(tracked.running.place)
    if used is not None and used.memory >= memory:
        message = f"{tracked.running.place.container} uses {used.memory >> 20} MiB, which is not below the new limit"
        raise EngineError(message, reason=Reason.LIMITS_FAILED)
    body = limits_body(cpu, memory, service.capabilities.controllers)
    if body:
        await service.client.send(Request("POST", f"containers/{tracked.id}/update", body=body), safe=True)


async def usage(service: Service, running: Sequence[Tracked]) -> dict[ContainerId, Usage]:
    """The usage of ``running``: from their control groups, of those whose groups are not visible from Podman."""
    found = await asyncio.to_thread(_usage_of_groups, running)
    rest = {each.id: each.running.place for each in running if each.running.place not in found}
    if rest:
        with contextlib.suppress(PodmanError):
            # One answer for all containers of the socket: a single unknown name would spoil a choice.
            answer = await service.client.get("containers/stats", {"stream": "false"})
            for each in read(answer, AllStats).stats or ():
                if each.id in rest:
                    found[rest[each.id]] = Usage(each.cpu / 1e9, each.memory)
    return found


def _usage_of_groups(running: Sequence[Tracked]) -> dict[ContainerId, Usage]:
    known = {each.running.place: cgroups.usage(each.groups) for each in running if each.groups}
    return {place: Usage(*used) for place, used in known.items() if used is not None}


async def _adopt_one(service: Service, clock: Clock, listed: Listed, labelled: Labelled) -> Tracked | None:
    """A container that runs or has ended; None if it was never started, or is gone meanwhile."""
    if listed.running:
        try:
            found = await service.starter.inspect(listed.id)
        except PodmanError as error:
            if error.missing:
                return None
            raise
        return track(found, labelled, clock.monotonic() - (clock.now() - wall_time(found.state.started_at)))
    if listed.state in NEW and listed.started_at <= 0:
        return None
    # The last boot of the machine took with it what is new in spite of a time of its start.
    code = None if listed.state in NEW or listed.exit_code < 0 else listed.exit_code
    started = clock.monotonic() - (clock.now() - listed.started_at)
    return Tracked(listed.id, labelled, running_container(labelled, started)).ended(Outcome(code))


def _age_order(tracked: Tracked) -> tuple[bool, float]:
    """Those that run are newer than those that have ended."""
    return tracked.running.alive, tracked.running.started


def _replica(tracked: Tracked) -> tuple[Key, str]:
    return tracked.running.place.key, tracked.running.place.replica


def _end_if_lost(tracked: Tracked, lost: set[tuple[Key, str]]) -> Tracked:
    if tracked.running.alive and _replica(tracked) in lost:
        return tracked.ended(Outcome(KILLED))
    return tracked
