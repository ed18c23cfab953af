"""Addresses of the internet protocol that only this host, its link or its cloud answers at."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

_METADATA = frozenset(
    ip_address(text)
    for text in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42")
)
"""Services of clouds that tell a machine its own credentials, beside the ones that are link-local."""
_THIS_NETWORK = ip_network("0.0.0.0/8")
_EMBEDDING = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""Networks whose last 32 bits are an IPv4 address."""


def is_internal(text: str) -> bool:
    """Whether the address is loopback, link-local, unspecified, multicast or one of a cloud's metadata.

    IPv4 addresses inside of IPv6 ones count as what they are. Raises ValueError for a text that is no address.
    """
    address = _unwrapped(ip_address(text.partition("%")[0]))
    if isinstance(address, IPv4Address) and address in _THIS_NETWORK:
        return True
    plain = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    return plain or address in _METADATA


def _unwrapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one stands for; else the same."""
    if isinstance(address, IPv4Address):
        return address
    embedded = address.ipv4_mapped or address.sixtofour
    if embedded is not None:
        return embedded
    number = int(address)
    if number > 1 and any(address in network for network in _EMBEDDING):
        return IPv4Address(number & 0xFFFFFFFF)
    return address
