"""An address of this machine that is not loopback: an API server passes no question on to a node on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

LOOPBACK = "127.0.0.1"
FAR_AWAY = ("198.51.100.1", 9)
"""An address of nobody (RFC 5737): the route to it shows the address of this machine; nothing is sent."""


@contextmanager
def node_address() -> Iterator[str]:
    """The first global address of this machine; else one of 198.18.0.0/15, which root adds to ``lo`` for the block.

    Where neither is possible, it is ``LOOPBACK``: then logs and programs work, and what the proxy of nodes passes on
    does not.
    """
    if address := _find_global_address():
        yield address
        return
    address = f"198.18.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
    if os.geteuid() != 0 or not _change_loopback("add", address):
        yield LOOPBACK
        return
    try:
        yield address
    finally:
        _change_loopback("del", address)


def _find_global_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(FAR_AWAY)
        except OSError:
            return ""
        address: str = probe.getsockname()[0]
    return "" if address.startswith(("127.", "169.254.", "0.")) else address


def _change_loopback(verb: str, address: str) -> bool:
    command = ["ip", "address", verb, f"{address}/32", "dev", "lo"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
