"""Connects to addresses that were checked before, so that no second answer about a name leads elsewhere."""

from __future__ import annotations

from contextlib import suppress

import httpx2

ADDRESSES = "addresses"
"""The extension of a request with the addresses to connect to, as a tuple of texts; without it, its host is used."""
MOST_ADDRESSES = 4
"""The most addresses of a host that are tried."""
MOST_HOSTS = 128
"""The most hosts with connections of their own; that of the oldest are closed."""


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Sends each request to an address of its host, and has the certificate checked for the host.

    Each host has connections of its own: one that was proven for a host carries no request for another.
    """

    def __init__(self) -> None:
        self._context = httpx2.create_ssl_context()
        self._plain = httpx2.AsyncHTTPTransport(verify=self._context)
        self._hosts: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The response to ``request``."""
        addresses = request.extensions.get(ADDRESSES, ())
        if not addresses:
            return await self._plain.handle_async_request(request)
        transport = await self._of(request.url.netloc.decode("ascii"))
        *first, last = addresses[:MOST_ADDRESSES]
        for address in first:
            with suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await transport.handle_async_request(_sent_to(request, address))
        return await transport.handle_async_request(_sent_to(request, last))

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in (self._plain, *self._hosts.values()):
            await transport.aclose()
        self._hosts.clear()

    async def _of(self, host: str) -> httpx2.AsyncHTTPTransport:
        transport = self._hosts.get(host)
        if transport is None:
            while len(self._hosts) >= MOST_HOSTS:
                await self._hosts.pop(next(iter(self._hosts))).aclose()
            transport = self._hosts[host] = httpx2.AsyncHTTPTransport(verify=self._context)
        return transport


def _sent_to(request: httpx2.Request, address: str) -> httpx2.Request:
    """``request`` for its host, which is in its headers, at ``address``."""
    extensions = {**request.extensions, "sni_hostname": request.url.host}
    url = request.url.copy_with(host=address)
    return httpx2.Request(request.method, url, headers=request.headers, stream=request.stream, extensions=extensions)
