"""The limitations of containers by Podman, a sentence each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconciler.engines.host.runtimes.podman.network.firewall_rules import policy_of
from reconciler.engines.host.runtimes.podman.network.name_servers import may_read_answers
from reconciler.engines.host.runtimes.podman.network.pause import occupies_ports
from reconciler.engines.host.runtimes.podman.programs import can_restrict, find_tool
from reconciler.engines.host.runtimes.podman.users.rules import lacks_for_users
from reconciler.engines.workload.spec import ContainerSpec, WorkloadSpec
from reconciler.model.platform import FILE_SHARE_URI, RESTRICTED_USER

if TYPE_CHECKING:
    from reconciler.engines.host.runtimes.podman.capabilities import Capabilities

_EVERYWHERE = "0.0.0.0/0"
_LIMITED = {"cpu": "CPU", "memory": "memory", "pids": "the number of processes"}


def list_limitations(spec: WorkloadSpec, capabilities: Capabilities | None) -> Iterator[str]:
    """The parts of ``spec`` that are not enforced, in a fixed order.

    ``capabilities`` is what Podman offers here; None for what no Podman enforces.
    """
    if capabilities is not None:
        yield from _check_limits(capabilities)
        yield from _check_rights(spec, capabilities)
        yield from _check_users(spec, capabilities)
        yield from _check_firewall(spec, capabilities)
    yield from _check_firewall_entries(spec)
    yield from _check_stores(spec, capabilities)


def _check_firewall(spec: WorkloadSpec, capabilities: Capabilities) -> Iterator[str]:
    if not capabilities.publishes_ports or find_tool("nft") is None:
        yield (
            "The firewall is not enforced: the containers reach whatever this host reaches, and those of other "
            "workloads at the same location."
        )
    elif not may_read_answers():
        for name in policy_of(spec).patterns:
            yield f"The host name {name} opens nothing: the daemon may not read answers of name servers (CAP_NET_RAW)."


def _check_firewall_entries(spec: WorkloadSpec) -> Iterator[str]:
    """Entries of the firewall that have no effect in any network of containers."""
    external = spec.firewall.external
    if any(container.ports for container in spec.containers) and _EVERYWHERE not in external.inbound_ranges:
        yield "inboundAllowCIDR applies to the ingress: programs of this host reach the workload whatever it allows."


def _check_limits(capabilities: Capabilities) -> Iterator[str]:
    if missing := [name for controller, name in _LIMITED.items() if controller not in capabilities.controllers]:
        limits = " and ".join(missing)
        version = capabilities.version
        yield f"Podman {version} cannot limit {limits} here: Podman's user may not use these control groups."
    if not capabilities.seccomp:
        yield "System calls are not filtered: this Podman has no seccomp."


def _check_rights(spec: WorkloadSpec, capabilities: Capabilities) -> Iterator[str]:
    if not occupies_ports(capabilities.architecture):
        yield "The blocked ports are not occupied on this kind of processor: a container can bind them."
    if spec.user != RESTRICTED_USER and not (capabilities.direct and can_restrict()):
        yield (
            f"An image that runs as user {RESTRICTED_USER} still has a network: the daemon lacks nftables, or the "
            "rights of root."
        )
    if not capabilities.direct and any(map(_runs_programs, spec.containers)):
        yield (
            "Each probe and hook that runs a program leaves two processes for a while: set exit_command_delay in the "
            "section [engine] of containers.conf to 10."
        )
    if spec.group and os.geteuid() != 0:
        yield f"The group {spec.group} does not own the volumes: only a daemon that runs as root may give them."


def _check_users(spec: WorkloadSpec, capabilities: Capabilities) -> Iterator[str]:
    if lacking := lacks_for_users(spec, capabilities):
        yield f"Users of the containers are those of this host, without a user namespace: {lacking}."


def _check_stores(spec: WorkloadSpec, capabilities: Capabilities | None) -> Iterator[str]:
    for at in spec.stores:
        if at.uri.startswith(FILE_SHARE_URI):
            yield f"{at.uri} is not mounted at {at.path}: this runtime mounts object stores, but no file shares."
        elif capabilities is not None and capabilities.lacks_for_stores:
            yield f"{at.uri} is not mounted at {at.path}: {capabilities.lacks_for_stores}."


def _runs_programs(container: ContainerSpec) -> bool:
    probes = (container.readiness, container.liveness)
    commands = [probe for probe in probes if probe is not None and probe.exec is not None]
    return bool(commands or container.post_start or container.pre_stop)
