"""Whose a TCP socket of this host is: the workload that a connection comes from, the ports that programs listen on.

By the tables of sockets and processes of the kernel.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

from reconciler.engines.host.runtimes import procfs
from reconciler.engines.host.runtimes.plugins import runtime_names, runtime_plugin
from reconciler.engines.reading import TcpAddress, TcpLink
from reconciler.model.key import Key

_TABLES = ("net/tcp", "net/tcp6")
_SOCKET = "socket:["
_LISTENING = "0A"
"""The state of a socket that listens, as the kernel writes it."""


class _Row(NamedTuple):
    """A socket in a table of the kernel; addresses as in ``_format_hexadecimal``."""

    local: str
    remote: str
    state: str
    inode: str


class ListeningPorts(NamedTuple):
    """Ports on which programs listen; ``is_apart``: in a network of their own, not in that of this host."""

    ports: frozenset[int]
    is_apart: bool


def find_listening_ports(pids: Collection[int]) -> ListeningPorts | None:
    """The ports on which ``pids`` listen; in a network apart from this host, all that are listened on there. Blocks.

    None if there are no ``pids``, or one of them may not be looked into.
    """
    networks = {_read_network(pid) for pid in pids}
    if not networks or "" in networks:
        return None
    is_apart = _read_network(os.getpid()) not in networks
    sockets = frozenset[str]() if is_apart else frozenset(_list_sockets(pids))
    rows = (row for pid in sorted(pids)[:1] for row in _list_rows(pid))
    listening = (row for row in rows if row.state == _LISTENING and (is_apart or row.inode in sockets))
    return ListeningPorts(frozenset(int(row.local.rpartition(":")[2], 16) for row in listening), is_apart)


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
    return bool(inode) and inode in _list_sockets([pid])


def _list_sockets(pids: Collection[int]) -> Iterator[str]:
    """The inodes of the sockets that ``pids`` have open."""
    for pid in pids:
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{name}")
                    if target.startswith(_SOCKET):
                        yield target[len(_SOCKET) : -1]


def _find_socket(pid: int, link: TcpLink) -> str:
    """The inode of the client's socket in the network of ``pid``, "" if it is not there."""
    ends = [_format_row(link, mapped=False), _format_row(link, mapped=True)]
    return next((row.inode for row in _list_rows(pid) if (row.local, row.remote) in ends), "")


def _list_rows(pid: int) -> Iterator[_Row]:
    """The TCP sockets in the network of ``pid``."""
    for table in _TABLES:
        with suppress(OSError):
            for line in procfs.read_kernel_file(f"/proc/{pid}/{table}").decode("ascii", "replace").splitlines()[1:]:
                fields = line.split()
                yield _Row(fields[1], fields[2], fields[3], fields[9])


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
