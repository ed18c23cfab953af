"""The command against servers behind TLS and proxies, and of other versions, and against a daemon that restarts."""

from __future__ import annotations

import asyncio
import http.server
import json
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import UsageError
from reconciler.platform_cli import client as client_module
from reconciler.platform_cli import retries
from reconciler.platform_cli.client import ApiEndpoint, Client
from reconciler.platform_cli.main import run_command_line
from reconciler.platform_cli.refusals import ApiError
from reconciler.platform_cli.remote_session import open_session
from reconciler.platform_cli.transport import Proxy, Transport, proxy_for
from tests.platform_cli.test_client import ScriptedServer, answer
from tests.support.certificates import self_signed
from tests.support.processes import free_ports
from tests.support.waiting import serving

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
TOKEN = "rk_secret"


class PassingProxy(http.server.ThreadingHTTPServer):
    """A proxy that passes on nothing but what comes for ``target``; ``asked`` are its requests with their logins."""

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _ProxyHandler)
        self.target = target
        self.asked: list[tuple[str, str]] = []


class _ProxyHandler(http.server.BaseHTTPRequestHandler):
    server: PassingProxy

    def do_CONNECT(self) -> None:
        """Pass bytes on in both directions."""
        self._note()
        with socket.create_connection(("127.0.0.1", self.server.target)) as there:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_pass, args=(there, self.connection))
            back.start()
            _pass(self.connection, there)
            back.join()
        self.close_connection = True

    def do_GET(self) -> None:
        """Answer itself, so that a test sees that it was asked."""
        self._note()
        body = b'{"by": "proxy"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _note(self) -> None:
        self.server.asked.append((f"{self.command} {self.path}", self.headers.get("Proxy-Authorization", "")))

    def log_message(self, *_: object) -> None:
        """Nothing: the test shows what was asked."""


def _pass(source: socket.socket, sink: socket.socket) -> None:
    try:
        while received := source.recv(65_536):
            sink.sendall(received)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a certificate for localhost that no authority has signed, and its key."""
    issued = self_signed("localhost")
    path = tmp_path / "self-signed.pem"
    path.write_bytes(issued.key_pem + issued.chain_pem)
    return path


@contextmanager
def tls_server(certificate: Path, *script: Any) -> Iterator[ScriptedServer]:
    """A server behind TLS."""
    server = ScriptedServer(*script)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def get(url: str, *, insecure: bool = False) -> Any:
    """The answer to a request for ``/x`` at ``url``."""
    client = Client(ApiEndpoint(url, TOKEN, insecure))
    try:
        return client.get("/x")
    finally:
        client.close()


def test_a_certificate_of_no_authority_is_refused_unless_that_is_asked_for(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_server(certificate, answer(body={"a": 1})) as server:
        url = f"https://localhost:{server.server_port}"
        with pytest.raises(ApiError, match=r"is not trusted: .* Set SSL_CERT_FILE to its authority, or add --insecure"):
            get(url)
        assert server.asked == [], "no credential goes to a server that is not known"
        assert get(url, insecure=True) == {"a": 1}
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert get(url) == {"a": 1}
        with pytest.raises(ApiError, match=r"is not trusted: .*IP address mismatch"):
            get(url.replace("localhost", "127.0.0.1"))
        assert {headers["authorization"] for _, headers in server.asked} == {f"Bearer {TOKEN}"}


def test_a_server_without_tls_is_named_as_that() -> None:
    server = ScriptedServer(answer())
    with pytest.raises(ApiError, match=r"127\.0\.0\.1:\d+ does not speak TLS: write http://"):
        get(f"https://127.0.0.1:{server.server_port}")


def test_a_server_behind_tls_is_suspected_without_it(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_SECONDS", 0.1)
    with tls_server(certificate) as server, pytest.raises(ApiError, match="if it speaks TLS, write https://"):
        get(f"http://localhost:{server.server_port}")


def test_a_ticket_of_tls_is_not_the_end_of_a_connection(certificate: Path) -> None:
    with tls_server(certificate, answer(body={"a": 1})) as server:
        transport = Transport(f"https://localhost:{server.server_port}", {}, insecure=True)
        transport.connect()
        assert transport._open is not None
        assert select.select([transport._open.sock], [], [], 10)[0], "the ticket"
        assert transport.send("GET", "/x", {}, None).content == b'{"a": 1}'
        assert server.connections == 1
        transport.close()


def test_a_proxy_passes_tls_on_and_never_sees_the_credential(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_server(certificate, answer(body={"a": 1})) as server, ExitStack() as stack:
        proxy = PassingProxy(server.server_port)
        stack.enter_context(serving(proxy))
        monkeypatch.setenv("HTTPS_PROXY", f"http://ann:p%40ss@127.0.0.1:{proxy.server_port}")
        assert get("https://api.example.test", insecure=True) == {"a": 1}
        assert proxy.asked == [("CONNECT api.example.test:443", "Basic YW5uOnBAc3M=")]
        [(request, headers)] = server.asked
        assert (request, headers["host"]) == ("GET /x", "api.example.test")
        assert "proxy-authorization" not in headers


def test_the_variables_of_proxies_hold_but_for_excepted_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ScriptedServer(answer(body={"by": "server"}))
    with ExitStack() as stack:
        proxy = PassingProxy(0)
        stack.enter_context(serving(proxy))
        url, there = f"http://127.0.0.1:{server.server_port}", f"http://127.0.0.1:{proxy.server_port}"
        for variable in ("http_proxy", "ALL_PROXY"):
            with monkeypatch.context() as patch:
                patch.setenv(variable, there)
                assert get(url) == {"by": "proxy"}
                patch.setenv("NO_PROXY", "example.com,127.0.0.1")
                assert get(url) == {"by": "server"}
        assert [each for each, _ in proxy.asked] == [f"GET {url}/x"] * 2
    monkeypatch.setenv("HTTPS_PROXY", there)
    assert get(url) == {"by": "server"}, "it is for another scheme"


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("HTTP_PROXY", "socks5://ann:planted@127.0.0.1:1080", "HTTP_PROXY names a proxy of the kind 'socks5', which"),
        ("ALL_PROXY", "socks5h://127.0.0.1:1080", "set it to http://HOST:PORT, or HTTP_PROXY if only that is"),
        ("HTTP_PROXY", "ann:planted@proxy:port", "HTTP_PROXY is not the address of a proxy: set it to http://HOST:P"),
        ("HTTP_PROXY", "http://", "HTTP_PROXY is not the address of a proxy"),
        ("all_proxy", "http://ann:planted@[::1", "ALL_PROXY is not the address of a proxy"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_a_sentence_for_reads_and_programs(
    variable: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    client = Client(ApiEndpoint("http://api.example.test", TOKEN))
    for attempt in (lambda: client.get("/x"), lambda: asyncio.run(open_session(client, "/x", (), {}, None))):
        with pytest.raises(UsageError, match=sentence) as caught:
            attempt()
        assert "planted" not in str(caught.value)


def test_a_proxy_that_is_gone_or_refuses_is_named_without_its_password(
    command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client_module, "START_SECONDS", 0.2)
    [port] = free_ports(1)
    monkeypatch.setenv("HTTPS_PROXY", f"ann:planted@127.0.0.1:{port}")
    for words in ("gvc get", "workload exec web --gvc shop -- true"):
        assert (
            run_command_line([*words.split()[:2], *["--endpoint", "https://api.example.test"], *words.split()[2:]]) > 0
        )
        shown = capsys.readouterr().err
        assert f"at https://api.example.test through the proxy 127.0.0.1:{port}: " in shown
        assert "If it needs none, add its host to NO_PROXY" in shown
        assert "planted" not in shown


def test_a_proxy_without_a_scheme_and_port_is_one_for_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy.example.com")
    assert proxy_for("http", "api.example.test") == Proxy("proxy.example.com", 80, "")
    monkeypatch.setenv("HTTP_PROXY", "ann:p%40ss@[fd00::1]:3128")
    proxy = proxy_for("http", "api.example.test")
    assert proxy is not None
    assert proxy.url == "http://ann:p%40ss@[fd00::1]:3128"
    assert proxy.headers == {"Proxy-Authorization": "Basic YW5uOnBAc3M="}


def test_a_connection_is_used_again_until_the_server_closes_it() -> None:
    server = ScriptedServer(answer(body={}), answer(body={}, Connection="close"), answer(body={}))
    client = server.client
    for _ in range(3):
        client.get("/x")
    assert (len(server.asked), server.connections) == (3, 2)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command against an address."""
    for name, value in {"XDG_CONFIG_HOME": str(tmp_path), "PLATFORM_ORG": "acme", "PLATFORM_TOKEN": TOKEN}.items():
        monkeypatch.setenv(name, value)

    def call(server: ScriptedServer, *words: str) -> int:
        return run_command_line([*words, "--endpoint", f"http://127.0.0.1:{server.server_port}"])

    return call


def test_members_of_a_newer_server_are_shown_as_they_are_and_harm_nothing(
    command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    item = {"kind": "gvc", "name": "shop", "version": 2, "status": {"health": {"of": "tomorrow"}}, "new": [{"a": None}]}
    server = ScriptedServer(
        answer(body={"kind": "list", "items": [item], "new": 1, "links": [{"rel": "new", "href": "/y"}]})
    )
    assert command(server, "gvc", "get") == 0
    assert "shop" in capsys.readouterr().out
    assert command(server, "gvc", "get", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["items"] == [item]


def test_an_answer_without_members_of_today_is_blamed_on_the_version(
    command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ScriptedServer(answer(body={"name": "shop"}))
    assert command(server, "gvc", "get", "shop") == 0, "columns that are missing are empty"
    capsys.readouterr()
    for words in (
        ("gvc", "get"),
        ("gvc", "eventlog", "shop"),
        ("sa", "add-key", "ci"),
        ("secret", "reveal", "db"),
        ("gvc", "permissions"),
    ):
        assert command(server, *words) == 1, words
        assert "so its version does not fit this command" in capsys.readouterr().err
    begun = {"verification_uri_complete": "x", "user_code": "y", "device_code": "z", "expires_in": 60, "interval": 0}
    assert command(ScriptedServer(answer(body=begun), answer(body={"token": "x"})), "login", "new", "--device") == 1
    assert "the answer of the server has no 'access_token', so its version does not fit" in capsys.readouterr().err
    for status, body in ((404, b"Not Found"), (405, b"")):
        foreign = ScriptedServer((status, {}, body))
        assert command(foreign, "gvc", "get") == 1
        assert "is not the API" in capsys.readouterr().err


def test_a_restart_of_the_server_delays_a_command_and_fails_nothing() -> None:
    """No program listens for a moment, and nothing was sent yet, so a change may wait too."""
    [port] = free_ports(1)
    servers: list[ScriptedServer] = []
    later = threading.Timer(0.3, lambda: servers.append(ScriptedServer(answer(201, {"done": True}), port=port)))
    later.start()
    assert Client(ApiEndpoint(f"http://127.0.0.1:{port}")).request("POST", "/x", body={}).body == {"done": True}
    later.join()
    assert len(servers[0].asked) == 1
