"""Ports of this host: free ones only, and never the same for two."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.dataplane.ports import REPLICA_PORTS, can_bind_port, free_ports
from reconciler.engines.host.decisions.replica import Replica, ReplicaContainer
from reconciler.engines.host.provisioning.files import Files
from reconciler.engines.host.provisioning.provisioner import Provisioner
from reconciler.engines.host.provisioning.template_store import TemplateStore
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Metrics, Options
from reconciler.settings import HostSettings
from tests.engines.host.fake import FakeRuntime, Programs, QuickClock
from tests.engines.host.provisioning.kit import vault, volumes_at

LOCAL = range(24_000, 24_400)
"""Used by this test alone, so that no other program takes them."""


def listening(address: str, port: int = 0) -> socket.socket:
    """A socket that listens on ``address``."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind((address, port))
    listener.listen()
    return listener


def test_every_declared_port_gets_one_that_can_be_bound() -> None:
    ports = free_ports([8080, 9000], (), "web-1", LOCAL)
    assert list(ports) == [8080, 9000]
    assert len(set(ports.values())) == 2
    assert all(port in LOCAL for port in ports.values())
    for port in ports.values():
        listening("0.0.0.0", port).close()


def test_no_ports_are_allocated_for_none() -> None:
    assert free_ports([], (), "web-1") == {}


def test_replicas_get_different_ports() -> None:
    taken: set[int] = set()
    for number in range(50):
        ports = set(free_ports([8080, 9000, 9001], taken, f"web-{number}", LOCAL).values())
        assert not ports & taken
        taken |= ports


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "127.0.0.2", "::", "::1"])
def test_a_port_with_a_listener_is_not_allocated(address: str) -> None:
    if ":" in address and not socket.has_ipv6:
        pytest.skip("a host without IPv6")
    try:
        listener = listening(address)
    except OSError as error:
        pytest.skip(f"{address} is no address of this host: {error.strerror}")
    with listener:
        port = listener.getsockname()[1]
        assert not can_bind_port(port)
        with pytest.raises(EngineError) as caught:
            free_ports([8080], (), among=range(port, port + 1))
    assert caught.value.reason == "NoFreePort"
    assert caught.value.retry
    assert can_bind_port(port)


def test_a_closing_connection_blocks_no_program_from_its_port() -> None:
    with listening("127.0.0.1") as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            served, _ = listener.accept()
            served.close()
            assert client.recv(1) == b""
    assert can_bind_port(port)
    with pytest.raises(EngineError):
        free_ports([8080], (), among=range(port, port + 1))
    assert free_ports([8080], (), among=range(port, port + 1), reuse=True) == {8080: port}


def test_each_replica_searches_ports_from_a_stable_start_of_its_own() -> None:
    first = {name: free_ports([8080], (), name, LOCAL)[8080] for name in ("a", "b", "c", "d")}
    assert len(set(first.values())) > 1
    assert free_ports([8080], (), "a", LOCAL) == {8080: first["a"]}


def test_daemons_of_one_host_do_not_all_try_one_port_for_replicas_of_one_name(tmp_path: Path) -> None:
    key = Key(Kind.WORKLOAD, "shop", "db")
    container = ContainerSpec("main", ports=(8080,))
    spec = WorkloadSpec(key, Type.STATEFUL, 1, "digest", "hash", 1, (container,), Options())
    runtime = FakeRuntime(Programs(QuickClock()))
    roots = [tmp_path / name for name in ("one", "two")]
    one, two = (
        Provisioner(Files(root, vault({})), vault({}), runtime, HostSettings(), TemplateStore(), volumes_at(root))
        for root in roots
    )
    beside = [two.ports(spec, name)[8080] - one.ports(spec, name)[8080] for name in ("db-0", "db-1", "db-2")]
    assert not all(distance == -1 for distance in beside), "each begins where the other did"


def test_metrics_get_a_port_once_and_one_that_is_taken_is_replaced(tmp_path: Path) -> None:
    key = Key(Kind.WORKLOAD, "shop", "api")
    own = ContainerSpec("main", ports=(8080,), metrics=Metrics(9102))
    shared = ContainerSpec("side", metrics=Metrics(8080))
    spec = WorkloadSpec(key, Type.STANDARD, 1, "digest", "hash", 1, (own, shared), Options())
    runtime = FakeRuntime(Programs(QuickClock()))
    files, volumes = Files(tmp_path, vault({})), volumes_at(tmp_path)
    provisioner = Provisioner(files, vault({}), runtime, HostSettings(), TemplateStore(), volumes)
    ports = provisioner.ports(spec, "api-1")
    assert list(ports) == [8080, 9102]
    containers = tuple(ReplicaContainer(each.name, wanted=each) for each in spec.containers)
    replica = Replica("api-1", key, 1, "hash", 0.0, containers, ports=ports)
    assert replica.served_ports == {8080: ports[8080]}
    with listening("127.0.0.1", ports[9102]):
        again = provisioner.reassign_ports(replica, "main")
    assert again[8080] == ports[8080]
    assert again[9102] != ports[9102]
    provisioner.release_ports(msgspec.structs.replace(replica, ports=again))


def test_blocked_ports_are_never_allocated() -> None:
    with pytest.raises(EngineError, match="between 9090 and 9091"):
        free_ports([8080], (), among=range(9090, 9092))


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        lowest = int(file.read().split()[0])
    assert lowest >= REPLICA_PORTS.stop or lowest < REPLICA_PORTS.start
