"""What a browser gets in place of a page."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from reconciler.api.call import Call
from reconciler.api.page.actions import NEXT, is_action
from reconciler.api.page.forms import delete_cookie
from reconciler.api.page.rendering import read_address, render_page
from reconciler.api.page.sessions import LOGIN
from reconciler.api.problems import Problem


def is_page(scope: Scope) -> bool:
    """Whether a browser asks, for a page or by a form of one."""
    return scope["path"] == "/" or scope["path"].startswith("/ui/") or bool(scope.get("page_action"))


def respond_problem(call: Call, problem: Problem) -> Response:
    """The page about ``problem``; without a session, the one on which people log in."""
    if problem.status == HTTPStatus.UNAUTHORIZED:
        response: Response = RedirectResponse(_make_login_path(call), 303)
        delete_cookie(response)
        return response
    response = render_page(call, "problem.html", problem.status, problem=problem, request_id=call.request_id)
    for name, value in (problem.headers or {}).items():
        response.headers[name] = value
    return response


def _make_login_path(call: Call) -> str:
    """The path to log in at, which goes on to the page that was asked for; a form would be sent without its fields."""
    here = read_address(call)
    asks = call.request.method == "GET" and not is_action(call.request)
    return f"{LOGIN}?{urlencode({NEXT: here})}" if asks and here != "/" else LOGIN
