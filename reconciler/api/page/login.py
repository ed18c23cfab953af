"""Login and logout of browsers: by a key, at the provider of the settings, or by a link."""

from __future__ import annotations

import msgspec
from starlette.responses import RedirectResponse, Response

from reconciler.access.rules import SUPERUSERS, Caller
from reconciler.access.store import KEY_PREFIX
from reconciler.api.call import Call, NoBody
from reconciler.api.oidc.login import new_request
from reconciler.api.page.actions import NEXT, read_form
from reconciler.api.page.forms import choose_target, delete_cookie, set_cookie
from reconciler.api.page.rendering import render_page
from reconciler.api.page.sessions import LINK_SECONDS, LOGIN, SESSION_SECONDS, read_cookie
from reconciler.api.problems import Problem
from reconciler.api.routes.credentials import BOOTSTRAP
from reconciler.api.routes.credentials import SESSION_SECONDS as BOOTSTRAP_SECONDS
from reconciler.api.routes.login import logins_of, to_provider
from reconciler.api.table import ANY, PUBLIC, Operation, make_page_operation
from reconciler.daemon.api_process import RETRY

_LONGEST_TARGET = 2_000


async def show_login(call: Call) -> Response:
    """The page on which people log in."""
    return _render_login(call)


def _refuse_login(call: Call, problem: Problem) -> Response:
    """The page to log in on, with the reason why nobody is logged in."""
    call.note_refusal(problem)
    return _render_login(call, problem)


def _render_login(call: Call, problem: Problem | None = None) -> Response:
    following = choose_target(call.query(NEXT, "/")[:_LONGEST_TARGET])
    provider = call.api.logins.people.settings.issuer if call.api.logins is not None else ""
    status = problem.status if problem is not None else 200
    return render_page(call, "login.html", status, problem=problem, following=following, provider=provider)


async def log_in_with_key(call: Call) -> Response:
    """Begin a session with a key of a service account, or the bootstrap token."""
    fields = await read_form(call)
    text = fields.get("key", "").strip()
    authenticator = call.api.authenticator
    try:
        caller, seconds = _find_caller(call, text)
    except Problem as problem:
        return _refuse_login(call, authenticator.refusal(call.request, problem, call.api.store.account_named_by(text)))
    authenticator.accept(call.request, caller.principal)
    call.act_as(caller)
    return begin_session(call, caller, seconds, choose_target(fields.get(NEXT, "/")))


def _find_caller(call: Call, text: str) -> tuple[Caller, float]:
    """Whom ``text`` stands for, and for how many seconds. Raises Problem 401."""
    # Only the session of a key ends with it: a session that was copied, or the token of an agent, would be outlived.
    caller = call.api.authenticator.find_bearer(text) if text.startswith(KEY_PREFIX) else None
    if caller is not None:
        return caller, SESSION_SECONDS
    if text and call.api.store.use_bootstrap(text):
        return Caller(BOOTSTRAP, frozenset({str(SUPERUSERS)})), BOOTSTRAP_SECONDS
    raise Problem(401, "the key is unknown, expired or revoked")


async def log_in_at_provider(call: Call) -> Response:
    """Send the browser to the provider of the settings; it comes back with a session."""
    logins_of(call)
    return await to_provider(call, new_request(page=choose_target(call.query(NEXT, "/")[:_LONGEST_TARGET])))


async def log_in_by_link(call: Call) -> Response:
    """Begin a session by a link that a command printed, or that follows a login at the provider; it is void then."""
    link = call.api.page.links.take(call.request.path_params["code"])
    if link is None:
        problem = Problem(401, "this link was used, or is too old: run `reconciler page` for a new one")
        return _refuse_login(call, call.api.authenticator.refusal(call.request, problem))
    call.act_as(link.caller)
    person = call.api.store.people.login(link.login) if link.login else None
    seconds = min(SESSION_SECONDS, person.ends - call.api.clock.now()) if person is not None else SESSION_SECONDS
    return begin_session(call, link.caller, seconds, link.following, link.login)


def begin_session(call: Call, caller: Caller, seconds: float, following: str, login: str = "") -> Response:
    """A session of ``caller`` in this browser, which goes on to the path ``following``."""
    response = RedirectResponse(following, 303)
    set_cookie(call, response, call.api.store.add_session(caller, seconds, login), seconds)
    return response


async def log_out(call: Call) -> Response:
    """End the session of this browser."""
    await read_form(call)
    if session := read_cookie(call.request):
        call.api.store.end_session(session)
    response = RedirectResponse(LOGIN, 303)
    delete_cookie(response)
    # Pages that the browser keeps would show what they showed before.
    response.headers["Clear-Site-Data"] = '"cache"'
    return response


async def make_link(call: Call) -> Response:
    """A link that logs the caller in once: for commands on this host, which print it."""
    await call.refuse_body()
    if getattr(call.request.state, "peer", None) is None:
        raise Problem(403, "a link is made over the socket in the state directory alone")
    if (refusal := call.api.refusal) and call.api.settings.api is not None:
        address = call.api.settings.api.address
        raise Problem(503, f"the daemon cannot listen at {address} ({refusal}); it tries again each {RETRY:g} s")
    caller = msgspec.structs.replace(call.caller, credential=f"link of {call.caller.credential}")
    return call.respond({"path": call.api.page.links.add(caller), "seconds": int(LINK_SECONDS)}, 201)


PAGES = (
    make_page_operation(LOGIN, show_login, "Log in.", PUBLIC, (NEXT,)),
    make_page_operation(LOGIN, log_in_with_key, "Log in with a key.", PUBLIC)._replace(
        method="POST", changes=True, credential=True
    ),
    make_page_operation(f"{LOGIN}/provider", log_in_at_provider, "Log in at the provider.", PUBLIC, (NEXT,)),
    make_page_operation(f"{LOGIN}/{{code}}", log_in_by_link, "Log in by a link.", PUBLIC)._replace(
        changes=True, credential=True
    ),
    make_page_operation("/ui/logout", log_out, "Log out.")._replace(method="POST", changes=True),
)

OPERATIONS = (
    Operation(
        "POST",
        "/login/link",
        make_link,
        "Make a link that logs the caller in to the page once.",
        ANY,
        {201: "The path of the link, and the seconds for which it can be used."},
        body=NoBody,
        optional_body=True,
        changes=True,
    ),
)
