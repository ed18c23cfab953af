"""Files of HAProxy and of certificates that are damaged: all of them are made anew, and what was served is served."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from reconciler.engines.host.dataplane.haproxy.discovery import find_master
from reconciler.engines.host.dataplane.haproxy.program import find_program
from tests.daemon.test_damaged_files import KINDS, ONE_WAY, WAYS, WITNESSES, damage, is_witness_healed
from tests.support.certificates import authority, issue
from tests.support.host_sandbox import HostSandbox, fetch, host_sandbox, served
from tests.support.processes import free_ports
from tests.support.programs import skip_unless
from tests.support.sandbox import eventually

wait = partial(eventually, patience=90.0)

PLANE = "host/here/dataplane"
PROXY = f"{PLANE}/haproxy"
PROXY_KINDS = {
    f"{PLANE}/former/*.json": "made anew: what a host was served with last",
    f"{PROXY}/haproxy.cfg": "made anew: the configuration",
    f"{PROXY}/haproxy.log": "lines of the log of HAProxy",
    f"{PROXY}/haproxy.pid": "made anew: the number of its master",
    f"{PROXY}/pages/*": "made anew: the pages of errors",
    f"{PROXY}/*.map": "made anew: ports, routes and states of workloads",
    f"{PROXY}/*.sock": "made anew: its sockets, and that of its log",
    f"{PROXY}/requests.lua": "made anew: its scripts",
    f"{PROXY}/tls/*": "made anew: the certificates that it has loaded",
}
"""Kind of file → what is damaged with it."""
ALL = {**KINDS, **PROXY_KINDS}
OWN, SHARED = "own.example", "shop.example"


class ProxyHarness:
    """A sandbox with an ingress: one domain has the certificate of a secret, the other one that of a directory."""

    def __init__(self, sandbox: HostSandbox, port: int) -> None:
        self.sandbox = sandbox
        self.port = port

    def secure(self, host: str) -> str:
        """The answer for ``host`` with TLS. Raises OSError."""
        context = ssl.create_default_context(cadata=authority().chain_pem.decode())
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname=host) as channel,
        ):
            channel.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: channel.recv(65_536), b"")).partition(b"\r\n\r\n")[2].decode()

    def serves(self) -> bool:
        """Whether the workload is served at its address and at both host names."""
        with suppress(OSError, KeyError):  # it is not recorded yet
            return fetch(self.sandbox.address()) == self.secure(OWN) == self.secure(SHARED) == "hello"
        return False

    def is_healthy(self) -> bool:
        """Whether all that is recorded is healthy."""
        return {str(each.health) for each in self.sandbox.recorded().values()} == {"Healthy"}

    def crash_proxy(self) -> None:
        """Kill HAProxy, so that the next one begins with the files that are there."""
        if (master := find_master(self.sandbox.state / PROXY)) is not None:
            os.killpg(master, signal.SIGKILL)

    def check(self) -> None:
        """Check that all is observed and served."""
        wait(self.serves, "the workload is served at each of its addresses")
        wait(self.is_healthy, "all is healthy")
        assert "LocationUnreachable" not in self.sandbox.run("events").stdout


def documents() -> str:
    """Two domains, and the secret of one."""
    own = issue(OWN)
    certificate = {"cert": own.chain_pem.decode(), "key": own.key_pem.decode()}
    secret = {"kind": "secret", "name": "own", "type": "tls", "data": certificate}
    texts = [f"# reconciler: ignore secret-plain-text made up\n{json.dumps(secret)}\n"]
    for name, tls in ((OWN, {"serverCertificate": {"secretLink": "//secret/own"}}), (SHARED, {})):
        spec = {"workloadLink": "//gvc/shop/workload/web", "ports": [{"number": 443, "tls": tls}]}
        texts.append(json.dumps({"kind": "domain", "name": name, "spec": spec}) + "\n")
    return "---\n".join(texts)


@contextmanager
def proxy_harness(path: Path) -> Iterator[ProxyHarness]:
    """A sandbox with a file of each kind that HAProxy has here, and a witness."""
    (path / "certificates").mkdir()
    (path / "certificates" / "shop.pem").write_bytes(issue(SHARED).pem)
    http, https = free_ports(2)
    ingress = {
        "certificates": str(path / "certificates"),
        "httpPort": http,
        "httpsPort": https,
        "addresses": ["127.0.0.1"],
    }
    location = {"engine": "host", "runtime": "process", "dataplane": "haproxy", "ingress": ingress}
    firewall = {"external": {"inboundAllowCIDR": ["0.0.0.0/0"]}}
    web = served("web", replicas=1, env={"GREETING": "hello"}, firewallConfig=firewall)
    files = {"domains.yaml": documents(), "shop/web.yaml": web, "shop/witness.yaml": WITNESSES}
    with host_sandbox(path, files, locations={"here": location}, drift={"interval": "1s"}) as sandbox:
        yield ProxyHarness(sandbox, https)


def play(harness: ProxyHarness, way: str, kinds: dict[str, str]) -> None:
    """Damage files while the daemon runs, then while it is down; HAProxy ends after each."""
    with harness.sandbox.daemon() as daemon:
        wait(harness.serves, "all is served")
        damage(harness.sandbox, way, kinds.keys() - {"lock"}, ALL)  # without it the daemon ends
        harness.check()
        harness.crash_proxy()
        harness.check()
        # One that is killed often waits long before it starts again.
        assert kinds is not ALL or is_witness_healed(harness.sandbox)
        daemon.kill()
    damage(harness.sandbox, way, kinds, ALL)
    with harness.sandbox.daemon() as daemon:
        harness.check()
        daemon.kill()
    damage(harness.sandbox, way, kinds, ALL)
    harness.crash_proxy()
    with harness.sandbox.daemon() as daemon:
        harness.check()
        assert is_witness_healed(harness.sandbox)
        assert daemon.stop() == 0


@pytest.mark.slow
@skip_unless(find_program() is not None, "HAProxy is not installed")
@pytest.mark.parametrize("way", ONE_WAY)
def test_what_haproxy_serves_is_served_whatever_files_are_damaged(tmp_path: Path, way: str) -> None:
    with proxy_harness(tmp_path) as harness:
        play(harness, way, ALL)


@pytest.mark.slow
@skip_unless(find_program() is not None, "HAProxy is not installed")
@pytest.mark.parametrize("kind", PROXY_KINDS)
def test_one_damaged_kind_of_file_of_haproxy_is_made_anew(tmp_path: Path, kind: str) -> None:
    with proxy_harness(tmp_path) as harness:
        for way in WAYS:
            play(harness, way, {kind: PROXY_KINDS[kind]})
