"""Real servers that containers could be, each in a thread of its own, at a free port of this host."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tests.support.waiting import serving


class StatusHandler(BaseHTTPRequestHandler):
    """``/NUMBER`` answers with that status, ``/to/ADDRESS`` leads to the address; ``server.seen`` keeps the headers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """One answer."""
        self.server.seen.append((self.path, self.headers))  # type: ignore[attr-defined]
        kind, _, rest = self.path.removeprefix("/").partition("/")
        self.send_response(302 if kind == "to" else int(kind or 200))
        if kind == "to":
            self.send_header("Location", rest)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def serve_statuses(certificate: Path | None = None) -> Iterator[ThreadingHTTPServer]:
    """An HTTP server, or an HTTPS one with the key and certificate in a file."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), StatusHandler)
    server.daemon_threads = True
    server.seen = []  # type: ignore[attr-defined]
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        yield server


def certificate(folder: Path) -> Path:
    """A file with a key and a certificate for another host that it signed itself, out of date for a year."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "elsewhere.example.com")])
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=365)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(then - datetime.timedelta(days=1))
        .not_valid_after(then)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path = folder / "server.pem"
    path.write_bytes(pem + signed.public_bytes(serialization.Encoding.PEM))
    return path


@contextmanager
def speaker(sends: bytes, keeps_open: bool = False) -> Iterator[int]:
    """The port of a server that sends every client the same, and closes then or only in the end."""
    connections: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            with suppressed():
                connection.recv(65_536)
                connection.sendall(sends)
                if not keeps_open:
                    connection.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in connections:
                each.close()


@contextmanager
def suppressed() -> Iterator[None]:
    """The client may have gone."""
    try:
        yield
    except OSError:
        return


def closed_port() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


Status = health_pb2.HealthCheckResponse.ServingStatus


@contextmanager
def health_server(status: Status | None) -> Iterator[int]:
    """The port of a gRPC server with that health; with None it knows no health at all."""
    server = grpc.server(ThreadPoolExecutor(1))
    if status is not None:
        servicer = health.HealthServicer()
        servicer.set("", status)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()
