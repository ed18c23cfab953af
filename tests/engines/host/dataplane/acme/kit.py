"""An authority with its DNS, and a HAProxy that answers its challenges."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from reconciler.engines.host.dataplane.acme.issuer import Issuer
from reconciler.engines.host.dataplane.haproxy.discovery import ProxyUnit
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.host.dataplane.haproxy.tls import challenge_answer
from reconciler.reasons import Reason
from reconciler.settings import AcmeSettings
from tests.engines.host.dataplane.haproxy.kit import end
from tests.support.certificates import authority, issue
from tests.support.clock import FakeClock
from tests.support.processes import free_ports

ORG = "acme"
PATIENCE = 60.0
LIFE = 90 * 86_400
"""Seconds for which a certificate is valid."""


class Event(NamedTuple):
    """What the issuer reported."""

    host: str
    reason: Reason
    message: str


class Authority(NamedTuple):
    """Pebble: it checks challenges at ``http_port`` of 127.0.0.1, where its DNS has every name."""

    settings: AcmeSettings
    http_port: int
    resolver: str
    dns_port: int
    management_port: int
    process: subprocess.Popen[bytes]

    def root(self) -> str:
        """The certificate that clients trust, as PEM."""
        context = ssl.create_default_context(cafile=self.settings.ca_file)
        connection = http.client.HTTPSConnection("localhost", self.management_port, timeout=PATIENCE, context=context)
        connection.request("GET", "/roots/0")
        return connection.getresponse().read().decode()

    def stop(self) -> None:
        """End the authority; its DNS goes on."""
        self.process.kill()
        self.process.wait()

    def prove(self, domain: str, org: str = ORG) -> None:
        """Publish the record that proves ``domain``."""
        connection = http.client.HTTPConnection("127.0.0.1", self.dns_port, timeout=PATIENCE)
        record = {"host": f"_reconciler-challenge.{domain}.", "value": f"org={org}"}
        connection.request("POST", "/set-txt", json.dumps(record))
        assert connection.getresponse().status == 200


class IssuerHarness:
    """An issuer below ``path``, the domains that are ``proven``, the clock that it sees, and what it reported."""

    def __init__(self, path: Path, settings: AcmeSettings) -> None:
        self.clock = FakeClock(time.time())
        self.events: list[Event] = []
        self.proven: set[str] = set()
        self.changes = 0
        self.directory = path / "acme"
        self.settings = settings
        self.issuer = self.restart()

    def restart(self) -> Issuer:
        """The issuer of another daemon on the same files."""
        report = lambda *event: self.events.append(Event(*event))  # noqa: E731
        self.issuer = Issuer(self.directory, self.settings, self.proven.__contains__, self.clock, report, self._change)
        self.thumbprint = self.issuer.open()
        return self.issuer

    def _change(self) -> None:
        self.changes += 1

    def work(self, **hosts: str) -> None:
        """One pass for ``hosts``: underscores are dots, and each has its domain."""
        self.issuer.want({host.replace("_", "."): domain for host, domain in hosts.items()})
        asyncio.run(self.issuer.work())

    def answer(self, port: int, story: Callable[[], Awaitable[None]], thumbprint: str = "") -> None:
        """Play ``story`` while a HAProxy answers challenges at ``port``."""
        path = self.directory.parent

        async def whole() -> None:
            master = Master(path / "haproxy", lambda: None, ProxyUnit("here"))
            master.open(shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin") or "")
            await master.check_config(CONFIG.format(port=port, line=challenge_answer(thumbprint or self.thumbprint)))
            await master.start()
            try:
                await story()
            finally:
                master.close()

        try:
            asyncio.run(whole())
        finally:
            end(path)


CONFIG = """
global
  description one
  stats socket unix@./stats.sock mode 600 level admin
defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
frontend http
  bind 127.0.0.1:{port}
  {line}
"""


@contextmanager
def run_authority(path: Path) -> Iterator[Authority]:
    """Run Pebble and its DNS server with files in ``path``."""
    directory, management, dns, records, challenge, tls = free_ports(6)
    server = issue("localhost")
    for name, content in (("ca.pem", authority().chain_pem), ("cert.pem", server.pem), ("key.pem", server.key_pem)):
        (path / name).write_bytes(content)
    config = {
        "listenAddress": f"127.0.0.1:{directory}",
        "managementListenAddress": f"127.0.0.1:{management}",
        "certificate": str(path / "cert.pem"),
        "privateKey": str(path / "key.pem"),
        "httpPort": challenge,
        "tlsPort": tls,
        "certificateValidityPeriod": LIFE,
    }
    (path / "config.json").write_text(json.dumps({"pebble": config}))
    off = [word for name in ("http01", "https01", "tlsalpn01") for word in (f"-{name}", "")]
    addresses = ("-dns01", f"127.0.0.1:{dns}", "-management", f"127.0.0.1:{records}")
    words = {
        "dns": ["pebble-challtestsrv", *addresses, "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", *off],
        "pebble": ["pebble", "-config", str(path / "config.json"), "-strict", "-dnsserver", f"127.0.0.1:{dns}"],
    }
    environment = {
        "PATH": "/usr/bin:/bin",
        "PEBBLE_VA_NOSLEEP": "1",
        "PEBBLE_WFE_NONCEREJECT": "0",
        "PEBBLE_AUTHZREUSE": "0",
    }
    running = []
    try:
        for name, each in words.items():
            with (path / f"{name}.log").open("wb") as log:
                running.append(subprocess.Popen(each, env=environment, stdout=log, stderr=log))
        for port in (directory, records):
            _wait_for(port)
        url = f"https://localhost:{directory}/dir"
        settings = AcmeSettings(url, "ops@shop.example", path / "ca.pem")
        yield Authority(settings, challenge, f"127.0.0.1:{dns}", records, management, running[-1])
    finally:
        for process in running:
            process.kill()
            process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError(f"nothing listens at {port}")


@contextmanager
def broken_authority(path: Path, status: int, *headers: str) -> Iterator[AcmeSettings]:
    """An authority that answers every request with ``status``."""
    server = issue("localhost")
    (path / "broken.pem").write_bytes(server.pem)
    (path / "broken-ca.pem").write_bytes(authority().chain_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path / "broken.pem")
    listening = socket.create_server(("127.0.0.1", 0))
    answer = "\r\n".join([f"HTTP/1.1 {status} X", "Content-Length: 2", "Connection: close", *headers, "", "{}"])

    def serve() -> None:
        while True:
            try:
                plain, _ = listening.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(plain, server_side=True) as connection:
                    connection.recv(65_536)
                    connection.sendall(answer.encode())
            except OSError:
                continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield AcmeSettings(f"https://localhost:{listening.getsockname()[1]}/dir", "", path / "broken-ca.pem")
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
