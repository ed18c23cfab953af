"""The names of workloads in the files of host names of containers, which change while they are mounted."""

from __future__ import annotations

from pathlib import Path

from reconciler.engines.host.dataplane.endpoints import Endpoints
from reconciler.engines.host.runtimes.podman.network.host_names import HostNames
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.model.key import Key, Kind
from tests.engines.host.runtimes.podman.kit import KEY, PodmanHarness, launch, opened, place
from tests.engines.host.runtimes.podman.libpod import Libpod
from tests.engines.host.runtimes.podman.test_addresses import replica
from tests.support.waiting import until

OWN = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n127.0.0.1 web-b web-b.web\n127.0.0.1 sidecar\n"
DB, CART = Key(Kind.WORKLOAD, "shop", "db"), Key(Kind.WORKLOAD, "pay", "cart")
WEB = ContainerId(Key(Kind.WORKLOAD, "shop", "web"), "web-b", "main")


def at(address: str, *ports: int) -> dict[int, str]:
    """Where the declared ``ports`` of a replica are."""
    return {port: f"{address}:{port}" for port in ports}


def names_in(path: Path) -> dict[str, list[str]]:
    """The addresses of each name in a file, in their order."""
    addresses: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names:
            addresses.setdefault(name, []).append(address)
    return addresses


def test_a_container_resolves_the_names_that_its_gvc_may_use(tmp_path: Path) -> None:
    names, path = HostNames(tmp_path), tmp_path / "hosts"
    names.set(WEB.key, {"web-b": at("10.0.0.1", 80), "web-c": at("10.0.0.2", 80)})
    names.set(DB, {"db-0": at("10.0.0.3", 5432, 9187), "db-1": at("10.0.0.4", 5432, 9187)})
    names.set(CART, {"cart-0": at("10.0.0.5", 80)})
    names.set(Key(Kind.WORKLOAD, "shop", "sidecar"), {"sidecar-x": at("10.0.0.6", 80)})
    names.set(Key(Kind.WORKLOAD, "shop", "process"), {"process-x": {80: "10.0.0.254:20001"}, "none": {}})
    names.create(path, WEB, OWN)
    addresses = names_in(path)
    assert path.read_text().startswith(OWN)
    assert {name: sorted(addresses.pop(name)) for name in list(addresses) if name.startswith(("web", "db"))} == {
        "web": ["10.0.0.1", "10.0.0.2"],
        "web.shop.platform.local": ["10.0.0.1", "10.0.0.2"],
        "web-b": ["127.0.0.1"],
        "web-b.web": ["127.0.0.1"],
        "db": ["10.0.0.3", "10.0.0.4"],
        "db.shop.platform.local": ["10.0.0.3", "10.0.0.4"],
        "db-0.db": ["10.0.0.3"],
        "db-1.db": ["10.0.0.4"],
    }
    assert addresses == {
        "localhost": ["127.0.0.1", "::1"],
        "ip6-localhost": ["::1"],
        "sidecar": ["127.0.0.1"],
        "sidecar.shop.platform.local": ["10.0.0.6"],
        "cart.pay.platform.local": ["10.0.0.5"],
    }


def test_containers_list_the_same_addresses_in_different_orders(tmp_path: Path) -> None:
    names = HostNames(tmp_path)
    names.set(DB, {f"db-{number}": at(f"10.0.0.{number}", 80) for number in range(1, 5)})
    orders = set()
    for number in range(12):
        names.create(tmp_path / "hosts", place(f"api-{number}"), OWN)
        orders.add(tuple(names_in(tmp_path / "hosts")["db"]))
    assert len(orders) > 1
    assert {tuple(sorted(each)) for each in orders} == {("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")}


def test_a_mounted_file_changes_in_place_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    names, path = HostNames(tmp_path), tmp_path / "hosts"
    names.create(path, WEB, OWN)
    assert path.read_text() == OWN
    inode = path.stat().st_ino
    names.set(DB, {"db-0": at("10.0.0.3", 80)})
    assert names.find_outdated({WEB}) == [WEB]
    names.update(path, WEB)
    assert names.find_outdated({WEB}) == []
    assert names_in(path)["db"] == ["10.0.0.3"]
    names.set(DB, {})
    names.update(path, WEB)
    assert (path.read_text(), path.stat().st_ino) == (OWN, inode)
    path.write_text("10.0.0.9 others\n")
    names.set(DB, {"db-0": at("10.0.0.3", 80)})
    names.update(path, WEB)
    assert path.read_text() == "10.0.0.9 others\n"
    path.unlink()
    names.update(path, WEB)
    assert not path.exists()


async def test_names_follow_readiness_and_survive_the_daemon(tmp_path: Path) -> None:
    hosts = tmp_path / "podman" / "shop" / "api" / "r" / "main" / "hosts"

    def names(one: PodmanHarness, name: str) -> list[str]:
        return names_in(hosts).get(name, [])

    service = Libpod()
    async with opened(tmp_path, tmp_path / "socket", service.transport(), keep=True) as one:
        endpoints = Endpoints(tmp_path / "endpoints", one.runtime.addresses, one.runtime.publish)
        await one.runtime.start(launch(replica_ports={80: 20001}))
        await one.runtime.start(launch(at=place("other"), replica_ports={80: 20002}))
        assert names(one, "api") == []
        endpoints.publish(KEY, [replica("other", 20002)])
        await until(lambda: names(one, "api") == ["10.89.0.4"], "the name of the ready replica")
        await one.runtime.start(launch(at=place("late")))
        late = hosts.parents[2] / "late" / "main" / "hosts"
        assert names_in(late)["api.shop.platform.local"] == ["10.89.0.4"]
    hosts.write_text(hosts.read_text().partition("#")[0])
    async with opened(tmp_path, tmp_path / "socket", service.transport()) as heir:
        await until(lambda: names(heir, "api") == ["10.89.0.4"], "the names that the last daemon knew")
        endpoints = Endpoints(tmp_path / "endpoints", heir.runtime.addresses, heir.runtime.publish)
        endpoints.publish(KEY, [replica("r", 20001), replica("other", 20002)])
        await until(lambda: len(names(heir, "api")) == 2, "both replicas")
        endpoints.remove(KEY)
        await until(lambda: names(heir, "api") == [], "the name is gone")
