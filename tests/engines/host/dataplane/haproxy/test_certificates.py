"""A real HAProxy serves certificates by host name, and gets others without a reload."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from reconciler.clock import SystemClock
from reconciler.engines.host.dataplane.certificates.pem import PemCertificate, read_authorities, read_certificate
from reconciler.engines.host.dataplane.certificates.selection import CertificateMatch, TlsOptions
from reconciler.engines.host.dataplane.certificates.store import known_ciphers
from reconciler.engines.host.dataplane.haproxy.certificates import LiveCertificates
from reconciler.engines.host.dataplane.haproxy.discovery import ProxyUnit
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.host.dataplane.haproxy.program import find_program
from reconciler.engines.host.dataplane.haproxy.tls import BIND, TlsEntry, make_tls_entries
from tests.engines.host.dataplane.haproxy.kit import end
from tests.support.certificates import IssuedCertificate, authority, issue
from tests.support.programs import skip_unless

pytestmark = skip_unless(find_program() is not None, "HAProxy is not installed")

CONFIG = f"""
global
  description one
  expose-fd listeners
  stats socket unix@./stats.sock mode 600 level admin expose-fd listeners
defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
frontend https
  bind unix@./https.sock {BIND}
  http-request return status 200 content-type text/plain lf-string "%[ssl_fc_sni] %[ssl_fc_protocol] %[ssl_c_used]"
""".replace("  expose-fd listeners\n", "", 1)

CLIENT = issue("client")


class Session(NamedTuple):
    """A connection after its handshake: the certificate that the server showed, and the protocol of requests."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def shown(self) -> bytes:
        found: bytes = self.writer.get_extra_info("ssl_object").getpeercert(True)
        return found

    @property
    def protocol(self) -> str | None:
        found: str | None = self.writer.get_extra_info("ssl_object").selected_alpn_protocol()
        return found

    async def get(self) -> str:
        """The body of the answer to one request; "" if the connection ended without one."""
        try:
            self.writer.write(b"GET / HTTP/1.1\r\nHost: any.example\r\n\r\n")
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = head.partition("content-length: ")[2].partition("\r\n")[0]
            return (await self.reader.readexactly(int(length))).decode()
        except (asyncio.IncompleteReadError, OSError):
            return ""


class Server:
    """A HAProxy in ``path`` that serves certificates."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.master = Master(path, lambda: None, ProxyUnit("here"))
        self.live = LiveCertificates(path, self.master, SystemClock())

    async def serve(self, *certificates: IssuedCertificate, options: dict[str, TlsOptions] | None = None) -> bool:
        """Serve each certificate for the names in it, as far as is possible without a reload."""
        return await self.bring(wanted(*map(read, certificates), options=options))

    async def bring(self, found: tuple[TlsEntry, ...]) -> bool:
        self.live.write(found)
        return await self.live.bring(found)

    async def open(
        self, name: str, *protocols: str, client: IssuedCertificate | None = None, most: str = ""
    ) -> Session:
        """Open a connection for ``name``. Raises ssl.SSLError and OSError if the handshake fails."""
        context = ssl.create_default_context(cadata=authority().chain_pem.decode())
        context.check_hostname = not name.startswith("other")
        context.set_alpn_protocols(list(protocols or ("http/1.1",)))
        if most:
            context.maximum_version = ssl.TLSVersion[most]
        if client is not None:
            (self.path / "client.pem").write_bytes(client.pem)
            context.load_cert_chain(self.path / "client.pem")
        path = self.master.socket_path("https.sock")
        return Session(*await asyncio.open_unix_connection(path, ssl=context, server_hostname=name))

    async def refuses(self, name: str, client: IssuedCertificate | None = None, most: str = "") -> bool:
        """Whether no request for ``name`` is answered."""
        try:
            session = await self.open(name, client=client, most=most)
            answer = await session.get()
            session.writer.close()
            return not answer
        except OSError:
            return True


def read(issued: IssuedCertificate) -> PemCertificate:
    return read_certificate(issued.pem, "test.pem")


def wanted(*certificates: PemCertificate, options: dict[str, TlsOptions] | None = None) -> tuple[TlsEntry, ...]:
    hosts = {name: CertificateMatch(name, each) for each in certificates for name in each.names}
    return make_tls_entries(hosts, options or {})


def play(path: Path, story: Callable[[Server], Awaitable[None]]) -> None:
    """Play ``story`` with a HAProxy that starts without a certificate."""

    async def whole() -> None:
        server = Server(path / "haproxy")
        server.master.open(shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin") or "")
        server.live.write(())
        await server.master.check_config(CONFIG)
        await server.master.start()
        try:
            await story(server)
        finally:
            server.master.close()

    try:
        asyncio.run(whole())
    finally:
        end(path)


def test_the_handshake_shows_the_certificate_of_the_name(tmp_path: Path) -> None:
    one, wildcard = issue("one.example"), issue("*.two.example")

    async def story(server: Server) -> None:
        assert await server.refuses("one.example")
        assert await server.serve(one, wildcard)
        first = await server.open("one.example", "h2", "http/1.1")
        assert (first.shown, first.protocol) == (der(one), "h2")
        second = await server.open("a.two.example")
        assert (second.shown, second.protocol) == (der(wildcard), "http/1.1")
        assert await second.get() == "a.two.example TLSv1.3 0"
        assert await server.refuses("other.example")
        assert await server.serve(wildcard)
        assert await server.refuses("one.example")
        # A connection goes on although its certificate is no longer served.
        assert await server.serve()
        assert await second.get() == "a.two.example TLSv1.3 0"

    play(tmp_path, story)


def test_options_are_those_of_the_name(tmp_path: Path) -> None:
    plain, strict, asking = issue("plain.example"), issue("strict.example"), issue("asking.example")
    options = {
        "strict.example": TlsOptions("TLSv1.3", known_ciphers(["TLS_AES_128_GCM_SHA256"])),
        "asking.example": TlsOptions(authorities=read_authorities(authority().chain_pem)),
    }

    async def story(server: Server) -> None:
        assert await server.serve(plain, strict, asking, options=options)
        assert not await server.refuses("plain.example", most="TLSv1_2")
        assert await server.refuses("strict.example", most="TLSv1_2")
        session = await server.open("strict.example")
        assert session.writer.get_extra_info("cipher")[0] == "TLS_AES_128_GCM_SHA256"
        assert await server.refuses("asking.example")
        assert await server.refuses("asking.example", client=issue("client", by="another authority"))
        assert await (await server.open("asking.example", client=CLIENT)).get() == "asking.example TLSv1.3 1"
        # The same after a start from files: the commands and the files agree.
        await server.master.check_config(CONFIG.replace("description one", "description two"))
        await server.master.reload("two")
        assert await server.refuses("asking.example")
        assert await (await server.open("asking.example", client=CLIENT)).get() == "asking.example TLSv1.3 1"
        assert await server.serve(plain)
        assert sorted(each.suffix for each in (server.path / "tls").iterdir()) == ["", ".pem"]

    play(tmp_path, story)


def test_a_certificate_is_replaced_under_requests(tmp_path: Path) -> None:
    old, new = issue("shop.example"), issue("shop.example")

    async def story(server: Server) -> None:
        assert await server.serve(old)
        sessions = [await server.open("shop.example") for _ in range(4)]
        counts = [0] * len(sessions)
        replaced = asyncio.Event()

        async def ask(number: int) -> None:
            while counts[number] < 50 or not replaced.is_set():
                assert await sessions[number].get()
                counts[number] += 1

        asking = [asyncio.create_task(ask(number)) for number in range(len(sessions))]
        worker = await server.master.ask("@1 show info")
        assert await server.serve(new)
        replaced.set()
        await asyncio.gather(*asking)
        assert (await server.open("shop.example")).shown == der(new)
        assert pid(await server.master.ask("@1 show info")) == pid(worker)

    play(tmp_path, story)


def test_unfinished_commands_of_an_earlier_daemon_do_no_harm(tmp_path: Path) -> None:
    one, two = issue("one.example"), issue("two.example")
    options = {"two.example": TlsOptions(authorities=read_authorities(authority().chain_pem))}

    async def story(server: Server) -> None:
        first = wanted(read(one), read(two), options=options)
        for each in first:
            await server.master.ask(f"@1 new ssl cert ./{each.file}")
        await server.master.ask(f"@1 set ssl cert ./{first[0].file} <<\n{first[0].certificate.pem}")
        await server.master.ask(f"@1 new ssl ca-file ./{first[1].authorities_file}")
        await server.master.ask(f"@1 set ssl ca-file ./{first[1].authorities_file} <<\n{first[1].options.authorities}")
        assert await server.bring(first)
        assert not await server.refuses("one.example")
        assert await server.refuses("two.example")
        assert not await server.refuses("two.example", client=CLIENT)

    play(tmp_path, story)


def test_one_that_no_command_can_carry_is_served_by_a_reload(tmp_path: Path) -> None:
    small, long = issue("small.example"), issue("long.example")
    long_chain = long.pem + authority().chain_pem * 40

    async def story(server: Server) -> None:
        certificates = wanted(read(small), read_certificate(long_chain, "long.pem"))
        assert not await server.bring(certificates)
        assert not await server.refuses("small.example")
        await server.master.check_config(CONFIG.replace("description one", "description two"))
        await server.master.reload("two")
        assert await server.bring(certificates)
        assert not await server.refuses("long.example")

    play(tmp_path, story)


def der(issued: IssuedCertificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.chain_pem.decode())


def pid(facts: str) -> str:
    return facts.partition("Pid: ")[2].partition("\n")[0]
