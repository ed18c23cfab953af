"""The sandbox of a replica: a container that sleeps, and holds the network for those that do the work.

It publishes the replica's ports on 127.0.0.1 and occupies the blocked ones. A container that restarts comes back into
the same network; if the sandbox itself ends, the whole replica is lost, since its namespace cannot be had again.
"""

from __future__ import annotations

import asyncio

from reconciler.engines.host.runtimes.podman.api.answers import Inspected, PodmanError
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient, Request, segment
from reconciler.engines.host.runtimes.podman.capabilities import Capabilities
from reconciler.engines.host.runtimes.podman.labels import LOCATION, OWNER, PodmanLabels
from reconciler.engines.host.runtimes.podman.network.pause import PauseImage, pause_image
from reconciler.engines.host.runtimes.podman.programs import can_restrict, drop_packets
from reconciler.engines.host.runtimes.podman.spec import RESTRICTED_USER, sandbox_body
from reconciler.engines.host.runtimes.podman.starting import Starter
from reconciler.engines.host.runtimes.protocol import ContainerStart
from reconciler.errors import EngineError
from reconciler.model.platform import BLOCKED_PORTS
from reconciler.reasons import Reason

_ATTEMPTS = 4
_LACKING = ("network not found", "unable to find network", "image not known", "no such image")


class SandboxMaker:
    """Creates sandboxes, after the image and the network of the location."""

    def __init__(
        self, client: PodmanClient, starter: Starter, capabilities: Capabilities, labels: PodmanLabels
    ) -> None:
        self._client = client
        self._starter = starter
        self._capabilities = capabilities
        self._labels = labels
        self._image = ""
        self._making = asyncio.Lock()

    async def make(self, launch: ContainerStart) -> Inspected:
        """Start the sandbox of the replica that ``launch`` belongs to. Raises EngineError."""
        image = await self._provide()
        try:
            return await self._run(launch, image)
        except PodmanError as error:
            if not any(each in str(error) for each in _LACKING):
                raise
        # Somebody has removed the image or the network since.
        self._image = ""
        return await self._run(launch, await self._provide())

    async def restrict(self, sandbox_pid: int) -> None:
        """Drop all packets of user 1337 in the namespace of a sandbox. Raises EngineError if the kernel refuses that.

        Without the rights or the programs nothing is done; NotEnforced says so (limitations.py).
        """
        if self._capabilities.direct and can_restrict():
            await asyncio.to_thread(drop_packets, sandbox_pid, RESTRICTED_USER)

    async def _run(self, launch: ContainerStart, image: str) -> Inspected:
        return await self._starter.run(lambda around, nonce: sandbox_body(launch, around, image, nonce))

    async def _provide(self) -> str:
        """The reference of the image; image and network exist. Raises EngineError."""
        async with self._making:
            if not self._image:
                made = await asyncio.to_thread(pause_image, self._capabilities.architecture, BLOCKED_PORTS)
                if made is None:
                    message = "no program for sandboxes: install catatonit, which Podman recommends"
                    raise EngineError(message, reason=Reason.RUNTIME_UNAVAILABLE)
                await self._load(made)
                await self._make_network()
                self._image = made.reference
        return self._image

    async def _load(self, made: PauseImage) -> None:
        if not await self._exists(f"images/{segment(made.reference)}"):
            await self._client.send(Request("POST", "images/load", body=made.archive), safe=True)

    async def _make_network(self) -> None:
        body = {
            "name": self._labels.network,
            "driver": "bridge",
            "dns_enabled": False,
            "options": {"isolate": "true"},
            "labels": {OWNER: self._labels.owner, LOCATION: self._labels.location},
        }
        for attempt in range(_ATTEMPTS):
            if await self._exists(f"networks/{segment(self._labels.network)}"):
                return
            try:
                await self._client.post("networks/create", body)
            except PodmanError as error:
                # If its reply is lost, the network may be there, or not.
                if not error.lost or attempt == _ATTEMPTS - 1:
                    raise

    async def _exists(self, path: str) -> bool:
        try:
            await self._client.get(f"{path}/exists")
        except PodmanError as error:
            if error.missing:
                return False
            raise
        return True
