"""A server that takes webhooks, notes them, and answers as a test wants."""

from __future__ import annotations

import http.server
import json
import socketserver
from typing import Any


class Receiver(socketserver.ThreadingTCPServer):
    """A server that notes requests; ``answers`` are its next statuses with headers, then 204.

    Of ``silent_each`` requests, the last one is noted and never answered. ``text`` is the body of answers.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.paths: list[str] = []
        self.silent_each = 0
        self.text = ""
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """Where it answers; the path is a secret."""
        return f"http://127.0.0.1:{self.server_address[1]}/services/hunter2"

    @property
    def events(self) -> list[dict[str, Any]]:
        """What came, as JSON values."""
        return [json.loads(body) for _, body in self.requests]

    @property
    def titles(self) -> list[str]:
        """The titles of what came."""
        return [event["data"]["title"] for event in self.events]


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = self.server
        assert isinstance(receiver, Receiver)
        body = self.rfile.read(size := int(self.headers["content-length"]))
        if len(body) < size:
            return  # its sender was killed, and it has accepted nothing
        receiver.paths.append(self.path)
        receiver.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
        if receiver.silent_each and len(receiver.requests) % receiver.silent_each == 0:
            self.close_connection = True
            return
        status, headers = receiver.answers.pop(0) if receiver.answers else (204, {})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        text = receiver.text.encode()
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""
