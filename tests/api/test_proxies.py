"""Proxies in front of the API: whose word about a client counts, and the set-ups that docs/install.md shows."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reconciler.api.proxies.protocol import ProxyHeaderError, read_header
from reconciler.api.rate_limits import FREE_FAILURES
from tests.api.conftest import FILES
from tests.api.test_process import ORG, ask
from tests.docs.shell import blocks
from tests.project.tree import ROOT
from tests.support.api import ApiSandbox, api_sandbox
from tests.support.certificates import issue
from tests.support.processes import free_ports
from tests.support.sandbox import DaemonSandbox, eventually

WEB = f"{ORG}/gvc/shop/workload/web"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
IPV4 = socket.inet_aton("192.0.2.7") + socket.inet_aton("198.51.100.1") + struct.pack("!HH", 5000, 443)
IPV6 = socket.inet_pton(socket.AF_INET6, "2001:db8::7") * 2 + struct.pack("!HH", 5000, 443)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox behind two proxies."""
    trusted = {"trustedProxies": ["127.0.0.1", "10.0.0.0/8", "2001:db8:1::/48"]}
    with api_sandbox(tmp_path_factory.mktemp("proxies"), FILES, api=trusted) as made:
        yield made


def seen(sandbox: ApiSandbox, address: str, *forwarded: str) -> str:
    """The address in the audit log of a request with these headers X-Forwarded-For."""
    sandbox.clock.suspend(3600.0)
    headers = [("Authorization", "rk_000000000000.guess"), *(("X-Forwarded-For", each) for each in forwarded)]
    assert sandbox.client(None, address).request("GET", WEB, headers=headers).status_code == 401
    text: str = sandbox.client().get(f"{ORG}/-audit?after={sandbox.api.store.last_audit().number - 1}")["items"][-1][
        "address"
    ]  # type: ignore[union-attr]
    return text


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        (("192.0.2.7",), "192.0.2.7"),
        (("198.51.100.9, 192.0.2.7",), "192.0.2.7"),
        (("192.0.2.7, 10.1.2.3",), "192.0.2.7"),
        (("192.0.2.7", "10.1.2.3"), "192.0.2.7"),
        (("10.9.9.9, 10.1.2.3",), "10.9.9.9"),
        (("192.0.2.7:4711",), "192.0.2.7"),
        (("[2001:db8::7]:4711",), "2001:db8::7"),
        (("2001:DB8::7, 2001:db8:1::1",), "2001:db8::7"),
        (("::ffff:192.0.2.7",), "192.0.2.7"),
        ((), "127.0.0.1"),
        (("",), "127.0.0.1"),
        (("unknown",), "127.0.0.1"),
        (("192.0.2.7, <script>",), "127.0.0.1"),
        (("192.0.2.7, _hidden, 10.1.2.3",), "10.1.2.3"),
        ((",".join(["10.0.0.1"] * 3000),), "10.0.0.1"),
        (("192.0.2.7\x7f",), "127.0.0.1"),
    ],
)
def test_the_last_address_that_is_no_proxy_is_the_client(
    sandbox: ApiSandbox, forwarded: tuple[str, ...], client: str
) -> None:
    assert seen(sandbox, "127.0.0.1", *forwarded) == client


def test_an_untrusted_peer_names_no_client(sandbox: ApiSandbox) -> None:
    assert seen(sandbox, "192.0.2.99", "192.0.2.7") == "192.0.2.99"
    assert seen(sandbox, "::ffff:127.0.0.1", "192.0.2.7") == "192.0.2.7"


def test_each_client_behind_a_proxy_has_a_delay_of_its_own(sandbox: ApiSandbox) -> None:
    sandbox.clock.suspend(3600.0)

    def guess(client: str) -> int:
        headers = {"Authorization": "rk_000000000000.guess", "X-Forwarded-For": f"192.0.2.7, {client}"}
        return sandbox.client(None).request("GET", WEB, headers=headers).status_code

    assert [guess("198.51.100.1") for _ in range(FREE_FAILURES + 1)][-1] == 429
    assert guess("198.51.100.2") == 401


def read(content: bytes) -> tuple[str, bytes]:
    """The address in the header at the beginning of ``content``, and the bytes that are left."""

    async def ask_for() -> str:
        return await read_header(theirs)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        ours.sendall(content)
        ours.shutdown(socket.SHUT_WR)
        address = asyncio.run(ask_for())
        rest = b""
        while True:
            try:
                part = theirs.recv(1000)
            except BlockingIOError:
                break
            if not part:
                break
            rest += part
        return address, rest


def block(version: int, family: int, content: bytes, length: int | None = None) -> bytes:
    """A header of version 2."""
    return SIGNATURE + struct.pack("!BBH", version, family, len(content) if length is None else length) + content


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n", "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 5000 443\r\n", "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n", ""),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", ""),
        (block(0x21, 0x11, IPV4), "192.0.2.7"),
        (block(0x21, 0x11, IPV4 + b"\x04\0\x01x"), "192.0.2.7"),
        (block(0x21, 0x21, IPV6), "2001:db8::7"),
        (block(0x20, 0x00, b""), ""),
        (block(0x20, 0x11, IPV4), ""),
        (block(0x21, 0x31, b"x" * 216), ""),
    ],
)
def test_a_header_of_the_proxy_protocol_names_the_client_and_nothing_behind_it_is_read(
    header: bytes, client: str
) -> None:
    assert read(header + b"GET / HTTP/1.1\r\n") == (client, b"GET / HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443 " + b"x" * 200 + b"\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 5000 443\r\n",
        b"PROXY TCP6 192.0.2.7 198.51.100.1 5000 443\r\n",
        b"PROXY TCP4 localhost 198.51.100.1 5000 443\r\n",
        b"PROXY TCP4 192.0.2.7\xff 198.51.100.1 5000 443\r\n",
        b"PROXY UDP4 192.0.2.7 198.51.100.1 5000 443\r\n",
        block(0x11, 0x11, IPV4),
        block(0x22, 0x11, IPV4),
        block(0x21, 0x11, IPV4[:-1]),
        block(0x21, 0x21, IPV4),
        block(0x21, 0x11, IPV4, 65_535),
        block(0x21, 0x11, IPV4, 200),
        SIGNATURE,
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        read(content)


def documented(number: int, replaced: dict[str, str]) -> str:
    """The configuration of HAProxy that docs/install.md shows, with addresses and files of this test."""
    text = blocks((ROOT / "docs/install.md").read_text(), "haproxy")[number]
    for old, new in replaced.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@contextmanager
def haproxy(path: Path, text: str) -> Iterator[None]:
    """HAProxy with the configuration ``text``."""
    file = path / "haproxy.cfg"
    file.write_text(text)
    with subprocess.Popen(["haproxy", "-db", "-f", str(file)], stderr=subprocess.DEVNULL) as running:
        try:
            yield
        finally:
            running.terminate()


def get(port: int, address: str, credential: str, **headers: str) -> int:
    """The status of a request from ``address`` with TLS; 0 if there was no answer."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    transport = httpx2.HTTPTransport(local_address=address, verify=context)
    try:
        with httpx2.Client(transport=transport) as client:
            headers = {"Authorization": credential, **headers}
            return client.get(f"https://127.0.0.1:{port}/whoami", headers=headers).status_code
    except httpx2.TransportError:
        return 0


def addresses(sandbox: DaemonSandbox) -> set[str]:
    """The addresses in the audit log, over TCP."""
    answer = ask(sandbox, f"{ORG}/-audit")
    assert answer is not None
    return {each["address"] for each in answer.json()["items"]} - {"unix"}


def new_key(sandbox: DaemonSandbox) -> str:
    """A key of the service account, once that is applied."""
    keys: list[str] = []

    def add_key() -> bool:
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(sandbox.state / "api.sock"))) as client:
            answer = client.post(f"http://api{ORG}/serviceaccount/ci/-key", json={})
        if answer.status_code == 201:
            keys.append(answer.json()["key"])
        return bool(keys)

    eventually(add_key, "the service account is applied")
    return keys[0]


@pytest.mark.parametrize("passes_tls", [False, True])
def test_the_documented_proxy_names_each_client(tmp_path: Path, passes_tls: bool) -> None:
    port, behind = free_ports(2)
    made = issue("localhost")
    for name, content in (("both.pem", made.pem), ("api.crt", made.chain_pem), ("api.key", made.key_pem)):
        (tmp_path / name).write_bytes(content)
    api: dict[str, Any] = {"address": f"127.0.0.1:{behind}", "trustedProxies": ["127.0.0.1"]}
    replaced = {"bind :443": f"bind 127.0.0.1:{port}", "127.0.0.1:8080": f"127.0.0.1:{behind}"}
    if passes_tls:
        api |= {
            "proxyProtocol": True,
            "tls": {name: str(tmp_path / f"api.{end}") for name, end in (("certificate", "crt"), ("key", "key"))},
        }
    else:
        replaced["/etc/haproxy/reconciler.pem"] = str(tmp_path / "both.pem")
    sandbox = DaemonSandbox(tmp_path / "site", FILES, api=api)
    with sandbox.daemon() as running, haproxy(tmp_path, documented(int(passes_tls), replaced)):
        eventually(lambda: (answer := ask(sandbox, "/readyz")) is not None and answer.status_code == 200)
        key = new_key(sandbox)
        eventually(lambda: get(port, "127.0.0.2", key) == 200)
        spoofed = {"X-Forwarded-For": "203.0.113.5"}
        guesses = [get(port, "127.0.0.3", "rk_000000000000.guess", **spoofed) for _ in range(FREE_FAILURES + 1)]
        assert guesses[-1] == 429
        assert get(port, "127.0.0.4", "rk_000000000000.guess") == 401
        assert {get(port, "127.0.0.3", key) for _ in range(5)} == {200}
        assert addresses(sandbox) == {"127.0.0.3", "127.0.0.4"}
        if passes_tls:
            # Another client than the proxy needs no header, and cannot use one.
            assert get(behind, "127.0.0.5", key, **spoofed) == 200
            assert get(behind, "127.0.0.5", "rk_000000000000.guess", **spoofed) == 401
            with socket.create_connection(("127.0.0.1", behind), source_address=("127.0.0.5", 0)) as other:
                other.sendall(b"PROXY TCP4 203.0.113.5 198.51.100.1 5000 443\r\n")
                assert other.recv(1000)[:1] != b"H"
            assert addresses(sandbox) == {"127.0.0.3", "127.0.0.4", "127.0.0.5"}
            # A proxy that sends no header is told about, once.
            assert [get(behind, "127.0.0.1", key) for _ in range(2)] == [0, 0]
            eventually(lambda: len(running.logged("api", level="warning")) == 1)
