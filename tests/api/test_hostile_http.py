"""Hostile clients of a running daemon: ambiguous requests, slow ones, and more connections than it keeps."""

from __future__ import annotations

import gzip
import itertools
import re
import resource
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx2
import pytest

from reconciler.api.connections import BODY_SECONDS, MOST_CONNECTIONS
from reconciler.daemon.api_process import SOCKET
from tests.bench.measure import percentile
from tests.support.processes import free_ports
from tests.support.sandbox import DaemonSandbox, eventually, workload

SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
"""A request inside another one: its answer shows that a proxy and this server may count differently."""
POST = b"POST /login/token HTTP/1.1\r\nHost: x\r\n"
SHAPES: dict[str, bytes] = {
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: 35\r\n\r\n" + SMUGGLED,
    "two lengths in one line": POST + b"Content-Length: 0, 35\r\n\r\n" + SMUGGLED,
    "a length and chunks": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks and a length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks that are not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a folded line": POST + b"Content-Length: 0\r\nX: a\r\n Transfer-Encoding: chunked\r\n\r\n" + SMUGGLED,
    "a folded length": POST + b"Content-Length:\r\n 35\r\n\r\n" + SMUGGLED,
    "lines with LF alone": b"POST /login/token HTTP/1.1\nHost: x\nContent-Length: 0\n\n" + SMUGGLED,
    "a CR alone": POST + b"X: a\rContent-Length: 35\r\n\r\n" + SMUGGLED,
    "a length with a sign": POST + b"Content-Length: +35\r\n\r\n" + SMUGGLED,
    "a negative length": POST + b"Content-Length: -1\r\n\r\n" + SMUGGLED,
    "a length beyond 64 bits": POST + b"Content-Length: 18446744073709551617\r\n\r\n" + SMUGGLED,
    "a chunk of no size": POST + b"Transfer-Encoding: chunked\r\n\r\nx\r\n\r\n" + SMUGGLED,
    "a chunk beyond 64 bits": POST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\n\r\n" + SMUGGLED,
    "a NUL in a header": POST + b"X: a\0b\r\n\r\n" + SMUGGLED,
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED,
}


COMMITS = 50
"""Commits in one round of a comparison, of which there are ``ROUNDS`` of each sort in turn."""
ROUNDS = 6
COMPARISONS = 3
"""How often the comparison is made at most: other programs of the machine disturb some of them."""
PAUSE = 0.01
"""Seconds between two hostile requests: the client shares the cores with the daemon."""


class ServedApi:
    """A daemon with the API, over TCP and at its socket."""

    def __init__(self, sandbox: DaemonSandbox, running: Any) -> None:
        self.sandbox = sandbox
        self.running = running
        host, _, port = sandbox.settings["api"]["address"].rpartition(":")
        self.address = (host, int(port))

    def connect(self) -> socket.socket:
        """A connection over TCP."""
        return socket.create_connection(self.address, timeout=60)

    def answers(self) -> bool:
        """Whether both a client over TCP and the operator at the socket get an answer."""
        transport = httpx2.HTTPTransport(uds=str(self.sandbox.state / SOCKET))
        try:
            with httpx2.Client(transport=transport, timeout=60) as local:
                own = local.get("http://api/org/acme/workload").status_code
            host, port = self.address
            return (own, httpx2.get(f"http://{host}:{port}/healthz", timeout=60).status_code) == (200, 200)
        except httpx2.TransportError:
            return False

    def applies(self, number: int) -> bool:
        """Whether the daemon applies a new commit."""
        before = len(self.running.logged("reconciled"))
        self.sandbox.repo.commit({"shop/web.yaml": workload("web", more=f"tags: {{number: '{number}'}}\n")})
        return bool(eventually(lambda: len(self.running.logged("reconciled")) > before, "the commit is applied"))

    def runs(self, first: int) -> list[float]:
        """Seconds of the run of each of some commits."""
        before = len(self.running.logged("reconciled"))
        for number in range(first, first + COMMITS):
            assert self.applies(number)
        found = self.running.logged("reconciled")[before:]
        return [each["seconds"] for each in found if "seconds" in each]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    """A daemon that all hostile clients share."""
    sandbox = DaemonSandbox(tmp_path_factory.mktemp("hostile"), api={"address": f"127.0.0.1:{free_ports(1)[0]}"})
    with sandbox.daemon() as running:
        found = ServedApi(sandbox, running)
        eventually(found.answers, "the API answers")
        yield found


@contextmanager
def many_files() -> Iterator[None]:
    """As many descriptors as the host lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def received(link: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    raw = b""
    try:
        while part := link.recv(65_536):
            raw += part
    except ConnectionResetError:
        pass
    return raw


@pytest.mark.parametrize("shape", SHAPES)
def test_an_ambiguous_request_is_refused_and_ends_its_connection(shape: str, served: ServedApi) -> None:
    with served.connect() as link:
        link.sendall(SHAPES[shape])
        assert re.findall(rb"HTTP/1\.1 (\d+)", received(link)) == [b"400"]


def test_a_compressed_bomb_is_refused_unread(served: ServedApi) -> None:
    bomb = gzip.compress(bytes(100 << 20), 1)
    host, port = served.address
    token = httpx2.post(f"http://{host}:{port}/login/token", content=bomb, headers={"Content-Encoding": "gzip"})
    assert token.status_code == 415
    assert served.answers()


def test_slow_heads_and_bodies_lose_their_connections(served: ServedApi) -> None:
    with ExitStack() as links:
        slow = [links.enter_context(served.connect()) for _ in range(40)]
        for number, link in enumerate(slow):
            link.sendall(POST + (b"Content-Length: 100\r\n\r\nx" if number % 2 else b"Cont"))
        assert served.answers()
        assert {received(link) for link in slow} == {b""}


@pytest.mark.slow
def test_a_body_that_comes_byte_by_byte_has_a_minute(served: ServedApi) -> None:
    with served.connect() as link:
        link.settimeout(2.0)
        link.sendall(POST + b"Content-Length: 1000\r\n\r\n")
        began, ended = time.monotonic(), False
        while not ended and time.monotonic() < began + 3 * BODY_SECONDS:
            try:
                link.sendall(b"x")
                ended = link.recv(100) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
        assert ended
        assert time.monotonic() - began > BODY_SECONDS - 5


@pytest.mark.parametrize("connections", [pytest.param(10_000, marks=pytest.mark.slow), MOST_CONNECTIONS + 100])
@pytest.mark.parametrize("sent", [b"", POST, POST + b"Content-Length: 100\r\n\r\nx"], ids=["silent", "head", "body"])
def test_more_connections_than_it_keeps_still_let_clients_in(sent: bytes, connections: int, served: ServedApi) -> None:
    with many_files(), ExitStack() as links:
        for _ in range(connections):
            link = links.enter_context(served.connect())
            with suppress(ConnectionError):  # the newest ones end older ones
                link.sendall(sent)
        assert served.answers()
        assert served.applies(connections + len(sent))
    # A client that leaves is no fault of the server.
    assert not [each for each in served.running.log() if "traceback" in each]


@contextmanager
def attack(served: ServedApi) -> Iterator[None]:
    """Idle connections, more than it keeps, then slow, ambiguous and compressed requests until the end."""
    ended, bomb = threading.Event(), gzip.compress(bytes(10 << 20), 9)
    compressed = POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
    sent = itertools.cycle([*SHAPES.values(), compressed, b"", POST, POST + b"Content-Length: 100\r\n\r\nx"])
    links: deque[socket.socket] = deque(maxlen=2 * MOST_CONNECTIONS)

    def send() -> None:
        while not ended.wait(PAUSE):
            with suppress(OSError):
                links.append(served.connect())
                links[-1].sendall(next(sent))

    with many_files(), ExitStack() as closing:
        for _ in range(10_000):
            links.append(closing.enter_context(served.connect()))
        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield
        finally:
            ended.set()
            sender.join()
            for link in links:
                link.close()


def slowdown(served: ServedApi, first: int) -> float:
    """The 99th percentile of runs under attack, against that of runs in peace, in turn."""
    peace: list[float] = []
    war: list[float] = []
    for number in range(first, first + 2 * ROUNDS * COMMITS, 2 * COMMITS):
        peace += served.runs(number)
        with attack(served):
            war += served.runs(number + COMMITS)
    assert min(len(peace), len(war)) >= ROUNDS * COMMITS
    return percentile(war, 0.99) / percentile(peace, 0.99)


@pytest.mark.slow
def test_hostile_clients_delay_no_run(served: ServedApi) -> None:
    served.runs(0)  # the first ones load what later ones have
    slowdowns: list[float] = []
    for number in range(1, 1 + COMPARISONS):
        slowdowns.append(slowdown(served, number * 100_000))
        if slowdowns[-1] <= 1.5:
            return
    raise AssertionError(f"runs take {slowdowns} times as long")
