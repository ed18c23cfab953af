"""Addresses of host names: looked up here, or read in the answers of name servers to sandboxes.

A pattern such as ``*.example.com`` cannot be looked up. So the daemon reads, as ``tcpdump`` does, what name servers
answer to sandboxes, and allows the addresses. Without a daemon, names are still answered, as nothing is in between.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dns.name import Name

# With systemd-resolved, the first file names only its local server, and the second those behind it.
_CONFIGURATIONS = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
_EVERY_PROTOCOL, _ATTACH_FILTER = 3, 26
_MOST_BYTES = 1 << 16
_MOST_PACKETS = 64
"""Packets that are read before other tasks have their turn."""
_FILTER = (
    (0x28, 0, 0, 0xFFFFF000),  # the protocol of the packet
    (0x15, 0, 10, socket.ntohs(0x0008)),  # is IPv4
    (0x30, 0, 0, 0xFFFFF004),  # its direction
    (0x15, 0, 8, socket.PACKET_OUTGOING),
    (0x30, 0, 0, 9),  # the protocol in it
    (0x15, 0, 6, socket.IPPROTO_UDP),
    (0x28, 0, 0, 6),  # the fragment, which is the first
    (0x45, 4, 0, 0x1FFF),
    (0xB1, 0, 0, 0),  # after the header of IPv4
    (0x48, 0, 0, 0),  # the source port
    (0x15, 0, 1, 53),
    (0x06, 0, 0, _MOST_BYTES),
    (0x06, 0, 0, 0),
)
"""A program of the kernel's packet filter; all that is not an answer of a name server to a sandbox costs no wake-up."""


class NameAnswer(NamedTuple):
    """The ``addresses`` of a host name that ``patterns`` match; a client may use them for ``seconds``."""

    patterns: tuple[str, ...]
    addresses: tuple[str, ...]
    seconds: float


def read_answer(packet: bytes, servers: Collection[str], patterns: Collection[str]) -> NameAnswer | None:
    """The answer in an IPv4 packet from one of ``servers``; None if it has no address for one of ``patterns``.

    The name that was asked for counts, not those of aliases, whose owners may be others.
    """
    from dns.exception import DNSException
    from dns.message import from_wire
    from dns.rdatatype import A

    start = (packet[0] & 0x0F) * 4 if packet else 0
    # The header of UDP has 8 bytes, that of IPv4 at least 20.
    if len(packet) < start + 8 or start < 20 or socket.inet_ntoa(packet[12:16]) not in servers:
        return None
    try:
        message = from_wire(packet[start + 8 :], ignore_trailing=True)
        chain = message.resolve_chaining()  # type: ignore[attr-defined]
    except (DNSException, AttributeError, ValueError, struct.error):
        # An update, for example, has no answer.
        return None
    [question] = message.question[:1]
    matching = tuple(pattern for pattern in patterns if _matches_domain(question.name, pattern))
    if chain.answer is None or chain.answer.rdtype != A or not matching:
        return None
    return NameAnswer(matching, tuple(str(value.address) for value in chain.answer), float(chain.minimum_ttl))


def _matches_domain(name: Name, pattern: str) -> bool:
    """Whether ``name`` is below the domain of ``pattern``, at any depth; by labels, which may have dots in them."""
    from dns.exception import DNSException
    from dns.name import from_text

    try:
        parent = from_text(pattern.removeprefix("*."))
    except DNSException:
        return False
    return name != parent and name.is_subdomain(parent)


class AnswerReader:
    """Passes each answer of a name server that leaves by an interface of this host to ``on_packet``."""

    def __init__(self, on_packet: Callable[[str, bytes], None]) -> None:
        self._on_packet = on_packet
        self._socket: socket.socket | None = None

    def read(self, *, enabled: bool) -> None:
        """Begin or end to read. Without the right to read packets, there are none."""
        if enabled and self._socket is None:
            with suppress(OSError):
                self._socket = _packet_socket()
                asyncio.get_running_loop().add_reader(self._socket, self._receive, self._socket)
        elif not enabled and self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _receive(self, at: socket.socket) -> None:
        # An interface that is removed is an error once, and the others go on.
        with suppress(OSError):
            for _ in range(_MOST_PACKETS):
                packet, sender = at.recvfrom(_MOST_BYTES)
                self._on_packet(sender[0], packet)


def may_read_answers() -> bool:
    """Whether this process may read packets: CAP_NET_RAW, and sockets of the family AF_PACKET."""
    try:
        _packet_socket().close()
    except OSError:
        return False
    return True


def _packet_socket() -> socket.socket:
    """A socket for packets of all interfaces: the bridge comes and goes with its sandboxes. Raises OSError."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in _FILTER))
    program = struct.pack("HL", len(_FILTER), ctypes.addressof(code))
    # With SOCK_DGRAM, packets begin with the header of IP, whatever the link is.
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    packet_socket = socket.socket(socket.AF_PACKET, kind, socket.htons(_EVERY_PROTOCOL))
    try:
        packet_socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
    except OSError:
        packet_socket.close()
        raise
    return packet_socket


def name_servers() -> Iterator[str]:
    """The servers of host names that containers use: those of this host, without local ones."""
    for path in _CONFIGURATIONS:
        with suppress(OSError):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                kind, _, address = line.strip().partition(" ")
                with suppress(AddressValueError):
                    if kind == "nameserver" and not IPv4Address(address.strip()).is_loopback:
                        yield address.strip()


async def resolve_host_name(name: str) -> set[str]:
    """The IPv4 addresses of a host name; none if it has none now.

    In a thread that the end of the daemon does not wait for: servers that do not answer take half a minute.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[set[str]] = loop.create_future()

    def report(names: set[str]) -> None:
        if not answer.done():
            answer.set_result(names)

    def ask() -> None:
        addresses: set[str] = set()
        with suppress(OSError, UnicodeError):
            infos = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
            addresses = {str(address[0]) for *_, address in infos}
        # The loop may be closed meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(report, addresses)

    Thread(target=ask, daemon=True).start()
    return await answer
