"""The sandbox of a replica: a container that sleeps, and holds the network for those that do the work.

The replica's ports on 127.0.0.1 lead to it, and it occupies the blocked ones. A container that restarts comes back into
the same network; if the sandbox itself ends, the whole replica is lost, since its namespace cannot be had again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Network
from typing import Any

from reconciler.engines.host.runtimes.podman.api.answers import Inspected, NetworkInfo, PodmanError, decode_answer
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient, PodmanRequest, encode_segment
from reconciler.engines.host.runtimes.podman.capabilities import Capabilities
from reconciler.engines.host.runtimes.podman.labels import LOCATION, OWNER, PodmanLabels
from reconciler.engines.host.runtimes.podman.network.firewall import LocationFirewall
from reconciler.engines.host.runtimes.podman.network.pause import PauseImage, pause_image
from reconciler.engines.host.runtimes.podman.network.published_ports import PublishedPorts
from reconciler.engines.host.runtimes.podman.programs import can_restrict, drop_packets
from reconciler.engines.host.runtimes.podman.spec import sandbox_body, sandbox_place
from reconciler.engines.host.runtimes.podman.starting import Starter
from reconciler.engines.host.runtimes.podman.tracked import Tracked
from reconciler.engines.host.runtimes.protocol import ContainerStart
from reconciler.errors import EngineError
from reconciler.model.platform import BLOCKED_PORTS, RESTRICTED_USER
from reconciler.reasons import Reason

_ATTEMPTS = 4
_POOLS = [
    IPv4Network(each) for each in ("10.89.0.0/16", "10.90.0.0/15", "10.92.0.0/14", "10.96.0.0/11", "10.128.0.0/9")
]
"""Where Podman looks for networks by itself; an operator who has set other pools may mean just these addresses."""
_WIDTH, _TRIES = 22, 8
"""The bits of a network; a bridge has room for no more than its 1,021 replicas."""
_IN_USE = "already used"
_LACKING = ("network not found", "unable to find network", "image not known", "no such image")


class SandboxMaker:
    """Creates sandboxes, after the image and the network of the location."""

    def __init__(
        self,
        client: PodmanClient,
        starter: Starter,
        capabilities: Capabilities,
        labels: PodmanLabels,
        ports: PublishedPorts,
        firewall: LocationFirewall,
    ) -> None:
        self._client = client
        self._firewall = firewall
        self._ports = ports
        self._starter = starter
        self._capabilities = capabilities
        self._labels = labels
        self._image = ""
        self._making = asyncio.Lock()

    async def make(self, launch: ContainerStart) -> Inspected:
        """Start the sandbox of the replica that ``launch`` belongs to. Raises EngineError."""
        image = await self._provide()
        container_id = sandbox_place(launch)
        if self._ports.active:
            self._ports.occupy(container_id, launch.replica_ports.values())
        try:
            return await self._start(launch, image)
        except BaseException:
            self._ports.release(container_id)
            raise

    async def publish(self, launch: ContainerStart, address: str) -> None:
        """Let a sandbox have connections, and lead the replica's ports to it, unless Podman did. Raises EngineError."""
        container_id = sandbox_place(launch)
        if self._firewall.active and address:
            self._firewall.admit(container_id, address)
        if self._ports.active and address:
            self._ports.lead(container_id, launch.replica_ports, address)
        await asyncio.gather(self._ports.write(), self._firewall.write())

    async def adopt(self, trackeds: Iterable[Tracked]) -> None:
        """Lead the ports of running sandboxes among ``trackeds`` to them, as before. Raises PodmanError."""
        sandboxes = [tracked for tracked in trackeds if tracked.network.address and not tracked.running.place.container]
        if not sandboxes or not self._capabilities.publishes_ports:
            return
        for sandbox in sandboxes:
            with suppress(EngineError):
                # The monitor of a sandbox whose ports Podman published occupies them itself.
                self._ports.occupy(sandbox.running.place, sandbox.labelled.ports.values())
            self._ports.lead(sandbox.running.place, sandbox.labelled.ports, sandbox.network.address)
            self._firewall.admit(sandbox.running.place, sandbox.network.address)
        await self._open_ports()

    async def _start(self, launch: ContainerStart, image: str) -> Inspected:
        try:
            return await self._run(launch, image)
        except PodmanError as error:
            if not any(text in str(error) for text in _LACKING):
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
        published = self._ports.active
        return await self._starter.run(
            lambda around, nonce: sandbox_body(launch, around, image, nonce, published=published)
        )

    async def _provide(self) -> str:
        """The reference of the image; image and network exist. Raises EngineError."""
        async with self._making:
            if not self._image:
                image = await asyncio.to_thread(pause_image, self._capabilities.architecture, BLOCKED_PORTS)
                if image is None:
                    message = "no program for sandboxes: install catatonit, which Podman recommends"
                    raise EngineError(message, reason=Reason.RUNTIME_UNAVAILABLE)
                await self._load(image)
                await self._make_network()
                if self._capabilities.publishes_ports:
                    await self._open_ports()
                self._image = image.reference
        return self._image

    async def _load(self, image: PauseImage) -> None:
        if not await self._exists(f"images/{encode_segment(image.reference)}"):
            await self._client.send(PodmanRequest("POST", "images/load", body=image.archive), safe=True)

    async def _make_network(self) -> None:
        body: dict[str, Any] = {
            "name": self._labels.network,
            "driver": "bridge",
            "network_interface": self._labels.interface,
            # Containers find names in their hosts files.
            "dns_enabled": False,
            # Podman separates networks that have this option from each other.
            "options": {"isolate": "true"},
            "labels": {OWNER: self._labels.owner, LOCATION: self._labels.location},
        }
        for attempt in range(_ATTEMPTS):
            if await self._exists(f"networks/{encode_segment(self._labels.network)}"):
                return
            try:
                await self._create_network(body)
            except PodmanError as error:
                # If its reply is lost, the network may be there, or not.
                if not error.lost or attempt == _ATTEMPTS - 1:
                    raise

    async def _create_network(self, body: dict[str, Any]) -> None:
        """Create a network with more addresses than Podman would give it, near those. Raises PodmanError."""
        chosen = decode_answer(await self._client.post("networks/create", body), NetworkInfo)
        for wider in _list_wider_subnets([subnet.subnet for subnet in chosen.subnets or ()]):
            await self._client.delete(f"networks/{encode_segment(self._labels.network)}")
            try:
                await self._client.post("networks/create", body | {"subnets": [{"subnet": wider}]})
            except PodmanError as error:
                # Others use these addresses: until the next try, the network is the one that Podman chooses.
                if _IN_USE not in str(error):
                    raise
                await self._client.post("networks/create", body)
            else:
                return

    async def _open_ports(self) -> None:
        """Prepare the firewall, and the ports of this host. Raises EngineError.

        If the kernel refuses the ports, Podman publishes them.
        """
        network_info = decode_answer(
            await self._client.get(f"networks/{encode_segment(self._labels.network)}/json"), NetworkInfo
        )
        with suppress(EngineError):
            await self._ports.open(network_info.network_interface)
        # Without the table no sandbox starts: it would reach everything.
        await self._firewall.open(network_info.network_interface)

    async def _exists(self, path: str) -> bool:
        try:
            await self._client.get(f"{path}/exists")
        except PodmanError as error:
            if error.missing:
                return False
            raise
        return True


def _list_wider_subnets(subnets: Sequence[str]) -> Iterator[str]:
    """Networks to try in place of the one with ``subnets`` that Podman has chosen; none in place of an unusual one."""
    networks = [IPv4Network(subnet) for subnet in subnets if ":" not in subnet]
    if len(subnets) != 1 or not any(network.subnet_of(pool) for network in networks for pool in _POOLS):
        return
    first = int(networks[0].network_address) >> (32 - _WIDTH)
    for number in range(first, first + _TRIES if networks[0].prefixlen > _WIDTH else first):
        wider = IPv4Network((number << (32 - _WIDTH), _WIDTH))
        if any(wider.subnet_of(network) for network in _POOLS):
            yield str(wider)
