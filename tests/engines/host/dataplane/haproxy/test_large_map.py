"""A map with very many host names: HAProxy loads it, changes one entry in place, and takes a new map as a whole."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from reconciler.engines.host.dataplane.haproxy.ingress import HOSTS
from reconciler.engines.workload.routing.table import HostEntry, RouteTable, RouteTarget
from reconciler.settings import IngressSettings
from tests.engines.host.dataplane.haproxy.kit import KEY, SERVICE, Answer, Plane, WebReplica, get, play
from tests.engines.host.dataplane.kit import until
from tests.support.processes import free_ports

TO_WEB = HostEntry("", RouteTarget(KEY))


class HostNames:
    """A plane with host names that lead to one workload."""

    def __init__(self, path: Path, *, count: int) -> None:
        http, https = free_ports(2)
        self.address = f"127.0.0.1:{http}"
        self.count = count
        self.table = self.made("a")
        ingress = IngressSettings(("127.0.0.1",), http, https)
        self.plane = Plane(path, ingress=ingress, routes=lambda: self.table)

    def made(self, suffix: str) -> RouteTable:
        """A table with ``count`` names."""
        return RouteTable(hosts={f"host-{number}{suffix}.example:80": TO_WEB for number in range(self.count)})

    async def serve(self, table: RouteTable) -> None:
        """Serve ``table``, and return when it is in force."""
        self.table = table
        self.plane.dataplane.reroute()
        await until(lambda: self.plane.dataplane.routes_in_force)

    async def get(self, host: str) -> Answer:
        """The answer to a request for ``host``."""
        return await get(self.address, host=host)

    async def shown(self) -> tuple[int, int]:
        """The version of the map, and the number of its entries, as HAProxy shows them."""
        text = await self.plane.command("show map")
        found = re.search(rf"\(\./{HOSTS}\).* curr_ver=(\d+) .*entry_cnt=(\d+)", text)
        assert found is not None
        return int(found[1]), int(found[2])


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_large_map_is_loaded_and_changed_by_as_little_as_possible(path: Path, count: int) -> None:
    names = HostNames(path, count=count)

    async def story(plane: Plane) -> None:
        await plane.address(SERVICE, await WebReplica("web").start())
        await names.serve(names.table)
        # One entry more is the digest of the map.
        assert await names.shown() == (0, count + 1)
        assert (await names.get(f"host-{count - 1}a.example")).body == "web"
        await names.serve(RouteTable(hosts={**names.table.hosts, "more.example:80": TO_WEB}))
        assert await names.shown() == (0, count + 2)
        assert (await names.get("more.example")).body == "web"
        await names.serve(names.made("b"))
        assert await names.shown() == (1, count + 1)
        assert (await names.get(f"host-{count - 1}b.example")).body == "web"
        assert (await names.get(f"host-{count - 1}a.example")).status == 404
        os.kill(plane.worker, signal.SIGKILL)
        await until(lambda: plane.events)
        await names.serve(names.made("b"))
        assert await names.shown() == (0, count + 1)
        assert (await names.get(f"host-{count - 1}b.example")).body == "web"

    play(lambda: names.plane, story)
