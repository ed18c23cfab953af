"""The process of the API, as the daemon runs it: over its sockets, with TLS, through ends of both processes."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509

from reconciler.daemon.api_process import SOCKET, ApiStart, decode_start, encode_start
from reconciler.settings import load_settings
from tests.support.certificates import issue
from tests.support.processes import free_ports
from tests.support.sandbox import DaemonSandbox, eventually

ORG = "/org/acme"


def ask(sandbox: DaemonSandbox, path: str, method: str = "GET") -> httpx2.Response | None:
    """The response over the unix socket; None while no process answers."""
    try:
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(sandbox.state / SOCKET))) as client:
            return client.request(method, f"http://api{path}")
    except httpx2.TransportError:
        return None


def workers(pid: int) -> list[int]:
    """The processes of the API below the daemon ``pid``."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in children if b"reconciler.api" in Path(f"/proc/{each}/cmdline").read_bytes()]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[DaemonSandbox, Any]]:
    """A daemon whose API answers."""
    sandbox = DaemonSandbox(tmp_path, api={"address": f"127.0.0.1:{free_ports(1)[0]}"})
    with sandbox.daemon() as running:
        eventually(lambda: (answer := ask(sandbox, "/readyz")) is not None and answer.status_code == 200)
        yield sandbox, running


def test_it_answers_restarts_and_ends_with_the_daemon(served: tuple[DaemonSandbox, Any]) -> None:
    sandbox, running = served
    eventually(lambda: (answer := ask(sandbox, f"{ORG}/workload")) is not None and answer.json()["items"])
    over_tcp = httpx2.get(f"http://{sandbox.settings['api']['address']}{ORG}/workload")
    assert over_tcp.status_code == 401
    assert (sandbox.state / SOCKET).stat().st_mode & 0o777 == 0o600
    [first] = workers(running.process.pid)
    os.kill(first, signal.SIGKILL)
    # The address stays open meanwhile: a request waits for the next process, and none is refused.
    answer = ask(sandbox, f"{ORG}/workload")
    assert answer is None or answer.status_code == 200
    eventually(lambda: workers(running.process.pid) not in ([first], []))
    eventually(lambda: (answer := ask(sandbox, f"{ORG}/workload")) is not None and answer.status_code == 200)
    [second] = workers(running.process.pid)
    running.kill()
    eventually(lambda: not Path(f"/proc/{second}").exists(), "the process ends with a killed daemon")


def test_the_socket_answers_while_another_program_has_the_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        sandbox = DaemonSandbox(tmp_path, api={"address": address})
        with sandbox.daemon() as running:
            eventually(lambda: (answer := ask(sandbox, "/readyz")) is not None and answer.status_code == 200)
            link = ask(sandbox, "/login/link", "POST")
            assert link is not None
            refusal = f"the daemon cannot listen at {address} (Address already in use); it tries again each 10 s"
            assert (link.status_code, link.json()["message"]) == (503, refusal)
            [alone] = workers(running.process.pid)
            other.close()
            eventually(lambda: _is_refused(address), "it listens at the address", 60)
            assert alone not in workers(running.process.pid)
            link = ask(sandbox, "/login/link", "POST")
            assert (link is not None and link.status_code) == 201
            assert len(running.logged("api", message="the API is served")) == 1


def _is_refused(address: str) -> bool:
    """Whether the API at ``address`` asks for a credential."""
    try:
        return httpx2.get(f"http://{address}{ORG}/workload").status_code == 401
    except httpx2.TransportError:
        return False


def test_metrics_have_what_only_the_daemon_knows(served: tuple[DaemonSandbox, Any]) -> None:
    sandbox, _ = served
    wanted = 'reconciler_source_read_timestamp_seconds{source="main"}'
    eventually(lambda: (read := ask(sandbox, "/metrics")) and wanted in read.text)
    eventually(lambda: (read := ask(sandbox, "/metrics")) and 'engine_calls_total{kind="create",' in read.text)
    eventually(lambda: (read := ask(sandbox, "/metrics")) and "status_written_timestamp_seconds{" in read.text)


def test_a_request_that_never_arrives_is_cut_off(served: tuple[DaemonSandbox, Any]) -> None:
    sandbox, running = served
    host, _, port = sandbox.settings["api"]["address"].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        assert ask(sandbox, "/healthz") is not None
        assert slow.recv(100) == b""
    for hostile in (
        b"POST /org/acme/workload/-query HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01 not http\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /whoami HTTP/1.1\r\nHost: x\r\nAuthorization: rk_a.b\r\nAuthorization: rk_c.d\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(hostile)
            assert client.recv(100).split(b" ")[1] == b"400", hostile
    for line, status in ((b"BREW /pot", b"501"), (b"PROPFIND /healthz", b"405"), (b"PUT /healthz", b"405")):
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(line + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(100).split(b" ")[1] == status, line
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert client.recv(100).split(b" ")[1] == b"200"
    assert ask(sandbox, "/healthz") is not None
    # Each line of the log is JSON, however many malformed requests come.
    assert [each for each in running.log() if "text" in each] == []


def test_a_new_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    files = {"certificate": str(tmp_path / "api.crt"), "key": str(tmp_path / "api.key")}
    [port] = free_ports(1)

    def replace() -> int:
        """Write a certificate for the API; its serial number."""
        certificate = issue("localhost")
        (tmp_path / "api.key").write_bytes(certificate.key_pem)
        (tmp_path / "api.crt").write_bytes(certificate.chain_pem)
        return certificate.certificate.serial_number

    first = replace()
    sandbox = DaemonSandbox(tmp_path / "site", api={"address": f"127.0.0.1:{port}", "tls": files})
    with sandbox.daemon() as running:
        eventually(lambda: _serial(port) == first)
        second = replace()
        eventually(lambda: _serial(port) == second)
        assert len(running.logged("api", message="the certificate was read again")) == 1


def _serial(port: int) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port)) as link, context.wrap_socket(link) as secure:
            der = secure.getpeercert(binary_form=True)
    except OSError:
        return 0
    return x509.load_der_x509_certificate(der).serial_number if der else 0


def test_settings_reach_the_process_as_they_are(tmp_path: Path) -> None:
    """Those of logins too, which have files and mappings."""
    oidc = {"issuer": "https://login.example.com", "clientId": "x", "clientSecretFile": "secret", "groups": {"a": "b"}}
    rule = {"issuer": "https://ci.example.com", "audience": "x", "claims": {"sub": "y"}, "serviceAccount": "z"}
    sandbox = DaemonSandbox(tmp_path, api={"address": "127.0.0.1:1", "oidc": oidc, "tokenExchange": [rule]})
    settings = load_settings(sandbox.settings_file)
    assert decode_start(encode_start(ApiStart(settings, 3, -1))).settings == settings


def test_the_client_of_providers_is_imported_for_the_first_login_only() -> None:
    code = (
        "import sys, reconciler.api.server; print(*{'authlib', 'joserfc', 'httpx2', 'cryptography'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
