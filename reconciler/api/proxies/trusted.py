"""Where a request comes from: the address of its client, as far as the proxies on its way are trusted."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from starlette.types import Scope

UNIX = "unix"
"""In place of an address: a client at the socket."""
_FORWARDED = b"x-forwarded-for"


class TrustedProxies:
    """The proxies of the setting ``api.trustedProxies``: only what they say of a client counts."""

    def __init__(self, ranges: Iterable[str] = ()) -> None:
        self._networks = tuple(ip_network(range_, strict=False) for range_ in ranges)
        self.trusts = functools.lru_cache(maxsize=4096)(self._trusts)
        """Whether a text is the address of one of them."""

    def client_address(self, scope: Scope) -> str:
        """The address of the client of the request ``scope``; "unix" at the socket.

        It is that of the connection, or the one that the PROXY protocol names. While it is a trusted proxy, the header
        X-Forwarded-For names the one before, from its end: whatever an untrusted client wrote stands further ahead.
        """
        client, state = scope.get("client"), scope.get("state", {})
        if client is None or "peer" in state:
            return UNIX
        address = str(state.get("forwarded") or client[0])
        if not self._networks or not self.trusts(address):
            return address
        lines = [value for name, value in scope["headers"] if name == _FORWARDED]
        for text in reversed(b",".join(lines).split(b",")):
            before = address_in(text.decode("latin-1"))
            if before is None:
                break
            address = before
            if not self.trusts(address):
                break
        return address

    def _trusts(self, address: str) -> bool:
        try:
            ip = plain_address(ip_address(address))
        except ValueError:
            return False
        return any(ip in network for network in self._networks if network.version == ip.version)


def address_in(text: str) -> str | None:
    """The address in a part of X-Forwarded-For, which may have a port; None if it is none."""
    text = text.strip(" \t")
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(plain_address(ip_address(text)))
    except ValueError:
        return None


def plain_address(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """``address``, as IPv4 where it is one written as IPv6."""
    return getattr(address, "ipv4_mapped", None) or address
