"""Sessions of browsers: the cookie that names one, and links that begin one."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

from starlette.requests import Request

from reconciler.access.rules import Caller
from reconciler.api.problems import Problem

LOGIN = "/ui/login"
"""The path of the page to log in on."""
COOKIE = "reconciler-session"
"""The cookie with the session. It has no port: other servers at the same host name get it, too."""
SESSION_SECONDS = 12 * 3600.0
"""How long a session of a browser lasts."""
LINK_SECONDS = 600.0
"""How long a link that logs in can be used."""
MOST_LINKS = 1_000
PAGE = "page"
"""The member of a scope that says whether the cookie counts: never for the API, where it would need no token."""


def read_cookie(request: Request) -> str:
    """The session in the cookie of a request for the page; "" for any other request, and without the cookie."""
    return request.cookies.get(COOKIE, "") if request.scope.get(PAGE) else ""


class PageLink(NamedTuple):
    """A link that logs ``caller`` in once: as the person of ``login`` ("": none), who goes on to ``following``.

    ``ends`` is on the monotonic clock.
    """

    caller: Caller
    login: str
    following: str
    ends: float


class PageLinks:
    """The links that wait, in memory: a restart ends them."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._links: dict[str, PageLink] = {}

    def add(self, caller: Caller, login: str = "", following: str = "/") -> str:
        """The path of a new link."""
        now = self._monotonic()
        self._links = {code: link for code, link in self._links.items() if link.ends > now}
        if len(self._links) >= MOST_LINKS:
            raise Problem(503, "too many links wait to be used; try again")
        code = secrets.token_hex(32)  # a segment of a path that begins with a dash is an action
        self._links[code] = PageLink(caller, login, following, now + LINK_SECONDS)
        return f"{LOGIN}/{code}"

    def take(self, code: str) -> PageLink | None:
        """The link with ``code``, None if it is unknown, used or too old. It is void after that."""
        link = self._links.pop(code, None)
        return link if link is not None and link.ends > self._monotonic() else None
