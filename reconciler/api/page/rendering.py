"""Templates into responses: everything that a template shows is escaped, inert and bounded."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from shlex import quote as quote_word
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.assets import list_assets
from reconciler.api.page.forms import make_form_token
from reconciler.api.page.notices import take_notice
from reconciler.api.problems import HTML
from reconciler.api.routes.overviews import sees_everything
from reconciler.errors import RecordsError
from reconciler.model.key import Key
from reconciler.printable import printable_lines
from reconciler.times import format_duration, format_iso_time, format_short_duration, parse_time

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.runtime import Context

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""What every page forbids: code and content of others, frames, and forms that leave this server."""
_VIEWS = {"/ui/resources": "Resources", "/ui/runs": "Runs", "/ui/logs": "Logs"}
_MESSAGES = {"/ui/notifications": "Messages"}
"""Views of the navigation, and the one for those who may view everything."""
MOST_CHARACTERS = 4_000
"""The most characters of a value that a page shows."""
MOST_TEXT = 200_000
"""The most characters of a manifest that a page shows."""


def render_page(call: Call, template: str, status: int = 200, **values: Any) -> Response:
    """The page that ``template`` makes of ``values``."""
    # A page that is left asks once more now and then: the notice is for the one that follows.
    notice = None if is_refresh(call) else take_notice(call.request)
    shared = {
        "form_token": make_form_token(call.request),
        "here": read_address(call),
        "now": call.api.clock.now(),
        "org": call.org,
        "notice": notice,
    }
    # What is sent again is the same for all who see the same, so that it knows neither the caller nor their browser.
    around = (
        {"is_part": True}
        if is_refresh(call)
        else {"is_part": False, "caller": call.caller, "assets": list_assets(), "views": _list_views(call)}
    )
    text = _load_environment().get_template(template).render(shared | around | values)
    response = Response(text, status, HEADERS, HTML)
    if notice is not None:
        notice.end(response)
    return response


def _list_views(call: Call) -> dict[str, str]:
    """The views that the navigation offers to the caller, by their paths."""
    if not call.caller.principal:
        return _VIEWS
    try:
        return _VIEWS | (_MESSAGES if sees_everything(call) else {})
    except RecordsError:  # a page about trouble has none of its own
        return _VIEWS


def render_macro(template: str, name: str, *values: Any) -> str:
    """What the macro ``name`` of ``template`` makes of ``values``: a part of a page."""
    return str(getattr(_load_environment().get_template(template).module, name)(*values))


def is_refresh(call: Call) -> bool:
    """Whether a page that is open asks for its content again, and shows it in place of what it has."""
    return call.request.headers.get("hx-request") == "true"


def make_resource_path(key: Key | str, view: str = "resource") -> str:
    """The path of the page of a resource, or of ``source/NAME``; or of another ``view`` of it."""
    return f"/ui/{view}/" + "/".join(quote(part, safe="") for part in str(key).split("/"))


def make_action_path(key: Key, org: str, action: str, method: str = "POST") -> str:
    """The path to which a form sends ``action`` on a resource: that of the API, below ``/ui/do``."""
    place = f"gvc/{quote(key.gvc, safe='')}/" if key.gvc else ""
    return f"/ui/do/{method}/org/{quote(org, safe='')}/{place}{key.kind}/{quote(key.name, safe='')}/{action}"


def read_address(call: Call) -> str:
    """The path and query of the page, to which a form returns."""
    # A URL of Starlette costs more than what an open page is sent.
    path, query = call.request.scope["path"], call.request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


@cache
def _load_environment() -> Environment:
    # The first page loads it: a server without browsers does without its megabytes.
    from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context

    environment = Environment(
        loader=PackageLoader("reconciler.api.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_make_inert,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "commit": _shorten_revision,
        "day": _format_day,
        "duration": format_duration,
        "iso": format_iso_time,
        "shell": quote_word,
        "resource_path": make_resource_path,
        "when": pass_context(_format_when),
        "whole": _show_whole,
    }
    environment.tests["web_link"] = _is_web_link
    environment.globals |= {"action_path": make_action_path}
    return environment


def _make_inert(value: Any) -> Any:
    """``value`` as a page may show it: no control character or change of direction, and not endless."""
    # Markup is what a template made.
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    if len(value) > MOST_CHARACTERS:
        value = f"{value[:MOST_CHARACTERS]}… ({len(value):,} characters)"
    return printable_lines(value)


def _show_whole(text: str) -> Any:
    """``text`` of many lines, longer than other values may be."""
    from markupsafe import escape

    cut = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}… ({len(text):,} characters)"
    return escape(printable_lines(cut))


def _format_when(context: Context, at: float | str | None) -> Any:
    """A time, as an age with the time itself beside it; times are in seconds since the epoch or as text."""
    from markupsafe import Markup

    if at is None or at == "":
        return ""
    seconds = parse_time(at) if isinstance(at, str) else at
    age = format_short_duration(max(0.0, context["now"] - seconds))
    return Markup('<time datetime="{0}" title="{0}">{1} ago</time>').format(format_iso_time(seconds), age)


def _format_day(at: float) -> str:
    """``Mon 31 Jan 2028, 12:00``: a time in seconds since the epoch, in UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%a %d %b %Y, %H:%M}"


def _shorten_revision(revision: str) -> str:
    """The first 12 characters of the commit of a revision."""
    return revision.rpartition(":")[2][:12]


def _is_web_link(text: str) -> bool:
    """Whether a browser may follow ``text``."""
    try:
        return urlsplit(text).scheme in ("http", "https")
    except ValueError:
        return False
