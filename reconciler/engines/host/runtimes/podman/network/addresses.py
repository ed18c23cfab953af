"""Where the containers of a location reach replicas: all containers are in one network of Podman, apart from the host.

A replica without a sandbox here runs in another runtime, until the rollout that a change of the runtime is replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from reconciler.engines.host.runtimes import procfs
from reconciler.engines.host.runtimes.podman.tracking import TrackedContainers
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.model.key import Key

# The state of a socket that listens, as the kernel writes it.
_LISTENING = b"0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def addresses_in_network(
    containers: TrackedContainers, rootless: bool, replica: tuple[Key, str], ports: Mapping[int, int]
) -> dict[int, str]:
    """``address:port`` for each declared one of ``ports`` that containers reach; blocks for a moment.

    A container without root's Podman (``rootless``) does not reach this host.
    """
    sandbox = containers.get(ContainerId(*replica, ""))
    if sandbox is not None:
        address = sandbox.network.address
        return {declared: f"{address}:{declared}" for declared in ports} if address else {}
    gateway = next(filter(None, (sandbox.network.gateway for sandbox in containers.sandboxes())), "")
    if rootless or not gateway or not ports:
        return {}
    listened = set(_listened_everywhere())
    return {declared: f"{gateway}:{assigned}" for declared, assigned in ports.items() if assigned in listened}


def _listened_everywhere() -> Iterator[int]:
    """The ports of this host on which programs listen at every address, the gateways of networks included."""
    for table in _TABLES:
        with suppress(OSError):
            for line in procfs.read_kernel_file(table).splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                address, _, port = local.partition(b":")
                # Zeros alone are every address; what listens at 127.0.0.1 is out of reach of containers.
                if state == _LISTENING and not address.strip(b"0"):
                    yield int(port, 16)
