"""Requests with TLS through a real HAProxy: certificates of files and secrets, client certificates, redirects."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from reconciler.clock import SystemClock
from reconciler.engines.host.dataplane.certificates.store import CertificateFolders, CertificateStore
from reconciler.engines.host.dataplane.haproxy.program import find_program
from reconciler.engines.host.dataplane.limitations import haproxy_limitations
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.engines.workload.routing.build import GvcRouting, RoutingInput, ServedWorkload, build_table
from reconciler.engines.workload.routing.table import RouteTable
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.domain import Domain, read_domain
from reconciler.model.kinds.secret import SecretValue
from reconciler.reasons import Reason
from reconciler.settings import IngressSettings
from tests.engines.host.dataplane.haproxy.kit import KEY, Answer, Plane, WebReplica, play
from tests.engines.host.dataplane.kit import PATIENCE, PORT, until
from tests.support.certificates import IssuedCertificate, authority, issue
from tests.support.processes import free_ports
from tests.support.programs import tool

LINK = "/org/acme/gvc/shop/workload/web"


class Reply(NamedTuple):
    """The status of an answer, and the certificate of the connection."""

    status: int
    shown: bytes


def domain(name: str, number: int = 443, **tls: Any) -> Domain:
    """A domain of the workload, with links in normal form."""
    spec = {"workloadLink": LINK, "ports": [{"number": number, "tls": tls}]}
    return read_domain(msgspec.json.encode({"kind": "domain", "name": name, "spec": spec}))


def secret(name: str) -> dict[str, str]:
    return {"secretLink": f"/org/acme/secret/{name}"}


class NoProofs:
    """All domains are proven."""

    unproven: dict[str, str] = {}

    def want(self, domains: Collection[str]) -> None:
        """Nothing: no certificate is ordered."""


class IngressHarness:
    """A plane with an ingress and certificates, and a workload."""

    def __init__(self, path: Path, *, folder: bool = True) -> None:
        self.secrets: dict[str, SecretValue] = {}
        self.reported: list[str] = []
        self.folder = path / "certificates"
        if folder:
            self.folder.mkdir(exist_ok=True)
        self.http, self.https = free_ports(2)
        self.table = RouteTable()
        self.served: tuple[ServedWorkload, ...] = (ServedWorkload(KEY, {PORT: "http"}, ("0.0.0.0/0",)),)
        report = lambda path, problem: self.reported.append(f"{Path(path).name}: {problem}")  # noqa: E731
        folders = CertificateFolders(self.folder, path / "former")
        self.store = CertificateStore(folders, self._read, SystemClock(), "platform.test", NoProofs(), report)
        ingress = IngressSettings(("127.0.0.1",), self.http, self.https)
        self.plane = Plane(path, ingress=ingress, routes=lambda: self.table, certificates=self.store)
        self.path = path

    def _read(self, key: Key) -> SecretValue:
        if key.name not in self.secrets:
            raise EngineError(f"{key} is not applied", reason=Reason.SECRET_UNAVAILABLE)
        return self.secrets[key.name]

    def write(self, name: str, issued: IssuedCertificate) -> None:
        """Put a certificate into the directory, as certbot replaces one."""
        (self.folder / ".new").write_bytes(issued.pem)
        os.replace(self.folder / ".new", self.folder / name)

    async def serve(self, *domains: Domain) -> None:
        """Serve ``domains`` with the certificates that are there, and return when it is in force."""
        gvcs = {"shop": GvcRouting("alias")}
        self.table = build_table(RoutingInput("here", "platform.test", self.served, gvcs, domains))
        self.store.refresh_soon()
        self.plane.dataplane.reroute()
        await until(lambda: self.plane.dataplane.routes_in_force)
        await self.plane.dataplane.synchronize(KEY)

    async def get(self, name: str, host: str = "", client: IssuedCertificate | None = None) -> Reply:
        """The answer to a request for ``host`` on a connection for ``name``; status 0 without one."""
        context = ssl.create_default_context(cadata=authority().chain_pem.decode())
        if client is not None:
            (self.path / "client.pem").write_bytes(client.pem)
            context.load_cert_chain(self.path / "client.pem")
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self.https, ssl=context, server_hostname=name
                )
                writer.write(f"GET / HTTP/1.1\r\nHost: {host or name}\r\nConnection: close\r\n\r\n".encode())
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, OSError):
            return Reply(0, b"")
        shown = writer.get_extra_info("ssl_object").getpeercert(True)
        writer.close()
        return Reply(int(head.split()[1]), shown)

    async def plain(self, host: str) -> Answer:
        """The answer to a request without TLS."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.http)
        writer.write(f"GET /a?b=c HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        writer.close()
        return Answer(int(head[0].split()[1]), dict(line.split(": ", 1) for line in head[1:] if line), "")


def resume(harness: IngressHarness, newest: ssl.TLSVersion, client: IssuedCertificate, names: tuple[str, str]) -> int:
    """The status of a request to the second name, in the session of a connection to the first; 0 without an answer."""
    context = ssl.create_default_context(cadata=authority().chain_pem.decode())
    context.maximum_version = newest
    (harness.path / "client.pem").write_bytes(client.pem)
    context.load_cert_chain(harness.path / "client.pem")
    session, status = None, 0
    for name in names:
        with socket.create_connection(("127.0.0.1", harness.https), PATIENCE) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=name, session=session) as secure:
                    secure.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
                    head = secure.recv(1000)
                    session, status = secure.session, int(head.split()[1]) if head else 0
            except OSError:
                return 0
    return status


def test_certificates_of_files_and_redirects_to_them(path: Path) -> None:
    harness = IngressHarness(path)
    first, second = issue("shop.example", "*.platform.test"), issue("shop.example", end=200)
    expired = issue("shop.example", end=-0.5)

    async def story(plane: Plane) -> None:
        await plane.address(Service(KEY, PORT), await WebReplica("web").start())
        harness.write("shop.pem", first)
        harness.write("old.pem", expired)
        harness.write("broken.pem", IssuedCertificate(first.certificate, second.key))
        await harness.serve(domain("shop.example"), domain("plain.example"), domain("both.example", 80))
        assert await harness.get("shop.example") == Reply(200, der(first))
        assert await harness.get("web-alias.platform.test") == Reply(200, der(first))
        assert (await harness.get("plain.example")).status == 0
        assert harness.reported == ["broken.pem: the private key belongs to another certificate"]
        problems = plane.dataplane.route_problems()
        assert problems == {
            "plain.example": ("plain.example is not served with TLS: no certificate is for plain.example",)
        }
        redirect = await harness.plain("SHOP.example:80")
        assert (redirect.status, redirect.headers["location"]) == (308, f"https://shop.example:{harness.https}/a?b=c")
        assert (await harness.plain("plain.example")).status == 200
        assert (await harness.plain("both.example")).status == 200
        worker = plane.worker
        harness.write("shop.pem", second)
        await harness.serve(domain("shop.example"), domain("plain.example"), domain("both.example", 80))
        assert await harness.get("shop.example") == Reply(200, der(second))
        assert plane.worker == worker

    play(lambda: harness.plane, story)


def test_client_certificates_hold_for_their_host_name_only(path: Path) -> None:
    harness = IngressHarness(path)
    mine, other = issue("client"), issue("client", by="another authority")

    async def story(plane: Plane) -> None:
        await plane.address(Service(KEY, PORT), await WebReplica("web").start())
        harness.write("all.pem", issue("open.example", "closed.example", "foreign.example", "broken.example"))
        harness.secrets["ours"] = SecretValue("tls", {"cert": authority().chain_pem.decode()})
        harness.secrets["theirs"] = SecretValue(
            "opaque", {"payload": authority("another authority").chain_pem.decode()}
        )
        await harness.serve(
            domain("open.example"),
            domain("closed.example", clientCertificate=secret("ours")),
            domain("foreign.example", clientCertificate=secret("theirs")),
            domain("broken.example", clientCertificate=secret("missing")),
        )
        assert (await harness.get("open.example")).status == 200
        assert (await harness.get("closed.example")).status == 0
        assert (await harness.get("closed.example", client=other)).status == 0
        assert (await harness.get("closed.example", client=mine)).status == 200
        assert (await harness.get("foreign.example", client=other)).status == 200
        for name, client in (("open.example", mine), ("open.example", None), ("foreign.example", other)):
            assert (await harness.get(name, "closed.example", client)).status == 421
        for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            resumed = await asyncio.to_thread(resume, harness, newest, other, ("foreign.example", "closed.example"))
            assert resumed != 200, "a session of another domain is no client certificate"
        assert (await harness.plain("closed.example")).status == 403
        # Without its authorities, a domain is not served with TLS at all.
        assert (await harness.get("broken.example", client=mine)).status == 0
        assert "secret/missing is not applied" in plane.dataplane.route_problems()["broken.example"][0]

    play(lambda: harness.plane, story)


def test_a_secret_and_the_options_of_a_domain(path: Path) -> None:
    harness = IngressHarness(path)
    own, shared = issue("own.example"), issue("own.example", "lost.example", end=300)

    async def story(plane: Plane) -> None:
        await plane.address(Service(KEY, PORT), await WebReplica("web").start())
        harness.write("shared.pem", shared)
        harness.secrets["own"] = SecretValue("tls", {"cert": own.chain_pem.decode(), "key": own.key_pem.decode()})
        await harness.serve(
            domain("own.example", serverCertificate=secret("own"), cipherSuites=["TLS_AES_128_GCM_SHA256", "NULL\n"]),
            domain("lost.example", serverCertificate=secret("missing")),
        )
        assert await harness.get("own.example") == Reply(200, der(own))
        assert await harness.get("lost.example") == Reply(200, der(shared))
        problems = plane.dataplane.route_problems()
        assert problems["own.example"] == ("OpenSSL does not know the ciphers NULL\\u000a",)
        assert "secret/missing is not applied" in problems["lost.example"][0]

    play(lambda: harness.plane, story)


def test_what_cannot_work_never_replaces_what_does(path: Path) -> None:
    """Also not when the daemon starts again, before it can read any secret."""
    harness, (first, second, mine) = IngressHarness(path), (issue("own.example"), issue("own.example"), issue("client"))
    trusted = SecretValue("tls", {"cert": authority().chain_pem.decode()})
    domains = [domain("own.example", serverCertificate=secret("own"), clientCertificate=secret("ours"))]

    def pair(certificate: IssuedCertificate, key: IssuedCertificate) -> SecretValue:
        return SecretValue("tls", {"cert": certificate.chain_pem.decode(), "key": key.key_pem.decode()})

    async def check(plane: Plane, served: IssuedCertificate, problem: str) -> None:
        await plane.address(Service(KEY, PORT), await WebReplica("web").start())
        assert await harness.get("own.example", client=mine) == Reply(200, der(served))
        assert (await harness.get("own.example")).status == 0, "clients still need a certificate"
        assert problem in str(plane.dataplane.route_problems().get("own.example", ""))

    async def story(plane: Plane) -> None:
        harness.secrets |= {"own": pair(first, first), "ours": trusted}
        await harness.serve(*domains)
        await check(plane, first, "")
        harness.secrets["own"] = pair(second, first)
        await harness.serve(*domains)
        await check(plane, first, "secret/own: the private key belongs to another certificate; the one before stays")
        harness.secrets |= {"own": pair(first, first), "ours": SecretValue("tls", {"cert": "no certificate"})}
        await harness.serve(*domains)
        await check(plane, first, "what was served before stays: the client certificate")

    async def story_after_a_restart(plane: Plane) -> None:
        await harness.serve(*domains)
        await check(plane, first, "secret/ours is not applied")
        harness.secrets |= {"own": pair(second, second), "ours": trusted}
        await harness.serve(*domains)
        await check(plane, second, "")
        assert len([*(path / "former").iterdir()]) == 1
        await harness.serve(domain("own.example"))
        assert not [*(path / "former").iterdir()], "its key is on the disk no longer"

    play(lambda: harness.plane, story)
    harness = IngressHarness(path)
    play(lambda: harness.plane, story_after_a_restart)


ONE = ["another key", *(pytest.param(each, marks=pytest.mark.slow) for each in ("garbled", "no key", "no directory"))]
"""One damage, for every run of the tests; the long form has all."""


@pytest.mark.slow
@pytest.mark.parametrize("damage", ONE)
def test_a_file_that_becomes_unusable_stays_in_service_after_a_restart_too(path: Path, damage: str) -> None:
    harness, first, second = IngressHarness(path), issue("own.example"), issue("own.example")
    both = domain("own.example"), domain("other.example")

    def write_pair(certificate: IssuedCertificate, key: IssuedCertificate | None) -> None:
        (harness.folder / "own.crt").write_bytes(certificate.chain_pem)
        if key is not None:
            (harness.folder / "own.key").write_bytes(key.key_pem)
        else:
            (harness.folder / "own.key").unlink()

    def break_file() -> None:
        if damage == "garbled":
            (harness.folder / "own.crt").write_bytes(b"garbage")
        elif damage == "no directory":
            shutil.rmtree(harness.folder)
        else:
            write_pair(second, first if damage == "another key" else None)

    async def check(plane: Plane, served: IssuedCertificate) -> None:
        await plane.address(Service(KEY, PORT), await WebReplica("web").start())
        await harness.serve(both[1])
        await harness.serve(*both)
        assert await harness.get("own.example") == Reply(200, der(served))

    async def story(plane: Plane) -> None:
        write_pair(first, first)
        await check(plane, first)

    async def story_after_a_restart(plane: Plane) -> None:
        await check(plane, first)
        assert damage == "no directory" or "what it had before stays in service" in harness.reported[0]

    async def story_of_a_new_file(plane: Plane) -> None:
        write_pair(second, second)
        await check(plane, second)
        (harness.folder / "own.crt").unlink()
        await harness.serve(*both)
        assert (await harness.get("own.example")).status == 0, "the operator has removed it"

    play(lambda: harness.plane, story)
    break_file()
    for _ in range(2):
        harness = IngressHarness(path, folder=False)
        play(lambda: harness.plane, story_after_a_restart)  # noqa: B023 - played at once
    harness = IngressHarness(path)
    play(lambda: harness.plane, story_of_a_new_file)


def test_a_domain_whose_clients_need_a_certificate_is_never_served_without(path: Path) -> None:
    harness, own = IngressHarness(path), issue("own.example")

    async def story(plane: Plane) -> None:
        await plane.address(Service(KEY, PORT), await WebReplica("web").start())
        harness.secrets["own"] = SecretValue("tls", {"cert": own.chain_pem.decode(), "key": own.key_pem.decode()})
        await harness.serve(domain("own.example", serverCertificate=secret("own")))
        assert (await harness.get("own.example")).status == 200
        await harness.serve(domain("own.example", serverCertificate=secret("own"), clientCertificate=secret("missing")))
        assert (await harness.get("own.example")).status == 0
        assert "TLS is not served" in plane.dataplane.route_problems()["own.example"][0]

    play(lambda: harness.plane, story)


def test_a_haproxy_without_tls_serves_the_rest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, programs = tool("haproxy", "haproxy"), path / "bin"
    programs.mkdir()
    # Like one that was built without OpenSSL: it names none, and takes no configuration with TLS.
    named = f'if [ "$1" = -vv ]; then {real} -vv | grep -v SSL; exit; fi'
    refused = 'for each; do [ -f "$each" ] && grep -q " ssl " "$each" && echo "[ALERT] no ssl" >&2 && exit 1; done'
    (programs / "haproxy").write_text(f'#!/bin/sh\n{named}\n{refused}\nexec {real} "$@"\n')
    (programs / "haproxy").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    harness = IngressHarness(path)

    async def story(plane: Plane) -> None:
        await plane.address(Service(KEY, PORT), await WebReplica("web").start())
        harness.write("shop.pem", issue("shop.example"))
        await harness.serve(domain("shop.example"))
        assert (await harness.plain("shop.example")).status == 200
        assert (await harness.get("shop.example")).status == 0
        assert plane.dataplane.error(KEY) == ""
        lacking = haproxy_limitations(Service(KEY, PORT), find_program(), outside=True)
        assert "The ingress takes requests without TLS only: the installed HAProxy lacks OpenSSL." in lacking

    play(lambda: harness.plane, story)


def der(issued: IssuedCertificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.chain_pem.decode())
