"""What is true of containers that are programs of this host, whatever starts them."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.engines.host.images.protocol import ImageStore
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason


class HostPrograms:
    """A runtime without images and networks (see Runtime for the methods)."""

    resizes = False
    mounts_stores = False
    image_store: ImageStore | None = None
    idle_store: ImageStore | None = None

    def addresses(self, key: Key, replica: str, ports: Mapping[int, int]) -> Mapping[int, str] | None:
        """None: they share the network of this host."""

    async def can_sleep(self, place: ContainerId) -> bool:  # noqa: ARG002
        """Every host has it, and nothing runs it here."""
        return True

    async def resize(self, place: ContainerId, cpu: int, memory: int) -> None:
        """Not supported: programs get their limits at their start. Raises EngineError."""
        message = f"the limits of {place.container}, CPU {cpu}m and {memory >> 20} MiB, are set at its start only"
        raise EngineError(message, reason=Reason.LIMITS_FAILED)
