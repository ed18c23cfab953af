"""The form ``ip("…")`` of log queries: an address, a range of them or a network, in a label or anywhere in a line."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

import msgspec

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_CANDIDATE = re.compile(r"[0-9A-Fa-f.:]{2,45}")
"""What may be an address within a line."""


class AddressRange(msgspec.Struct, frozen=True):
    """The addresses from ``first`` to ``last``, both included and of one version."""

    first: Address
    last: Address

    def contains(self, text: str) -> bool:
        """Whether ``text`` is an address of the range."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return address.version == self.first.version and int(self.first) <= int(address) <= int(self.last)

    def is_in(self, line: str) -> bool:
        """Whether ``line`` has an address of the range anywhere, with a port behind it or not."""
        return any(
            self.contains(form) for candidate in _CANDIDATE.findall(line) for form in _list_address_forms(candidate)
        )


def parse_addresses(text: str) -> AddressRange:
    """Parse ``10.0.0.1``, ``10.0.0.1-10.0.0.9`` or ``10.0.0.0/8``, of either version. Raises ValueError."""
    begin, dash, end = text.partition("-")
    if dash:
        first, last = ipaddress.ip_address(begin.strip()), ipaddress.ip_address(end.strip())
        if first.version != last.version or int(first) > int(last):
            raise ValueError("the range ends before it begins")
        return AddressRange(first, last)
    network = ipaddress.ip_network(text, strict=False)
    return AddressRange(network[0], network[-1])


def _list_address_forms(text: str) -> Iterator[str]:
    """``text`` as it is, without marks at its ends, and without a port."""
    yield text
    yield text.strip(".:")
    yield text.partition(":")[0]
