"""Links to the page of the daemon on this host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reconciler.cli.api_client import ApiClient
from reconciler.errors import ReconcilerError, RefusedError
from reconciler.settings import Settings

PAGE_HOST = "reconciler.localhost"
"""The host name of the page on this host.

Browsers send a cookie to every port of a host name. Workloads answer at 127.0.0.1, so that the session of the page
never reaches them; browsers resolve names below localhost by themselves (RFC 6761).
"""
_POLL_SECONDS = 0.5
_LOOPBACK = ("127.0.0.1", "[::1]", "localhost", "0.0.0.0", "[::]")


def has_page(settings: Settings) -> bool:
    """Whether browsers can reach a page."""
    return settings.api is not None and bool(settings.api.page and settings.api.address)


def make_link(settings: Settings) -> str:
    """A link that logs this user in once. Raises RefusedError without a page, and RecordsError without a daemon."""
    if settings.api is None or not settings.api.page:
        raise RefusedError("the settings have no page: add `api: {address: 127.0.0.1:7400}`, without `page: false`")
    if not settings.api.endpoint:
        raise RefusedError("the API answers at its socket alone: add `address: 127.0.0.1:7400` below `api`")
    return f"{read_base(settings)}{ApiClient(settings).make_page_link()}"


def read_base(settings: Settings) -> str:
    """The address of the page as browsers on this host see it; the settings have one."""
    assert settings.api is not None
    host, _, port = settings.api.address.rpartition(":")
    if not settings.api.url and settings.api.tls is None and host in _LOOPBACK:
        return f"http://{PAGE_HOST}:{port}"
    return settings.api.endpoint


async def announce_page(settings: Settings, show: Callable[[str], None]) -> None:
    """Print a link to the page once the API answers, and before, why there is none yet."""
    if not has_page(settings):
        return
    refusal = ""
    while True:
        try:
            show(f"  The page: {await asyncio.to_thread(make_link, settings)}")
        except RefusedError as error:
            if str(error) != refusal:
                show(f"  The page: none yet: {error}")
            refusal = str(error)
            await asyncio.sleep(_POLL_SECONDS)
        except ReconcilerError:
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return
