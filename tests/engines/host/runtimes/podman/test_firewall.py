"""The firewall of containers: each row of the documentation with the real rules in namespaces; a table that heals."""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest
from dns.message import make_query, make_response
from dns.rrset import from_text

from reconciler.clock import SystemClock
from reconciler.engines.host.housekeeping import COLLECT, Housekeeping
from reconciler.engines.host.logs.collector import Collector
from reconciler.engines.host.runtimes.podman.network import name_servers
from reconciler.engines.host.runtimes.podman.network.firewall import FirewallKeeper, LocationFirewall, isolate_sandboxes
from reconciler.engines.host.runtimes.podman.network.firewall_rules import FirewallPolicy, Known, table_rules
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.protocol import EngineEvent
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import External, Internal
from reconciler.model.kinds.workload import Firewall as Rules
from tests.engines.host.signals import RecordedSignals
from tests.support.cases import cases
from tests.support.clock import FakeClock
from tests.support.podman import firewall_table
from tests.support.programs import only_root, tool
from tests.support.waiting import PATIENCE, until

T = TypeVar("T")
BRIDGE = "test0"
WEB, API, DB, FAR = (
    Key(Kind.WORKLOAD, gvc, name) for gvc, name in (("shop", "web"), ("shop", "api"), ("shop", "db"), ("pay", "far"))
)
ADDRESSES = {WEB: "10.9.0.2", API: "10.9.0.3", FAR: "10.9.0.4"}
GATEWAY, OUTSIDE, OTHER = "10.9.0.1", "10.8.0.2", "10.8.0.3"
SIXTH = "fd00:9::"
LISTENED = (53, 80, 443, 8443)
_NEWNET, _PATIENT, _BRIEF = 0x40000000, 60.0, 0.25


def owner() -> str:
    """The owner of rules; tests of other processes have tables of their own at the same time."""
    return f"test-of-firewall-{os.getpid()}"


_SPACES = {"web": "0", "api": "1", "far": "2", "outside": "o", "gateway": "h"}
_PLACES = {
    "web": ADDRESSES[WEB],
    "api": ADDRESSES[API],
    "far": ADDRESSES[FAR],
    "gateway": GATEWAY,
    "outside": OUTSIDE,
    "other": OTHER,
}
_ERROR = (socket.SOL_SOCKET, socket.SO_ERROR)
_ISOLATE = f"import sys; from {isolate_sandboxes.__module__} import isolate_sandboxes as go; go(sys.argv[1])"


class Attempt(NamedTuple):
    """A connection that ``source`` begins."""

    source: Key
    address: str
    port: int = 80


def inside(space: str, work: Callable[[], T]) -> T:
    """The result of ``work`` in a network namespace; its sockets stay there."""
    results: list[T | BaseException] = []

    def run() -> None:
        try:
            with open(f"/run/netns/{space}", "rb") as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEWNET):
                    raise OSError(ctypes.get_errno(), space)
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised below
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def _hide_bridged_packets() -> None:
    """As without br_netfilter: nftables sees nothing of what stays on a bridge."""
    for path in Path("/proc/sys/net/bridge").glob("bridge-nf-call-ip*"):
        path.write_text("0")


def _remove_left() -> None:
    """Remove the namespaces and tables that killed runs of these tests left."""
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    for name in (path.name for path in Path("/run/netns").glob("rec*")):
        pid = name[3:-1]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
    for line in tables.splitlines():
        pid = line.rpartition("reconciler_test-of-firewall-")[2]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            subprocess.run(["nft", f"delete {line}"], check=False, capture_output=True)


def _name_server(address: str = OUTSIDE) -> socket.socket:
    made = _datagrams()
    made.bind((address, 53))
    return made


def _datagrams() -> socket.socket:
    return socket.socket(type=socket.SOCK_DGRAM)


def _wait(connecting: list[socket.socket], patience: float) -> None:
    """Return once all connect, or after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while connecting and time.monotonic() < deadline:
        _, found, _ = select.select([], connecting, [], deadline - time.monotonic())
        connecting = [each for each in connecting if each not in found]


class Network:
    """A bridge with three sandboxes, and an outside, in namespaces of their own."""

    def __init__(self) -> None:
        self.name = f"rec{os.getpid()}"
        self._open = ExitStack()

    def make(self) -> None:
        _remove_left()
        self._space("h")
        self._ip("-n", self._of("h"), "link", "add", BRIDGE, "type", "bridge")
        self._address("h", BRIDGE, f"{GATEWAY}/24")
        self._address("h", BRIDGE, f"{SIXTH}1/64", "nodad")
        for number, address in enumerate(ADDRESSES.values()):
            self._connect(str(number), address, GATEWAY)
            self._address(str(number), "e0", f"{SIXTH}{number + 2}/64", "nodad")
            self._ip("-n", self._of("h"), "link", "set", f"v{number}", "master", BRIDGE, "up")
        self._connect("o", OUTSIDE, "10.8.0.1")
        self._address("o", "e0", f"{OTHER}/24")
        self._address("h", "vo", "10.8.0.1/24")
        inside(self._of("h"), lambda: Path("/proc/sys/net/ipv4/ip_forward").write_text("1"))
        inside(self._of("h"), _hide_bridged_packets)
        self.isolate()
        for space in ("h", "o", "0", "1", "2"):
            for port in LISTENED:
                self._open.enter_context(self._listen(space, port))

    def close(self) -> None:
        self._open.close()
        for space in ("h", "o", "0", "1", "2"):
            subprocess.run(["ip", "netns", "delete", self._of(space)], check=False, capture_output=True)

    def load(self, known: Known, bridge: str = BRIDGE) -> None:
        self._nft(table_rules(f"test_{bridge}", bridge, known))

    def _nft(self, lines: list[str]) -> None:
        command = ["ip", "netns", "exec", self._of("h"), "nft", "-f", "-"]
        subprocess.run(command, input="\n".join([*lines, ""]), text=True, check=True)

    def reaches(self, attempt: Attempt, patience: float) -> bool:
        space = self._of(str(list(ADDRESSES).index(attempt.source)))
        family = socket.AF_INET6 if ":" in attempt.address else socket.AF_INET
        client = inside(space, lambda: socket.socket(family))
        client.settimeout(patience)
        with client:
            try:
                client.connect((attempt.address, attempt.port))
            except TimeoutError:
                return False
        return True

    def connected(self, allowed: list[str], refused: list[str]) -> list[str]:
        """Those of all attempts, such as ``api outside:80``, that connect, once the allowed ones had their time."""
        with ExitStack() as stack:
            sockets = {text: stack.enter_context(self._begin(text)) for text in [*allowed, *refused]}
            _wait([sockets[text] for text in allowed], _PATIENT)
            _, found, _ = select.select([], list(sockets.values()), [], _BRIEF)
            return [text for text, one in sockets.items() if one in found and not one.getsockopt(*_ERROR)]

    def _begin(self, attempt: str) -> socket.socket:
        """A socket that connects, as ``SOURCE TARGET:PORT`` has it, and does not wait."""
        source, _, target = attempt.partition(" ")
        name, _, port = target.partition(":")
        client = inside(self._of(_SPACES[source]), socket.socket)
        client.setblocking(False)
        client.connect_ex((_PLACES[name], int(port)))
        return client

    def remove_table(self, bridge: str = BRIDGE) -> None:
        self._nft([f"delete table inet test_{bridge}"])

    def answers(self, content: bytes) -> None:
        """Let the workload ``api`` ask the name server outside, which answers ``content``."""
        with inside(self._of("o"), _name_server) as server, inside(self._of(_SPACES["api"]), _datagrams) as client:
            server.settimeout(_PATIENT)
            client.sendto(b"question", (OUTSIDE, 53))
            server.sendto(content, server.recvfrom(64)[1])

    def space(self, space: str) -> str:
        """The name of the namespace of one of the machines."""
        return self._of(space)

    def asks_over_udp(self, patience: float, address: str = OUTSIDE) -> bool:
        """Whether a datagram of the workload ``api`` arrives at port 53 outside, or of the gateway."""

        space = self._of(str(list(ADDRESSES).index(API)))
        asked = self._of("h" if address == GATEWAY else "o")
        with (
            inside(asked, lambda: _name_server(address)) as server,
            inside(space, _datagrams) as client,
        ):
            server.settimeout(patience)
            client.sendto(b"name", (address, 53))
            try:
                return server.recv(16) == b"name"
            except TimeoutError:
                return False

    def isolate(self) -> None:
        """Do what the daemon does with the bridge; only another program sees the interfaces of the namespace."""
        command = ["ip", "netns", "exec", self._of("h"), sys.executable, "-c", _ISOLATE, BRIDGE]
        subprocess.run(command, check=True)

    def from_host(self, address: str) -> None:
        client = inside(self._of("h"), socket.socket)
        client.settimeout(_PATIENT)
        with client:
            client.connect((address, 80))

    def from_outside(self) -> bool:
        client = inside(self._of("o"), socket.socket)
        client.settimeout(_BRIEF)
        with client:
            return not client.connect_ex((ADDRESSES[WEB], 80))

    def _listen(self, space: str, port: int) -> socket.socket:
        client = inside(self._of(space), lambda: socket.socket(socket.AF_INET6))
        client.bind(("::", port))
        client.listen(16)
        return client

    def _connect(self, space: str, address: str, gateway: str) -> None:
        self._space(space)
        self._ip(
            "-n", self._of("h"), "link", "add", f"v{space}", "type", "veth", "peer", "e0", "netns", self._of(space)
        )
        self._address(space, "e0", f"{address}/24")
        self._ip("-n", self._of(space), "route", "add", "default", "via", gateway)

    def _space(self, space: str) -> None:
        self._ip("netns", "add", self._of(space))
        self._ip("-n", self._of(space), "link", "set", "lo", "up")

    def _address(self, space: str, interface: str, address: str, *options: str) -> None:
        self._ip("-n", self._of(space), "address", "add", address, "dev", interface, *options)
        self._ip("-n", self._of(space), "link", "set", interface, "up")

    def _of(self, space: str) -> str:
        return f"{self.name}{space}"

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    tool("nft", "nftables")
    tool("ip", "iproute2")
    opened = Network()
    try:
        opened.make()
        yield opened
    finally:
        opened.close()


def policy(external: External = External(), internal: Internal = Internal(), **more: tuple[int, ...]) -> FirewallPolicy:  # noqa: B008
    return FirewallPolicy(Rules(external, internal), **{"ports": (80, 8443), **more})


def listed(*links: str) -> Internal:
    return Internal("workload-list", links)


@only_root("only root makes namespaces")
@pytest.mark.parametrize("case", cases("podman/firewall.yaml"))
def test_the_kernel_allows_and_refuses_what_the_documentation_has(network: Network, case: dict[str, Any]) -> None:
    applied = FirewallPolicy(
        msgspec.convert(case["firewallConfig"], Rules), (80, 8443), (8443,) if case.get("tcp") else ()
    )
    sandboxes = {address: key for key, address in ADDRESSES.items()}
    network.load(Known(sandboxes, {API: applied, WEB: policy()}, {"example.com": [OTHER]}, resolvers=[OUTSIDE]))
    assert network.connected(case["allowed"], case["refused"]) == case["allowed"]


@only_root("only root makes namespaces")
def test_replicas_of_a_workload_reach_each_other_if_it_lists_itself(network: Network) -> None:
    sandboxes = {ADDRESSES[API]: API, ADDRESSES[FAR]: API, ADDRESSES[WEB]: WEB}
    between, other = Attempt(FAR, ADDRESSES[API]), Attempt(WEB, ADDRESSES[API])
    network.load(Known(sandboxes, {API: policy(internal=listed("/org/o/gvc/shop/workload/api"))}))
    assert network.reaches(between, _PATIENT)
    assert not network.reaches(other, _BRIEF)
    network.load(Known(sandboxes, {API: policy()}))
    assert not network.reaches(between, _BRIEF)


@only_root("only root makes namespaces")
def test_the_table_of_another_location_lets_nothing_of_this_one_in(network: Network) -> None:
    everything = policy(External(outbound_allow_cidr=("0.0.0.0/0",)))
    sandboxes = {address: key for key, address in ADDRESSES.items()}
    network.load(Known(sandboxes, {API: everything}))
    network.load(Known({OUTSIDE: API}, {API: policy(internal=Internal("same-org"))}), "vo")
    try:
        assert network.connected(["api gateway:80"], ["api outside:80", "api other:80"]) == ["api gateway:80"]
    finally:
        network.remove_table("vo")


@only_root("only root makes namespaces")
def test_a_sandbox_without_a_policy_is_reached_by_this_host_only(network: Network) -> None:
    network.load(Known({ADDRESSES[API]: API, ADDRESSES[WEB]: WEB}, {}))
    network.from_host(ADDRESSES[WEB])
    network.from_host(ADDRESSES[FAR])
    assert not network.from_outside()
    assert not network.reaches(Attempt(API, ADDRESSES[WEB]), _BRIEF)
    assert not network.reaches(Attempt(FAR, OUTSIDE), _BRIEF)


@only_root("only root makes namespaces")
def test_ipv6_is_denied_and_names_are_asked_of_allowed_servers_only(network: Network) -> None:
    sandboxes = {address: key for key, address in ADDRESSES.items()}
    everything = policy(External(outbound_allow_cidr=("0.0.0.0/0", "::/0")), Internal("same-org"))
    network.load(Known(sandboxes, {API: everything, WEB: everything}))
    host, sandbox = Attempt(API, f"{SIXTH}1"), Attempt(API, f"{SIXTH}2")
    assert [each for each in (host, sandbox) if network.reaches(each, _BRIEF)] == []
    assert network.asks_over_udp(_PATIENT)
    network.load(Known(sandboxes, {API: policy()}))
    assert not network.asks_over_udp(_BRIEF)
    named = policy(External(outbound_allow_hostname=("example.com",)))
    network.load(Known(sandboxes, {API: named}, resolvers=[OUTSIDE]))
    assert network.asks_over_udp(_PATIENT)
    assert not network.asks_over_udp(_BRIEF, GATEWAY)
    network.remove_table()
    assert network.asks_over_udp(_PATIENT, GATEWAY)
    assert network.reaches(host, _PATIENT)
    assert not network.reaches(sandbox, _BRIEF)


@only_root("only root makes namespaces")
def test_an_answer_of_a_name_server_opens_the_addresses_of_a_pattern(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_servers, "_CONFIGURATIONS", (tmp_path / "resolv.conf",))
    sandbox, attempt = ContainerId(API, "api-x", ""), Attempt(API, OTHER, 443)
    answer = make_response(make_query("www.eu.example.com", "A"))
    answer.answer.append(from_text("www.eu.example.com.", 60, "IN", "A", OTHER))

    def begin() -> LocationFirewall:
        location_firewall = LocationFirewall(owner(), tmp_path / "policies.json", SystemClock())
        location_firewall.load()
        location_firewall.admit(sandbox, ADDRESSES[API])
        return location_firewall

    async def story() -> None:
        firewall = begin()
        firewall.set_policy(API, policy(External(outbound_allow_hostname=("*.example.com",))))
        keeper = FirewallKeeper(firewall, SystemClock())
        try:
            await firewall.open(BRIDGE)
            await until(lambda: Path("/proc/thread-self/net/packet").read_text().count("\n") > 1, "answers are read")
            assert not network.reaches(attempt, _BRIEF)
            # The host gets its name server after the daemon started.
            (tmp_path / "resolv.conf").write_text(f"nameserver {OUTSIDE}\n")
            keeper.wake()
            await until(lambda: OUTSIDE in listing(), "the name server is known")
            network.answers(answer.to_wire())
            await until(lambda: OTHER in listing(), "the address is allowed")
            assert network.reaches(attempt, _PATIENT)
            assert not network.reaches(Attempt(API, OTHER, 8443), _BRIEF)
            assert not firewall.learn("other", b"")
            heir = begin()
            await heir.open(BRIDGE)
            assert OTHER in listing()
        finally:
            await keeper.close()
            await firewall.remove()

    inside(network.space("h"), lambda: asyncio.run(story()))


@only_root("only root changes the network")
async def test_a_name_server_that_does_not_answer_delays_no_other_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("nft", "nftables")
    answered, asked = threading.Event(), list[str]()

    def silent(name: str, *_: object) -> list[object]:
        asked.append(name)
        answered.wait(PATIENCE)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    firewall = LocationFirewall(owner(), tmp_path / "policies.json", SystemClock())
    keeper = FirewallKeeper(firewall, SystemClock())
    try:
        await firewall.open(BRIDGE)
        firewall.admit(ContainerId(API, "api-x", ""), "10.9.0.3")
        external = External(outbound_allow_cidr=("192.0.2.7",), outbound_allow_hostname=("example.com",))
        firewall.set_policy(API, policy(external))
        keeper.wake()
        await until(lambda: asked and "192.0.2.7" in listing(), "the policy is in force")
        assert not answered.is_set()
    finally:
        await keeper.close()
        answered.set()
        await firewall.remove()


@only_root("only root changes the network")
async def test_an_event_shows_that_others_removed_the_table(tmp_path: Path) -> None:
    tool("nft", "nftables")
    clock, events = FakeClock(), list[EngineEvent]()
    firewall = LocationFirewall(owner(), tmp_path / "policies.json", clock)
    keeper = FirewallKeeper(firewall, clock)
    collector, signals = Collector(tmp_path, "here", clock), RecordedSignals(events)
    upkeep = Housekeeping(collector, clock, "here", signals, keeper.take_events)
    running = asyncio.create_task(upkeep.run())
    try:
        await firewall.open(BRIDGE)
        subprocess.run(["nft", f"delete table inet reconciler_{owner()}"], check=True)
        async with asyncio.timeout(PATIENCE):
            while not events:
                await clock.advance(COLLECT)
        assert listing()
    finally:
        running.cancel()
        await keeper.close()
        await firewall.remove()
    assert [(str(each.key), each.reason) for each in events] == [("location/here", "FirewallRestored")]


def listing() -> str:
    return firewall_table(owner())


@only_root("only root changes the network")
async def test_a_table_that_others_change_is_written_again_and_policies_survive_the_daemon(tmp_path: Path) -> None:
    tool("nft", "nftables")
    sandbox = ContainerId(API, "api-x", "")
    # Every resolver answers an address with itself. What is on this host stays closed, whatever name it has.
    named = policy(External(outbound_allow_hostname=("198.51.100.7", "localhost", "169.254.169.254")))
    one = LocationFirewall(owner(), tmp_path / "policies.json", SystemClock())
    try:
        assert not await one.restore()
        await one.open(BRIDGE)
        one.set_policy(API, named)
        one.set_policy(DB, policy(External(outbound_allow_cidr=("192.0.2.1",))))
        one.admit(sandbox, "10.9.0.3")
        await asyncio.gather(one.write(), one.write())
        before = listing()
        assert "10.9.0.3" in before
        assert "198.51.100.7" not in before
        await one.refresh_hosts()
        assert "ip daddr 198.51.100.7 tcp dport { 80, 443, 445 } accept" in listing()
        assert not {"127.0.0.1", "169.254.169.254"} & {*listing().split()}
        assert not await one.restore()
        subprocess.run(["nft", f"delete table inet reconciler_{owner()}"], check=True)
        assert await one.restore()
        subprocess.run(["nft", f"flush chain inet reconciler_{owner()} input"], check=True)
        assert await one.restore()
        heir = LocationFirewall(owner(), tmp_path / "policies.json", SystemClock())
        heir.load()
        heir.admit(sandbox, "10.9.0.3")
        await heir.open(BRIDGE)
        await heir.refresh_hosts()
        assert "198.51.100.7" in listing()
        assert "192.0.2.1" not in (tmp_path / "policies.json").read_text()
        heir.release(sandbox)
        await heir.write()
        assert "10.9.0.3" not in listing()
        with pytest.raises(EngineError, match="firewall"):
            await heir.open('"')
        assert not heir.active
    finally:
        await one.remove()
    assert listing() == ""
