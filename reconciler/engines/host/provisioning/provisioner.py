"""Puts together ports, files and variables for each start of a container."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

import msgspec

from reconciler.engines.host.dataplane.ports import can_bind_port, free_ports
from reconciler.engines.host.decisions.replica import Phase, Replica, container_of
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.provisioning.files import Files
from reconciler.engines.host.provisioning.stores import store_mounts
from reconciler.engines.host.provisioning.template_store import TemplateStore
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart, Runtime
from reconciler.engines.host.volumesets.attachments import holder_name
from reconciler.engines.host.volumesets.verifier import CheckRun
from reconciler.engines.host.volumesets.volume_sets import VolumeSets
from reconciler.engines.protocol import SecretReader
from reconciler.engines.volumes import VolumeId
from reconciler.engines.workload.environment import build_environment, unset_variables
from reconciler.engines.workload.object_stores import unmounted_stores
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.engines.workload.variable_expansion import expand_arguments
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Container, Variable, mounted_in, mounted_volumesets
from reconciler.model.platform import VOLUMESET_URI
from reconciler.reasons import Reason
from reconciler.settings import HostSettings

_ports_in_use: dict[int, tuple[Key, str]] = {}
"""Ports of this host that replicas use, at all locations: the locations of one daemon share the host."""


class ContainerRun(msgspec.Struct, frozen=True):
    """One run of a container. ``ports`` are the assigned ones by the declared ones, of all of its replica.

    ``volumes`` has the paths of copies that it gets in place of its volumes, by the name of the volume set.
    """

    place: ContainerId
    version: int
    config_hash: str
    index: int
    image: str
    ports: dict[int, int] = {}
    volumes: dict[str, Path] = {}


class Provisioner(LocationPart):
    """Provides the containers of one location with everything they need.

    ``templates`` has the templates of all running versions, so that containers of an old version can restart.
    """

    def __init__(
        self,
        files: Files,
        reveal: SecretReader,
        runtime: Runtime,
        settings: HostSettings,
        templates: TemplateStore,
        volumes: VolumeSets,
    ) -> None:
        self._files = files
        self._reveal = reveal
        self._runtime = runtime
        self._settings = settings
        self._among = range(settings.first_port, settings.last_port + 1)
        self._templates = templates
        self._volumes = volumes

    def reserve_ports(self, key: Key, replica: str, ports: Mapping[int, int]) -> None:
        """Reserve the ports of an existing replica."""
        for port in ports.values():
            _ports_in_use[port] = (key, replica)

    def ports(self, spec: WorkloadSpec, name: str) -> dict[int, int]:
        """A port of this host for each declared one, and for metrics. Raises EngineError, reason NoFreePort."""
        declared = list(dict.fromkeys(port for container in spec.containers for port in container.assigned_ports))
        assigned_ports = free_ports(declared, _ports_in_use.keys(), self._port_seed(spec.key, name), self._among)
        for port in assigned_ports.values():
            _ports_in_use[port] = (spec.key, name)
        return assigned_ports

    def reassign_ports(self, replica: Replica, container: str) -> dict[int, int]:
        """The ports of ``replica``, with new ones for ports of ``container`` that another program listens on."""
        mine = next((member.wanted.assigned_ports for member in replica.containers if member.name == container), ())
        if self._runtime.holds_ports(replica.key, replica.name):
            return replica.ports
        lost = [port for port in mine if port not in replica.ports or not can_bind_port(replica.ports[port])]
        if not lost:
            return replica.ports
        assigned_ports = free_ports(lost, _ports_in_use.keys(), self._port_seed(replica.key, replica.name), self._among)
        for declared, port in assigned_ports.items():
            _ports_in_use.pop(replica.ports.get(declared, 0), None)
            _ports_in_use[port] = (replica.key, replica.name)
        return {**replica.ports, **assigned_ports}

    def _port_seed(self, key: Key, name: str) -> str:
        """A different seed for each daemon; otherwise all would try the same ports for replicas of the same name."""
        return f"{self._files.endpoints}/{key}/{name}"

    def store_template(self, replica: Replica) -> None:
        """Store what the execution ``replica`` is started from, for the next daemon. Raises EngineError."""
        self._templates.store(replica.key, replica.version, replica.config_hash)

    async def attach(self, replica: Replica, container: str) -> None:
        """Attach the volumes that a container mounts. Raises EngineError, reason VolumeInUse for one in use."""
        await self._attach_by(self._volumes.attach, replica, container)

    async def attach_again(self, replica: Replica, is_there: Callable[[], bool]) -> None:
        """Attach volumes that running containers use, and whose locks were removed while no daemon ran.

        ``is_there`` is whether the replica still exists. Raises EngineError.
        """
        for container in replica.containers:
            if container.phase is Phase.RUNNING and replica.ending is None:
                await self._attach_by(self._volumes.attach_again, replica, container.name)
        if not is_there():
            await self._volumes.attachments.detach(holder_name(replica.key, replica.name))

    async def _attach_by(
        self, attach: Callable[[VolumeId, str, int, Owner], Awaitable[None]], replica: Replica, container: str
    ) -> None:
        template, spec = self._made_from(replica, container)
        holder = holder_name(replica.key, replica.name)
        for name in mounted_in((spec,)):
            volume = VolumeId(Key(Kind.VOLUMESET, replica.key.gvc, name), max(replica.index, 0))
            await attach(volume, holder, replica.version, self._runtime.owner(template.desired))

    def launch(self, replica: Replica, container: str) -> ContainerStart:
        """Everything to start a container whose volumes are attached, with new files. Raises EngineError."""
        template, spec = self._made_from(replica, container)
        run = ContainerRun(
            ContainerId(replica.key, replica.name, container),
            replica.version,
            replica.config_hash,
            replica.index,
            container_of(replica, container).wanted.image or spec.image,
            replica.ports,
        )
        return self._launch(template, _apply_overrides(spec, replica), run)

    def launch_check(self, container_id: ContainerId, check: CheckRun) -> ContainerStart:
        """Everything to start a container like one of the newest version, which runs a check of its volume's copy.

        It has no other volume of a volume set, and no ports. Raises EngineError.
        """
        template = self._newest(check.workload)
        container_specs = [container for container in template.spec.containers if container.name == check.container]
        containers = [container for container in template.desired.containers if container.name == check.container]
        if not container_specs or not containers:
            message = f"{check.workload} has no container {check.container} any more"
            raise EngineError(message, reason=Reason.TEMPLATE_NOT_FOUND)
        name, (command, *args) = check.volume.volumeset.name, check.command
        own = f"{VOLUMESET_URI}{name}"
        spec = msgspec.structs.replace(
            container_specs[0],
            command=command,
            args=tuple(args),
            volumes=tuple(
                at for at in container_specs[0].volumes if at.uri == own or not at.uri.startswith(VOLUMESET_URI)
            ),
        )
        desired = template.desired
        return self._launch(
            template,
            spec,
            ContainerRun(
                container_id,
                desired.version,
                desired.config_hash,
                check.volume.index,
                containers[0].image or spec.image,
                volumes={name: check.path},
            ),
        )

    async def release_check(self, container_id: ContainerId) -> None:
        """Remove the files of a container that ran a check. Raises EngineError."""
        await asyncio.to_thread(self._files.clear, container_id.key, container_id.replica)

    def owner(self, key: Key) -> Owner:
        """The user and group of the files of a workload's containers. Raises EngineError."""
        return self._runtime.owner(self._newest(key).desired)

    def _newest(self, key: Key) -> ReplicaTemplate:
        """The template of the newest version of a workload. Raises EngineError."""
        template = self._templates.newest.get(key)
        if template is None:
            raise EngineError(f"{key} was not applied here yet", reason=Reason.TEMPLATE_NOT_FOUND)
        return template

    def _launch(self, template: ReplicaTemplate, spec: Container, run: ContainerRun) -> ContainerStart:
        container_id, container = run.place, run.place.container
        owner = self._runtime.owner(template.desired)
        files = self._files.provide(container_id, run.index, spec, owner, run.volumes)
        view = self._runtime.make_view(files, run.ports, spec.working_dir)
        desired_spec = next(
            container_spec for container_spec in template.desired.containers if container_spec.name == container
        )
        env = build_environment(spec, template.env_context, view, self._reveal)
        command, *args = expand_arguments((spec.command, *spec.args), env)
        return ContainerStart(
            container_id,
            run.version,
            run.config_hash,
            run.index,
            command,
            tuple(args),
            env,
            image=run.image,
            directory=view.directory,
            user=owner.user,
            group=owner.group,
            cpu=desired_spec.cpu,
            memory=desired_spec.memory,
            processes=self._settings.pids_limit,
            ports={port: run.ports[port] for port in desired_spec.assigned_ports if port in run.ports},
            mounts=files.mounts,
            replica_ports=run.ports,
            siblings=tuple(container.name for container in template.desired.containers),
            restriction=template.desired.restriction,
            stores=store_mounts(spec, template.access, self._reveal) if self._runtime.mounts_stores else (),
            ids=owner.ids,
        )

    def limitations(self, template: ReplicaTemplate) -> tuple[str, ...]:
        """A sentence for each thing that the containers of a workload cannot get from any runtime."""
        stores = unmounted_stores(template.spec, template.access) if self._runtime.mounts_stores else ()
        volumes = self._volumes.limitations(self._volumesets(template))
        return (*template.unmodelled, *unset_variables(template.spec, template.env_context), *stores, *volumes)

    def _volumesets(self, template: ReplicaTemplate) -> list[Key]:
        gvc = template.desired.key.gvc
        return [Key(Kind.VOLUMESET, gvc, name) for name in mounted_volumesets(template.spec)]

    async def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """Remove what a crash left of replicas other than ``replicas``, as far as that is possible."""
        await self._volumes.attachments.prune({holder_name(*replica) for replica in replicas})
        await asyncio.to_thread(self._files.prune, replicas)

    async def release(self, replica: Replica) -> None:
        """Detach the volumes of a replica, remove its files and release its ports. Raises EngineError."""
        await self._volumes.attachments.detach(holder_name(replica.key, replica.name))
        await asyncio.to_thread(self._files.clear, replica.key, replica.name)
        self.release_ports(replica)

    def release_ports(self, replica: Replica) -> None:
        """Release the ports of a replica."""
        for port in replica.ports.values():
            if _ports_in_use.get(port) == (replica.key, replica.name):
                del _ports_in_use[port]

    def _made_from(self, replica: Replica, container: str) -> tuple[ReplicaTemplate, Container]:
        """The template of the replica's version; after a restart of the daemon only the newest, and those of
        executions, are known."""
        template = self._templates.get(replica.key, replica.version, replica.config_hash)
        containers = (
            [container_spec for container_spec in template.spec.containers if container_spec.name == container]
            if template is not None
            else []
        )
        if template is None or not containers:
            message = f"version {replica.version} of {replica.key} is no longer known; a newer one takes its place"
            raise EngineError(message, reason=Reason.TEMPLATE_NOT_FOUND)
        return template, containers[0]


def _apply_overrides(spec: Container, replica: Replica) -> Container:
    """``spec`` with the overrides of an execution on demand; its variables win over those of the same name."""
    overrides = replica.run.overrides if replica.run is not None else ()
    for override in overrides:
        if override.name != spec.name:
            continue
        own = tuple(Variable(one.name, one.value) for one in override.env or ())
        names = {one.name for one in own}
        spec = msgspec.structs.replace(
            spec,
            command=spec.command if override.command is None else override.command,
            args=spec.args if override.args is None else override.args,
            env=(*(one for one in spec.env if one.name not in names), *own),
        )
    return spec
