"""Clients of every form lose no request while replicas, workloads and HAProxy itself change below them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.model.key import Key
from tests.engines.host.dataplane.haproxy.kit import KEY, SERVICE, Plane, play
from tests.engines.host.dataplane.kit import PORT
from tests.engines.host.dataplane.load.program import Program
from tests.engines.host.dataplane.load.traffic import FORMS, Tally, under_load

RPC = Key(KEY.kind, "shop", "rpc")
RATE = 100.0


class EndingReplicas:
    """The replicas of a workload, which end as those of the host engine do: after they have left the endpoints."""

    def __init__(self, plane: Plane, key: Key) -> None:
        self._plane = plane
        self._key = key
        self._running: dict[str, tuple[Program, Endpoint]] = {}
        self._number = 0

    async def roll(self, count: int = 1) -> None:
        """Replace all replicas by ``count`` new ones."""
        former = [*self._running]
        await self.add(count)
        for name in former:
            await self.remove(name)

    async def add(self, count: int = 1) -> None:
        """Start ``count`` replicas, which are ready at once."""
        for _ in range(count):
            self._number += 1
            name = f"{self._key.name}-{self._number}"
            program = Program(name)
            address = f"127.0.0.1:{await program.start()}"
            self._running[name] = program, Endpoint(name, address, {str(PORT): address}, 1)
            await self._publish()

    async def remove(self, name: str) -> None:
        """End a replica after its drain."""
        program, _ = self._running.pop(name)
        await self._publish()
        async with asyncio.timeout(60):
            await program.end()

    async def scale(self, count: int) -> None:
        """Add or remove replicas one by one."""
        await self.add(max(count - len(self._running), 0))
        for name in [*self._running][count:]:
            await self.remove(name)

    async def _publish(self) -> None:
        self._plane.dataplane.update(self._key, tuple(endpoint for _, endpoint in self._running.values()))
        await self._plane.dataplane.synchronize(self._key)


def lost(tallies: list[Tally]) -> dict[str, list[str]]:
    """The losses by form."""
    return {each.form: each.lost[:5] for each in tallies if each.lost}


async def addresses_of(plane: Plane) -> tuple[dict[str, str], EndingReplicas, EndingReplicas]:
    """The address for each form of requests, and the replicas behind them."""
    web, rpc = EndingReplicas(plane, KEY), EndingReplicas(plane, RPC)
    await web.add()
    await rpc.add()
    served = await plane.serve(SERVICE)
    remote = await plane.serve(msgspec.structs.replace(SERVICE, key=RPC, protocol="grpc"))
    return {form: remote if form == "gRPC" else served for form in FORMS}, web, rpc


def test_no_form_of_requests_is_lost_by_rollouts_scaling_and_reloads(path: Path) -> None:
    async def story(plane: Plane) -> None:
        addresses, web, rpc = await addresses_of(plane)

        async def change() -> None:
            await web.roll()
            await rpc.roll(2)
            await plane.address(msgspec.structs.replace(SERVICE, key=Key(KEY.kind, "shop", "more")))
            await plane.reload()
            await web.scale(3)
            await rpc.roll()
            await web.scale(1)

        tallies = await under_load(addresses, RATE, change, clients=2)
        assert lost(tallies) == {}
        assert min(each.answered for each in tallies) > 0

    play(lambda: Plane(path), story)
