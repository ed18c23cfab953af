"""Which workload a TCP connection of this host comes from, by the kernel's tables of sockets and processes."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from reconciler.engines.host.runtimes import procfs
from reconciler.engines.host.runtimes.plugins import runtime_names, runtime_plugin
from reconciler.engines.reading import TcpAddress, TcpLink
from reconciler.model.key import Key

_TABLES = ("net/tcp", "net/tcp6")


def comes_from(link: TcpLink, root: Path, key: Key, token: str) -> bool:
    """Whether a process of the workload ``key``, of the location whose files are below ``root``, opened ``link``.

    Processes in the network of this host are known by their runtime; those in a network of their own, as containers
    are, by the ``token`` in their environment. Blocks.
    """
    own = _read_network(os.getpid())
    return any(_owns_socket(pid, link) for pid in list_started(root, key)) or any(
        _read_network(pid) not in (own, "") and _has_token(pid, token) and _find_socket(pid, link)
        for pid in procfs.list_pids()
    )


def belongs_to(pid: int, root: Path, key: Key) -> bool:
    """Whether the process ``pid`` is one of the workload ``key``, by the records of its starts. Blocks."""
    return pid in list_started(root, key)


def list_started(root: Path, key: Key) -> frozenset[int]:
    """The processes of a workload on this host, by the records of its starts. Blocks."""
    return frozenset[int]().union(*(runtime_plugin(name).processes(root, key) for name in runtime_names()))


def _owns_socket(pid: int, link: TcpLink) -> bool:
    inode = _find_socket(pid, link)
    if not inode:
        return False
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}") == f"socket:[{inode}]":
                    return True
    return False


def _find_socket(pid: int, link: TcpLink) -> str:
    """The inode of the client's socket in the network of ``pid``, "" if it is not there."""
    rows = [_format_row(link, mapped=False), _format_row(link, mapped=True)]
    for table in _TABLES:
        with suppress(OSError):
            for line in procfs.read_kernel_file(f"/proc/{pid}/{table}").decode("ascii", "replace").splitlines()[1:]:
                fields = line.split()
                if (fields[1], fields[2]) in rows:
                    return fields[9]
    return ""


def _format_row(link: TcpLink, *, mapped: bool) -> tuple[str, str]:
    return _format_hexadecimal(link.client, mapped=mapped), _format_hexadecimal(link.server, mapped=mapped)


def _format_hexadecimal(end: TcpAddress, *, mapped: bool) -> str:
    """An address as in /proc/net/tcp: words of the host's byte order; ``mapped``: of IPv4 in IPv6."""
    address = ip_address(end.host.partition("%")[0])
    if mapped and address.version == 4:
        address = IPv6Address(f"::ffff:{address}")
    words = struct.unpack(f"={len(address.packed) // 4}I", address.packed)
    return f"{''.join(f'{word:08X}' for word in words)}:{end.port:04X}"


def _has_token(pid: int, token: str) -> bool:
    return f"={token}\0".encode() in (procfs.read_environment(pid) or b"") + b"\0"


def _read_network(pid: int) -> str:
    """The network namespace of a process; "" if it cannot be read."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""
