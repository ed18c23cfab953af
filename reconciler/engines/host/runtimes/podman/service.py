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
from reconciler.engines.host.runtimes.podman.api.answers import (
    NEW,
    AllStats,
    Listed,
    PodmanError,
    decode_answer,
    wall_time,
)
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient, PodmanRequest
from reconciler.engines.host.runtimes.podman.api.image_users import ImageUsers
from reconciler.engines.host.runtimes.podman.capabilities import CGROUPFS, Capabilities, discover_capabilities
from reconciler.engines.host.runtimes.podman.exec import ExecRunner
from reconciler.engines.host.runtimes.podman.labels import Labelled, PodmanLabels
from reconciler.engines.host.runtimes.podman.network.firewall import LocationFirewall
from reconciler.engines.host.runtimes.podman.network.published_ports import PublishedPorts
from reconciler.engines.host.runtimes.podman.network.sandbox import SandboxMaker
from reconciler.engines.host.runtimes.podman.spec import limits_body, quota_body
from reconciler.engines.host.runtimes.podman.starting import Starter
from reconciler.engines.host.runtimes.podman.sweep import ForeignMemberError, Sweeper
from reconciler.engines.host.runtimes.podman.tracked import (
    KILLED,
    ContainerOutcome,
    Tracked,
    running_container,
    track_container,
)
from reconciler.engines.host.runtimes.protocol import ContainerId, Usage
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason


class PodmanService(NamedTuple):
    """The parts of a connection."""

    client: PodmanClient
    capabilities: Capabilities
    labels: PodmanLabels
    sweeper: Sweeper
    starter: Starter
    sandboxes: SandboxMaker
    execution: ExecRunner
    users: ImageUsers
    ports: PublishedPorts
    firewall: LocationFirewall


async def connect_service(
    socket: Path,
    root: Path,
    labels: PodmanLabels,
    firewall: LocationFirewall,
    transport: httpx2.AsyncBaseTransport | None,
) -> PodmanService:
    """Connect to the service at ``socket``, for the location whose directory is ``root``.

    Raises EngineError if it does not answer, or is too old.
    """
    client = PodmanClient(socket, transport)
    try:
        capabilities = await discover_capabilities(client, socket, root)
    except BaseException:
        await client.close()
        raise
    sweeper = Sweeper(client, capabilities, labels)
    starter = Starter(client, sweeper, capabilities.surroundings(labels))
    ports = PublishedPorts(labels.owner)
    sandboxes = SandboxMaker(client, starter, capabilities, labels, ports, firewall)
    users, execution = ImageUsers(client), ExecRunner(client, capabilities)
    return PodmanService(client, capabilities, labels, sweeper, starter, sandboxes, execution, users, ports, firewall)


async def adopt_containers(service: PodmanService, clock: Clock) -> list[Tracked]:
    """All containers of the location, by their labels; halves of starts are deleted. Raises EngineError.

    A container without a sandbox that runs has lost its network: its whole replica is ended.
    """
    await service.sweeper.delete_network_parts()
    listed = await service.sweeper.list_containers()
    pairs = [
        (container, labelled) for container in listed if (labelled := service.labels.read(container.labels)) is not None
    ]
    adoptions = await asyncio.gather(*(_adopt_one(service, clock, listed, labelled) for listed, labelled in pairs))
    newest: dict[ContainerId, Tracked] = {}
    surplus = [listed.id for (listed, _), tracked in zip(pairs, adoptions, strict=True) if tracked is None]
    for tracked in sorted(filter(None, adoptions), key=_age_order):
        if (older := newest.get(tracked.running.place)) is not None:
            surplus.append(older.id)
        newest[tracked.running.place] = tracked
    await service.sweeper.delete_wholly(surplus)
    adopted = list(newest.values())
    sandboxes = (tracked for tracked in adopted if not tracked.running.place.container)
    open_replicas = {_get_replica_key(sandbox) for sandbox in sandboxes if sandbox.running.alive}
    lost = {_get_replica_key(tracked) for tracked in adopted} - open_replicas
    for key, replica in sorted(lost):
        # The removal of the replica reports it.
        with contextlib.suppress(ForeignMemberError):
            await service.sweeper.delete_replica(key, replica)
    for container in adopted:
        if (
            container.running.alive
            and container.labelled.cpu
            and _get_replica_key(container) not in lost
            and not cgroups.has_quota(container.groups)
        ):
            # The daemon died between the start and its limit.
            with contextlib.suppress(PodmanError):
                await limit_cpu(service, container)
    await service.sandboxes.adopt(tracked for tracked in adopted if _get_replica_key(tracked) not in lost)
    return [
        _end_if_lost(tracked, lost)
        for tracked in adopted
        if _get_replica_key(tracked) not in lost or tracked.running.place.container
    ]


async def release_location(service: PodmanService) -> None:
    """Remove what the location has on this host, as it has no containers. Failures are left to the next daemon."""
    await service.sweeper.release()
    if service.capabilities.publishes_ports:
        for table in (service.ports, service.firewall):
            with contextlib.suppress(EngineError):
                await table.remove()


async def limit_cpu(service: PodmanService, tracked: Tracked) -> None:
    """Set the quota of CPU of a running container, if this Podman can. Raises PodmanError."""
    body = quota_body(tracked.labelled.cpu, service.capabilities.controllers)
    if body is None:
        return
    # A request costs a hundred times as much. The groups of systemd are its own to change.
    if service.capabilities.cgroup_manager == CGROUPFS and cgroups.set_quota(tracked.groups, tracked.labelled.cpu):
        return
    await service.client.send(PodmanRequest("POST", f"containers/{tracked.id}/update", body=body), safe=True)


async def resize_container(service: PodmanService, tracked: Tracked, cpu: int, memory: int) -> None:
    """Change the limits of a running container, as far as this Podman has any. Raises EngineError."""
    used = (await collect_usage(service, [tracked])).get(tracked.running.place)
    if used is not None and used.memory >= memory:
        message = f"{tracked.running.place.container} uses {used.memory >> 20} MiB, which is not below the new limit"
        raise EngineError(message, reason=Reason.LIMITS_FAILED)
    body = limits_body(cpu, memory, service.capabilities.controllers)
    if body:
        await service.client.send(PodmanRequest("POST", f"containers/{tracked.id}/update", body=body), safe=True)


async def collect_usage(service: PodmanService, running: Sequence[Tracked]) -> dict[ContainerId, Usage]:
    """The usage of ``running``: from their control groups, of those whose groups are not visible from Podman."""
    usages = await asyncio.to_thread(_usage_of_groups, running)
    rest = {tracked.id: tracked.running.place for tracked in running if tracked.running.place not in usages}
    if rest:
        with contextlib.suppress(PodmanError):
            # One answer for all containers of the socket: a single unknown name would spoil a choice.
            answer = await service.client.get("containers/stats", {"stream": "false"})
            for stat in decode_answer(answer, AllStats).stats or ():
                if stat.id in rest:
                    usages[rest[stat.id]] = Usage(stat.cpu / 1e9, stat.memory)
    return usages


def _usage_of_groups(running: Sequence[Tracked]) -> dict[ContainerId, Usage]:
    usages = {tracked.running.place: cgroups.read_usage(tracked.groups) for tracked in running if tracked.groups}
    return {container_id: Usage(*used) for container_id, used in usages.items() if used is not None}


async def _adopt_one(service: PodmanService, clock: Clock, listed: Listed, labelled: Labelled) -> Tracked | None:
    """A container that runs or has ended; None if it was never started, or is gone meanwhile."""
    if listed.running:
        try:
            inspected = await service.starter.inspect(listed.id)
        except PodmanError as error:
            if error.missing:
                return None
            raise
        return track_container(
            inspected, labelled, clock.monotonic() - (clock.now() - wall_time(inspected.state.started_at))
        )
    if listed.state in NEW and listed.started_at <= 0:
        return None
    # The last boot of the machine took with it what is new in spite of a time of its start.
    code = None if listed.state in NEW or listed.exit_code < 0 else listed.exit_code
    started = clock.monotonic() - (clock.now() - listed.started_at)
    return Tracked(listed.id, labelled, running_container(labelled, started)).as_ended(ContainerOutcome(code))


def _age_order(tracked: Tracked) -> tuple[bool, float]:
    """Those that run are newer than those that have ended."""
    return tracked.running.alive, tracked.running.started


def _get_replica_key(tracked: Tracked) -> tuple[Key, str]:
    return tracked.running.place.key, tracked.running.place.replica


def _end_if_lost(tracked: Tracked, lost: set[tuple[Key, str]]) -> Tracked:
    if tracked.running.alive and _get_replica_key(tracked) in lost:
        return tracked.as_ended(ContainerOutcome(KILLED))
    return tracked
