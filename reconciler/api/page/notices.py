"""What an action did, for the page that follows it: a cookie that is read once."""

from __future__ import annotations

import base64
import binascii

import msgspec
from starlette.requests import Request
from starlette.responses import Response

COOKIE = "reconciler-notice"
_MOST_CHARACTERS = 1_000
_SECONDS = 60


class Notice(msgspec.Struct, frozen=True):
    """A sentence about what an action did."""

    text: str

    def end(self, response: Response) -> None:
        """Let the browser forget the notice, which ``response`` shows."""
        response.delete_cookie(COOKIE, path="/")


def leave_notice(response: Response, text: str) -> None:
    """Show ``text`` on the next page of this browser."""
    value = base64.urlsafe_b64encode(text[:_MOST_CHARACTERS].encode("utf-8", "replace")).decode()
    response.set_cookie(COOKIE, value, max_age=_SECONDS, path="/", httponly=True, samesite="lax")


def take_notice(request: Request) -> Notice | None:
    """The notice that waits for this browser; None without one."""
    value = request.cookies.get(COOKIE, "")
    try:
        return Notice(base64.urlsafe_b64decode(value).decode()) if value else None
    except (binascii.Error, ValueError):
        return None
