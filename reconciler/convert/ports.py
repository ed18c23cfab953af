"""Ports that containers can have, and their protocols."""

from __future__ import annotations

from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.platform import BLOCKED_PORTS

PROTOCOLS_BY_WORD = {
    "http": "http",
    "http2": "http2",
    "h2c": "http2",
    "grpc": "grpc",
    "ws": "http",
    "tcp": "tcp",
    "https": "tcp",
    "wss": "tcp",
    "tls": "tcp",
    "mongo": "tcp",
    "mysql": "tcp",
    "redis": "tcp",
}
"""Words in appProtocol and at the start of port names; the platform does not use TLS to containers, so: tcp."""
PROTOCOLS_BY_NUMBER = {
    80: "http",
    3000: "http",
    8000: "http",
    8008: "http",
    8080: "http",
    8081: "http",
    8888: "http",
    50051: "grpc",
}
_MOST = 65535


def is_usable(part: TrackedValue, number: int) -> bool:
    """Whether a container can have the port ``number``; else ``part`` gets a note."""
    if not 1 <= number <= _MOST:
        part.add_note("convert-malformed", f"a port is a number from 1 to {_MOST}")
    elif number in BLOCKED_PORTS:
        part.add_note(
            "convert-left-out",
            f"the platform uses port {number}; it is left out",
            "let the container listen on another port",
        )
    else:
        return True
    return False
