"""Addresses of the internet protocol that only this host, its link or its cloud answers at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)
from typing import TypeVar

METADATA = frozenset(
    ip_address(text)
    for text in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42")
)
"""Services of clouds that tell a machine its own credentials, beside the ones that are link-local."""
Network = TypeVar("Network", IPv4Network, IPv6Network)
_THIS_NETWORK = ip_network("0.0.0.0/8")
_EMBEDDING = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""Networks whose last 32 bits are an IPv4 address."""


@lru_cache(maxsize=1024)
def without_blocked(allowed: tuple[str, ...], blocked: tuple[str, ...]) -> tuple[str, ...]:
    """The ranges that cover ``allowed`` but nothing of ``blocked``; an address is a range of one. Raises ValueError."""
    if not blocked:
        return allowed
    fours = _subtract_networks(networks_of_version_4(allowed), networks_of_version_4(blocked))
    sixes = _subtract_networks(_networks_of_version_6(allowed), _networks_of_version_6(blocked))
    return (*map(str, fours), *map(str, sixes))


def networks_of_version_4(ranges: Iterable[str]) -> list[IPv4Network]:
    """Those of ``ranges`` that are IPv4, merged. Raises ValueError."""
    networks = (ip_network(range_, strict=False) for range_ in ranges)
    return list(collapse_addresses(network for network in networks if isinstance(network, IPv4Network)))


def _networks_of_version_6(ranges: Iterable[str]) -> list[IPv6Network]:
    networks = (ip_network(range_, strict=False) for range_ in ranges)
    return list(collapse_addresses(network for network in networks if isinstance(network, IPv6Network)))


def _subtract_networks(allowed: Iterable[Network], blocked: Iterable[Network]) -> list[Network]:
    """``allowed`` without ``blocked``, sorted."""
    networks = list(allowed)
    for refused in blocked:
        networks = [part for network in networks for part in _parts_without(network, refused)]
    return sorted(networks)


def _parts_without(network: Network, refused: Network) -> Iterator[Network]:
    """The parts of ``network`` that are not in ``refused``."""
    if not network.overlaps(refused):
        yield network
    elif refused.prefixlen > network.prefixlen:
        yield from network.address_exclude(refused)


def is_internal(text: str) -> bool:
    """Whether the address is loopback, link-local, unspecified, multicast or one of a cloud's metadata.

    IPv4 addresses inside of IPv6 ones count as what they are. Raises ValueError for a text that is no address.
    """
    address = _unwrap_address(ip_address(text.partition("%")[0]))
    if isinstance(address, IPv4Address) and address in _THIS_NETWORK:
        return True
    plain = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    return plain or address in METADATA


def _unwrap_address(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
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
