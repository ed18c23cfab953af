"""Ports of this host lead to sandboxes by a table of nftables that heals, and other programs cannot take them."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from reconciler.engines.host.dataplane.ports import can_bind_port, free_ports
from reconciler.engines.host.runtimes.podman.capabilities import may_lead_ports
from reconciler.engines.host.runtimes.podman.network.published_ports import PublishedPorts
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.host.runtimes.podman.kit import place
from tests.support.podman import port_table
from tests.support.programs import only_root, tool

OWNER, BRIDGE = f"test-of-ports-{os.getpid()}", "reconciler-none"
FIRST, SECOND = place("a", ""), place("b", "")
PORTS = {8080: 20_001, 9000: 20_002}


@pytest.fixture
def ports() -> Iterator[PublishedPorts]:
    tool("nft", "nftables")
    made = PublishedPorts(OWNER)
    yield made
    asyncio.run(made.remove())
    assert not port_table(OWNER)


def table() -> dict[int, str]:
    """Where the ports in the table lead."""
    return {int(port): target for port, target in re.findall(r"(\d+) : ([\d.]+ \. \d+)", port_table(OWNER))}


@only_root("only root changes the network")
async def test_the_table_follows_the_sandboxes_also_when_others_have_changed_it(ports: PublishedPorts) -> None:
    assert not ports.active
    await ports.open(BRIDGE)
    assert (ports.active, table()) == (True, {})
    ports.lead(FIRST, PORTS, "10.213.0.2")
    ports.lead(SECOND, {80: 20_003}, "10.213.0.3")
    await asyncio.gather(ports.write(), ports.write())
    expected = {20_001: "10.213.0.2 . 8080", 20_002: "10.213.0.2 . 9000", 20_003: "10.213.0.3 . 80"}
    assert table() == expected
    ports.release(SECOND)
    ports.lead(FIRST, PORTS, "10.213.0.4")
    await ports.write()
    assert table() == {20_001: "10.213.0.4 . 8080", 20_002: "10.213.0.4 . 9000"}
    subprocess.run(["nft", f"flush map ip reconciler_{OWNER} ports"], check=True)
    await ports.restore()
    assert len(table()) == 2
    subprocess.run(["nft", f"delete table ip reconciler_{OWNER}"], check=True)
    ports.release(FIRST)
    ports.lead(SECOND, {80: 20_003}, "10.213.0.3")
    await ports.write()
    assert table() == {20_003: "10.213.0.3 . 80"}
    heir = PublishedPorts(OWNER)
    await heir.open(BRIDGE)
    assert table() == {}


@only_root("only root changes the network")
async def test_a_table_that_cannot_be_made_leaves_the_ports_to_podman(ports: PublishedPorts) -> None:
    with pytest.raises(EngineError, match="cannot be led to containers"):
        await ports.open('"')
    assert not ports.active
    ports.lead(FIRST, PORTS, "10.213.0.2")
    await ports.write()
    assert not port_table(OWNER)


def test_a_port_is_occupied_as_long_as_its_sandbox_runs_and_only_if_it_is_free() -> None:
    ports = PublishedPorts(OWNER)
    first, second = free_ports([1, 2], ()).values()
    ports.occupy(FIRST, [first])
    assert not can_bind_port(first)
    with socket.create_server(("127.0.0.1", second)):
        with pytest.raises(EngineError, match=f"the port {second} of this host cannot be used") as raised:
            ports.occupy(FIRST, [first, second])
        assert raised.value.reason is Reason.PORT_IN_USE
    assert can_bind_port(first, new=True)
    ports.occupy(FIRST, [first, second])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", first))
    ports.release(FIRST)
    assert can_bind_port(second, new=True)


@only_root("only root changes the network")
def test_a_daemon_in_another_network_than_podman_leaves_the_ports_to_it() -> None:
    script = (
        f"import sys; from {may_lead_ports.__module__} import may_lead_ports; sys.exit(may_lead_ports({os.getpid()}))"
    )
    command = [sys.executable, "-c", script]
    assert may_lead_ports(os.getpid())
    assert not may_lead_ports(0)
    assert subprocess.run([tool("unshare", "util-linux"), "--net", *command], check=False).returncode == 0
