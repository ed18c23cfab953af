"""Limitations that do not depend on the runtime, or that all programs of this host share, whatever starts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.images.protocol import ImageStore
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason


class HostPrograms:
    """A runtime whose containers are programs of this host, without images and networks (see Runtime)."""

    resizes = False
    mounts_stores = False
    image_store: ImageStore | None = None
    idle_store: ImageStore | None = None

    def addresses(self, key: Key, replica: str, ports: Mapping[int, int]) -> Mapping[int, str] | None:
        """None: they share the network of this host."""

    def publish(self, key: Key, ready: Mapping[str, Mapping[int, str]]) -> None:
        """Does nothing: programs of this host find replicas in the endpoints files."""

    def take_events(self) -> list[tuple[Reason, str]]:
        """None: they share this host as it is."""
        return []

    async def can_sleep(self, container_id: ContainerId) -> bool:  # noqa: ARG002
        """Every host has it, and nothing runs it here."""
        return True

    async def resize(self, container_id: ContainerId, cpu: int, memory: int) -> None:
        """Not supported: programs get their limits at their start. Raises EngineError."""
        message = (
            f"the limits of {container_id.container}, CPU {cpu}m and {memory >> 20} MiB, are set at its start only"
        )
        raise EngineError(message, reason=Reason.LIMITS_FAILED)


def object_stores(spec: WorkloadSpec) -> Iterator[str]:
    """Object stores and file shares."""
    for at in spec.stores:
        yield f"{at.uri} is not mounted at {at.path}: this runtime mounts neither object stores nor file shares."


def separate_networks(spec: WorkloadSpec) -> Iterator[str]:
    """Programs of this host, while containers at the location have a network of their own."""
    if any(container.ports for container in spec.containers):
        yield (
            "Until the change of the runtime is complete, containers of images reach a replica that runs as processes "
            "only if its program listens at all addresses of this host."
        )
