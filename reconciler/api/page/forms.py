"""What protects a browser: how its cookie is set, the token in each form, and where it goes on."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import SplitResult, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.sessions import COOKIE, read_cookie
from reconciler.api.problems import Problem


def set_cookie(call: Call, response: Response, session: str, seconds: float) -> None:
    """Let the browser keep ``session``."""
    secure = call.request.url.scheme == "https" or _read_endpoint(call).scheme == "https"
    response.set_cookie(COOKIE, session, max_age=int(seconds), path="/", httponly=True, secure=secure, samesite="lax")


def delete_cookie(response: Response) -> None:
    """Let the browser forget its session."""
    response.delete_cookie(COOKIE, path="/")


def make_form_token(request: Request) -> str:
    """The token of the forms of this session, which another site cannot know."""
    return hashlib.blake2b(b"form", key=read_cookie(request).encode()[:64], digest_size=24).hexdigest()


def check_form(call: Call, token: str) -> None:
    """Refuse a form that another site may have sent. Raises Problem 403."""
    check_origin(call)
    # A credential in a header, or a unix socket, is nothing that a browser sends by itself.
    request = call.request
    if read_cookie(request) and not hmac.compare_digest(token.encode(), make_form_token(request).encode()):
        raise Problem(403, "the form is not of this session: go back, load the page again, and repeat it")


def check_origin(call: Call) -> None:
    """Refuse a request that a page of another host makes a browser send. Raises Problem 403."""
    headers = call.request.headers
    origin, site = headers.get("origin", ""), headers.get("sec-fetch-site", "same-origin")
    # The origin of a page in a sandbox is "null", which has no host, as a server without a host name has none.
    hosts = {headers.get("host", ""), _read_endpoint(call).netloc} - {""}
    if (origin and urlsplit(origin).netloc not in hosts) or site not in ("same-origin", "none"):
        raise Problem(403, "another site sent this request")


def _read_endpoint(call: Call) -> SplitResult:
    settings = call.api.settings.api
    return urlsplit(settings.endpoint if settings is not None else "")


def choose_target(text: str) -> str:
    """The local path ``text``, to which a browser goes on; ``/`` in place of anything else."""
    is_local = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isascii() and text.isprintable()
    return text if is_local and "\\" not in text else "/"
