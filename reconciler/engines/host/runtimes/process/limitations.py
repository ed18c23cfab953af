"""The limitations of containers that are processes of this host, a sentence each."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from reconciler.engines.host.runtimes.limitations import object_stores
from reconciler.engines.workload.spec import ContainerSpec, WorkloadSpec
from reconciler.model.kinds.workload import Firewall


class HostRights(msgspec.Struct, frozen=True):
    """The rights of the daemon on this host: root, limits for CPU and memory, a process limit for each container.

    ``processes`` is the limit for all containers of a user together, which applies without ``pids``.
    """

    root: bool
    limited: bool
    pids: bool
    processes: int = 0


def list_limitations(spec: WorkloadSpec, rights: HostRights) -> Iterator[str]:
    """The parts of ``spec`` that are not enforced, in a fixed order (docs/platform/workload.md#containers)."""
    yield from _list_program_limitations(spec)
    if not rights.limited:
        yield (
            "The limits of CPU and memory are not enforced: the daemon cannot create control groups with both "
            "controllers here."
        )
    yield from _list_process_limitations(spec, rights)
    if not rights.root:
        yield from _list_user_limitations(spec)
    yield from _list_path_limitations(spec)
    yield from _list_name_limitations(spec)
    if spec.firewall != Firewall():
        yield "The firewall is not enforced: the workload has the same network access as this host."
    else:
        yield (
            "The firewall is not enforced: without firewallConfig the platform allows no traffic, but here the "
            "workload has the same network access as this host."
        )
    yield from object_stores(spec)


def _list_program_limitations(spec: WorkloadSpec) -> Iterator[str]:
    if images := sorted({container.image for container in spec.containers if container.image}):
        yield f"Images are not used ({', '.join(images)}): commands run programs and files of this host."
    if spec.dynamic_tags:
        yield "Images are not checked for updates (supportDynamicTags), because none is used."


def _list_process_limitations(spec: WorkloadSpec, rights: HostRights) -> Iterator[str]:
    if not rights.pids:
        yield (
            f"The number of processes is not limited for each container: all containers of a user together may have "
            f"{rights.processes}."
        )
    if not rights.limited and any(_starts_beside(container) for container in spec.containers):
        yield (
            "A process that a probe or a hook starts in its own session with an empty environment may outlive the "
            "container: only a control group would show to which container it belongs."
        )


def _starts_beside(container: ContainerSpec) -> bool:
    probes = (container.readiness, container.liveness)
    commands = [probe for probe in probes if probe is not None and probe.exec is not None]
    return bool(commands or container.post_start or container.pre_stop)


def _list_user_limitations(spec: WorkloadSpec) -> Iterator[str]:
    if spec.user is not None and spec.user != os.geteuid():
        yield f"The user {spec.user} is not enforced: only a daemon that runs as root can change it."
    if spec.group and spec.group not in (os.getegid(), *os.getgroups()):
        yield f"The group {spec.group} does not own the volumes: only a daemon that runs as root can set it."


def _list_path_limitations(spec: WorkloadSpec) -> Iterator[str]:
    if paths := sorted({path for container in spec.containers for path in container.mounts}):
        yield f"Volumes are not at their paths ({', '.join(paths)}) but below the directory in RECONCILER_VOLUMES."


def _list_name_limitations(spec: WorkloadSpec) -> Iterator[str]:
    if len(spec.containers) > 1:
        yield "Containers do not reach each other by name, only at 127.0.0.1 and their assigned ports."
    if any(container.ports for container in spec.containers):
        name = f"{spec.key.name}.{spec.key.gvc}.platform.local"
        yield f"The name {name} is not known to other workloads; replicas are listed below RECONCILER_ENDPOINTS."
