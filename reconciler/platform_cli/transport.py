"""HTTP to one server, over TCP, TLS, a proxy or a socket of this host.

It uses the standard library: httpx2 takes 80 ms to import, more than all else of a short command.
"""

from __future__ import annotations

import http.client
import os
import select
import socket
import ssl
import struct
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from reconciler.errors import UsageError
from reconciler.terminal.interrupts import heed_interrupts

CONNECT_SECONDS, READ_SECONDS = 10.0, 60.0
SILENT_SECONDS = 30
"""How long not even the kernel of the other side may answer."""
UNIX = "unix://"
TROUBLES = (OSError, http.client.HTTPException)
"""What ``Transport`` raises when the server does not answer, or not in HTTP."""
_TCP = socket.IPPROTO_TCP
_PORTS = {"http": 80, "https": 443}


class Response(NamedTuple):
    """An answer; the names of ``headers`` are in lower case. ``sent`` are the headers of the request."""

    status: int
    reason: str
    headers: Mapping[str, str]
    content: bytes
    sent: Mapping[str, str]


class Proxy(NamedTuple):
    """A proxy for HTTP; ``login`` is its user and password as ``USER:PASSWORD``, percent-encoded, "" for none."""

    host: str
    port: int
    login: str

    @property
    def headers(self) -> dict[str, str]:
        """The headers for the proxy itself."""
        login = b64encode(unquote(self.login).encode()).decode()
        return {"Proxy-Authorization": f"Basic {login}"} if login else {}

    @property
    def url(self) -> str:
        """Its address, with the login."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{self.login}@{host}:{self.port}" if self.login else f"http://{host}:{self.port}"


class Transport:
    """One connection to ``url``, which is opened when it is needed, and again when the server has closed it.

    Raises UsageError if ``url`` is not an address. Methods raise ``TROUBLES``, and UsageError for a proxy of
    another kind.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, insecure: bool = False) -> None:
        self._headers = dict(headers)
        self._insecure = insecure
        self._path = url.removeprefix(UNIX) if url.startswith(UNIX) else ""
        self._open: http.client.HTTPConnection | None = None
        self._proxy: Proxy | None = None
        try:
            scheme, host, base, *_ = parts = urlsplit("http://localhost" if self._path else url)
            self._host, self._port = parts.hostname or "", parts.port or _PORTS.get(scheme, 0)
        except ValueError:
            scheme = host = base = ""
        if not host or scheme not in _PORTS:
            raise UsageError(f"the endpoint {url!r} is not an address such as https://HOST:PORT or unix:///PATH")
        self._scheme, self._authority, self._base = scheme, host.rpartition("@")[2], base.rstrip("/")

    def connect(self, seconds: float = CONNECT_SECONDS) -> None:
        """Connect, unless an open connection can be used."""
        if self._open is not None and not _is_closed(self._open):
            return
        self.close()
        connection = self._connection(seconds)
        try:
            connection.connect()
            end_when_silent(connection.sock)
        except BaseException:
            connection.close()
            raise
        self._open = connection

    def send(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None, seconds: float = READ_SECONDS
    ) -> Response:
        """One exchange; each wait in it takes ``seconds`` at most."""
        try:
            response, sent = self._begin(method, target, headers, content, seconds)
            return _read_whole_response(response, sent)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def stream(self, target: str) -> Iterator[tuple[Response, Iterator[bytes]]]:
        """The answer to a GET request, and its lines as they come; those of a refusal are in its content instead."""
        try:
            with heed_interrupts():
                response, sent = self._begin("GET", target, {}, None, None)
                if response.status >= http.client.BAD_REQUEST:
                    yield _read_whole_response(response, sent), iter(())
                else:
                    yield _build_response(response, b"", sent), iter(response)
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection; a later request opens another one."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _begin(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None, seconds: float | None
    ) -> tuple[http.client.HTTPResponse, Mapping[str, str]]:
        self.connect(seconds or CONNECT_SECONDS)
        assert self._open is not None
        if self._open.sock is not None:
            self._open.sock.settimeout(seconds)
        sent = {"Host": self._authority, **self._headers, **headers}
        target = f"{self._base}{target}"
        if self._proxy and self._scheme == "http":
            sent |= self._proxy.headers
            target = f"http://{self._authority}{target}"
        self._open.request(method, target, content, sent)
        return self._open.getresponse(), sent

    def proxy(self) -> Proxy | None:
        """The proxy on the way to the server. Raises UsageError if it is of another kind."""
        return None if self._path else proxy_for(self._scheme, self._authority)

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        if self._path:
            return _UnixConnection(self._path, seconds)
        self._proxy = self.proxy()
        host, port = (self._proxy.host, self._proxy.port) if self._proxy else (self._host, self._port)
        if self._scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=seconds)
        connection = http.client.HTTPSConnection(
            host, port, timeout=seconds, context=tls_context(insecure=self._insecure)
        )
        if self._proxy:
            connection.set_tunnel(self._host, self._port, self._proxy.headers)
        return connection


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a socket of this host."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def tls_context(*, insecure: bool) -> ssl.SSLContext:
    """A context of TLS that trusts the authorities of this host, or any certificate if ``insecure``; takes 20 ms."""
    if not insecure:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def proxy_for(scheme: str, authority: str) -> Proxy | None:
    """The proxy that ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` name. Raises UsageError."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    url = proxies.get(scheme) or proxies.get("all")
    if not url or proxy_bypass(authority):
        return None
    variable = f"{scheme if proxies.get(scheme) else 'all'}_PROXY".upper()
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port or _PORTS["http"]
    except ValueError:
        host = None
    # The value can have a password, so no message shows it.
    if not host:
        raise UsageError(f"{variable} is not the address of a proxy: set it to http://HOST:PORT")
    if parts.scheme != "http":
        raise UsageError(
            f"{variable} names a proxy of the kind {parts.scheme!r}, which is not supported: set it to "
            f"http://HOST:PORT, or {scheme.upper()}_PROXY if only that is an HTTP proxy"
        )
    return Proxy(host, port, f"{parts.username}:{parts.password or ''}" if parts.username else "")


def end_when_silent(connection: socket.socket) -> None:
    """Let reads of a TCP connection fail once its other side has not answered for ``SILENT_SECONDS``.

    That is for reads alone: while something is sent, the kernel waits for a quarter of an hour.
    """
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, SILENT_SECONDS // 3),
        (socket.TCP_KEEPINTVL, SILENT_SECONDS // 6),
        (socket.TCP_KEEPCNT, 4),
    ):
        connection.setsockopt(_TCP, option, max(1, value))


def measure_silence(connection: socket.socket) -> float:
    """Seconds since the kernel of the other side answered, if it has to; 0 if it owes no answer.

    It answers although its program reads nothing, so only a dead network, or machine, is silent.
    """
    if connection.family == socket.AF_UNIX:
        return 0.0
    # In struct tcp_info of Linux: probes without an answer, packets without one, milliseconds since the last one.
    probes, packets, since = struct.unpack_from("=3xB20xI28xI", connection.getsockopt(_TCP, socket.TCP_INFO, 60))
    return since / 1000 if packets or probes > 1 else 0.0


def _is_closed(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has closed a connection on which it owes no answer."""
    sock = connection.sock
    if sock is None:
        return True
    # Other than select, this takes descriptors of any size.
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    if not waiting.poll(0):
        return False
    if not isinstance(sock, ssl.SSLSocket):
        return True
    # Servers send tickets for later sessions too.
    sock.settimeout(0)
    try:
        sock.recv(1)
    except ssl.SSLWantReadError:
        return False
    except OSError:
        pass
    return True


def _read_whole_response(response: http.client.HTTPResponse, sent: Mapping[str, str]) -> Response:
    return _build_response(response, response.read(), sent)


def _build_response(response: http.client.HTTPResponse, content: bytes, sent: Mapping[str, str]) -> Response:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Response(response.status, response.reason, headers, content, sent)
