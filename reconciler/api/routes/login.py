"""Logins of people at their provider, by browser or device, tokens of commands, and the exchange of those of jobs."""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec
from starlette.responses import RedirectResponse, Response

from reconciler.access.people import Login
from reconciler.access.rules import Caller
from reconciler.api.authentication import address_of
from reconciler.api.call import Call, read_as
from reconciler.api.oidc.admission import admit_person
from reconciler.api.oidc.device import DEVICE_SECONDS, INTERVAL_SECONDS
from reconciler.api.oidc.exchange import LONGEST_TOKEN, issuer_of, matches_claims
from reconciler.api.oidc.login import (
    LOGIN_SECONDS,
    LoginIdentity,
    LoginRequest,
    build_redirect_url,
    check_command,
    new_request,
)
from reconciler.api.oidc.logins import Logins
from reconciler.api.page.notices import leave_notice
from reconciler.api.page.sessions import LOGIN
from reconciler.api.problems import HTML, OAuthProblem, Problem
from reconciler.api.table import PUBLIC, Operation
from reconciler.model.key import Key, Kind
from reconciler.settings import TokenExchangeSettings

_Form = TypeVar("_Form")

ACCESS_SECONDS = 900.0
"""How long the session of a person lasts without a refresh."""
COOKIE = "reconciler-login"
_LONGEST_CODE = 20
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"


class DeviceRequest(msgspec.Struct):
    """A login of a machine; it has no fields that matter."""


class DeviceAnswer(msgspec.Struct):
    """What a person answers at the page for devices; ``identity`` is from its form."""

    identity: str
    user_code: str
    answer: Literal["allow", "deny"]


class TokenRequest(msgspec.Struct):
    """A request for tokens: a code with its verifier, a refresh token, or the code of a device, by ``grant_type``."""

    grant_type: str
    code: str = ""
    redirect_uri: str = ""
    code_verifier: str = ""
    refresh_token: str = ""
    device_code: str = ""


class ExchangeRequest(msgspec.Struct):
    """A token exchange (RFC 8693): ``subject_token`` is the OIDC token of a CI job."""

    grant_type: str
    subject_token: str
    subject_token_type: str = ""


async def begin_login(call: Call) -> Response:
    """Send the browser to the provider; it returns to the command that waits at ``redirect_uri``."""
    redirect_uri, challenge = call.query("redirect_uri"), call.query("code_challenge")
    check_command(redirect_uri, challenge, call.query("code_challenge_method"))
    return await to_provider(call, new_request(redirect_uri, challenge, call.query("state")))


async def to_provider(call: Call, request: LoginRequest) -> Response:
    """Send the browser to the provider; a cookie binds the answer to this browser."""
    logins = logins_of(call)
    response = RedirectResponse(await logins.people.authorization_url(request), 302)
    secure = logins.endpoint.startswith("https:")
    response.set_cookie(
        COOKIE,
        logins.seal.seal(request),
        max_age=LOGIN_SECONDS,
        path=logins.cookie_path,
        httponly=True,
        secure=secure,
        samesite="lax",
    )
    return response


async def finish_login(call: Call) -> Response:
    """Take the answer of the provider: send the command its code, or show the page for devices."""
    logins = logins_of(call)
    request = logins.seal.open(call.request.cookies.get(COOKIE, ""), LoginRequest, LOGIN_SECONDS)
    # Some providers leave the state out of a refusal; without it, nobody is logged in.
    states = (request.state, "" if call.query("error") else request.state) if request is not None else ()
    if request is None or call.query("state") not in states:
        raise Problem(400, "this browser began no such login, or too long ago; begin again")
    try:
        identity = await _identify_person(call, logins, request)
    except Problem as problem:
        is_refused = problem.status in (401, 403)
        if request.page:
            return _refuse_browser(call, logins, problem)
        if not (request.redirect_uri or is_refused):
            raise
        call.note_refusal(problem)
        if request.redirect_uri:
            error = "access_denied" if is_refused else "temporarily_unavailable"
            response: Response = RedirectResponse(
                build_redirect_url(request, error=error, error_description=str(problem)), 302
            )
        else:
            response = _refused_device(logins, request, problem)
    else:
        if request.page:
            response = RedirectResponse(_log_in_browser(call, identity, request.page), 303)
        elif request.redirect_uri:
            response = RedirectResponse(
                build_redirect_url(request, code=logins.people.add_code(identity, request)), 302
            )
        else:
            from reconciler.api.oidc.pages import confirm_page  # all names of characters in HTML: half a megabyte

            response = confirm_page(identity.email, logins.seal.seal(identity), request.user_code)
    response.delete_cookie(COOKIE, path=logins.cookie_path)
    return response


def _log_in_browser(call: Call, identity: LoginIdentity, following: str) -> str:
    """The path at which the session of a person begins, who goes on to the path ``following``."""
    oidc = logins_of(call).people.settings
    person = admit_person(call, identity, oidc.issuer)
    login, _ = call.api.store.people.begin_login(person, identity.groups, oidc.session_lasts)
    caller = Caller(f"{Kind.USER}/{login.user}", credential=f"login {login.id}")
    return call.api.page.links.add(caller, login.id, following)


def _refuse_browser(call: Call, logins: Logins, problem: Problem) -> Response:
    """Back to the page to log in on, with the reason."""
    call.note_refusal(problem)
    response = RedirectResponse(LOGIN, 303)
    leave_notice(response, str(problem))
    response.delete_cookie(COOKIE, path=logins.cookie_path)
    return response


def _refused_device(logins: Logins, request: LoginRequest, problem: Problem) -> Response:
    """The page that says why nobody is logged in; the machine whose code the page had is told so too."""
    from reconciler.api.oidc.pages import message_page  # as for the page above

    logins.devices.refuse(request.user_code)
    return message_page("Login refused", f"{problem}. The machine is not logged in.", problem.status)


async def _identify_person(call: Call, logins: Logins, request: LoginRequest) -> LoginIdentity:
    issuer = logins.people.settings.issuer
    if error := call.query("error"):
        raise Problem(403, f"{issuer} refuses the login: {error[:100]}")
    if call.query("iss", issuer) != issuer:
        raise Problem(401, "the answer is that of another provider")
    identity = await logins.people.identify(request, call.query("code"))
    call.act_as(Caller(f"{Kind.USER}/{admit_person(call, identity, issuer).name}", credential=f"login at {issuer}"))
    return identity


async def issue_tokens(call: Call) -> Response:
    """Exchange a code, a refresh token or the code of a device for a session, with the next refresh token."""
    request = await _read_form(call, TokenRequest)
    logins = logins_of(call)
    match request.grant_type:
        case "authorization_code":
            identity = logins.people.take_code(request.code, request.redirect_uri, request.code_verifier)
        case "refresh_token":
            return _refresh_tokens(call, request.refresh_token)
        case _ if request.grant_type == DEVICE_GRANT:
            identity = logins.devices.poll(request.device_code)
        case _:
            raise OAuthProblem("unsupported_grant_type", f"grant_type: {request.grant_type[:60]!r} is not known here")
    if identity is None:
        words = "the code is unknown, was used before, or belongs to another command"
        raise call.api.authenticator.refusal(call.request, OAuthProblem("invalid_grant", words))
    call.api.authenticator.accept(call.request)
    oidc = logins.people.settings
    person = admit_person(call, identity, oidc.issuer)
    login, refresh = call.api.store.people.begin_login(person, identity.groups, oidc.session_lasts)
    return _make_token_response(call, login, refresh)


async def _read_form(call: Call, form: type[_Form]) -> _Form:
    """The body as ``form``; a fault in it is one that OAuth 2.0 defines (RFC 6749, 5.2)."""
    try:
        return read_as(await call.form(), form)
    except Problem as problem:
        if problem.status == 400:
            raise OAuthProblem("invalid_request", str(problem)) from None
        raise


def _refresh_tokens(call: Call, text: str) -> Response:
    # The session timeout counts here too: a login that was idle for too long has no refresh token any more.
    renewal = call.api.store.people.refresh(text)
    if renewal is None or call.api.authenticator.person(renewal[0]) is None:
        words = "the refresh token is unknown, expired or was used before; log in again"
        raise call.api.authenticator.refusal(call.request, OAuthProblem("invalid_grant", words))
    call.api.authenticator.accept(call.request)
    return _make_token_response(call, *renewal)


def _make_token_response(call: Call, login: Login, refresh: str) -> Response:
    principal = f"{Kind.USER}/{login.user}"
    call.act_as(Caller(principal, credential=f"login {login.id}"))
    seconds = min(ACCESS_SECONDS, login.ends - call.api.clock.now())
    token = call.api.store.add_session(call.caller, seconds, login.id)
    answer = {"access_token": token, "token_type": "Bearer", "expires_in": int(seconds), "refresh_token": refresh}
    return call.respond({**answer, "principal": principal})


async def exchange_token(call: Call) -> Response:
    """Exchange the token of a CI job for a short session of the service account that a rule names."""
    request = await _read_form(call, ExchangeRequest)
    if request.grant_type != EXCHANGE_GRANT:
        raise OAuthProblem("unsupported_grant_type", f"grant_type is {EXCHANGE_GRANT}")
    try:
        rule, ends = await _matching_rule(call, request.subject_token)
    except Problem as problem:
        if problem.status == 401:
            raise call.api.authenticator.refusal(call.request, problem) from None
        raise
    call.api.authenticator.accept(call.request)
    account = Key(Kind.SERVICEACCOUNT, "", rule.service_account)
    if not call.reader.records.applied.exists(account):
        raise Problem(403, f"the token fits a rule of the settings, and there is no {account}")
    call.act_as(Caller(str(account), credential=f"token of {rule.issuer}"))
    seconds = min(rule.lasts, ends - call.api.clock.now())
    token = call.api.store.add_session(call.caller, seconds)
    answer = {"access_token": token, "issued_token_type": ACCESS_TOKEN_TYPE, "token_type": "Bearer"}
    return call.respond({**answer, "expires_in": int(seconds), "principal": str(account)})


async def _matching_rule(call: Call, token: str) -> tuple[TokenExchangeSettings, float]:
    """The first rule that ``token`` fits, and when the token expires."""
    issuers = call.api.issuers
    issuer = issuer_of(token) if len(token) <= LONGEST_TOKEN else ""
    rules = [rule for rule in issuers.rules if rule.issuer == issuer]
    if not rules:
        raise Problem(401, "the token is refused: no rule under `api.tokenExchange` has its issuer")
    refusal: Problem | None = None
    for rule in rules:
        try:
            claims = await issuers.of(rule).claims(token, rule.audience)
        except Problem as problem:
            refusal = problem
            continue
        if matches_claims(rule, claims):
            return rule, float(claims["exp"])
        refusal = Problem(403, "the token is valid, and its claims fit no rule under `api.tokenExchange`")
    assert refusal is not None
    raise refusal


def logins_of(call: Call) -> Logins:
    """The logins of people. Raises Problem 404 if the settings have none."""
    if call.api.logins is None:
        raise Problem(404, "people cannot log in here: the settings have no `api.oidc`")
    return call.api.logins


async def begin_device(call: Call) -> Response:
    """Begin the login of a machine: a code for it, and one that a person enters at ``verification_uri``."""
    logins = logins_of(call)
    codes = logins.devices.begin(address_of(call.request))
    url = f"{logins.endpoint}/login/device"
    return call.respond(
        {
            "device_code": codes.device_code,
            "user_code": codes.user_code,
            "verification_uri": url,
            "verification_uri_complete": f"{url}?user_code={codes.user_code}",
            "expires_in": int(DEVICE_SECONDS),
            "interval": INTERVAL_SECONDS,
        }
    )


async def open_device_page(call: Call) -> Response:
    """Log in at the provider, then enter the code of a machine."""
    return await to_provider(call, new_request(user_code=call.query("user_code")[:_LONGEST_CODE]))


async def answer_device(call: Call) -> Response:
    """Allow or refuse the login of a machine, with the form of the page."""
    from reconciler.api.oidc.pages import message_page  # all names of characters in HTML: half a megabyte

    answer = read_as(await call.form(), DeviceAnswer)
    logins = logins_of(call)
    identity = logins.seal.open(answer.identity, LoginIdentity, LOGIN_SECONDS)
    if identity is None:
        raise Problem(401, f"the login is too old; open {logins.endpoint}/login/device again")
    issuer = logins.people.settings.issuer
    call.act_as(Caller(f"{Kind.USER}/{admit_person(call, identity, issuer).name}", credential=f"login at {issuer}"))
    # A code is short enough to be guessed, so that whoever guesses waits; others at the same address do not.
    call.api.authenticator.check_account(call.caller.principal)
    device = logins.devices.answer(answer.user_code, identity, allow=answer.answer == "allow")
    if device is None:
        unknown = Problem(404, "no machine waits with this code")
        unknown = call.api.authenticator.refusal(call.request, unknown, call.caller.principal)
        call.note_refusal(unknown)
        return message_page("Unknown code", f"{unknown}. Go back and compare it.", unknown.status)
    if device.denied:
        return message_page("Login refused", "The machine was not logged in.")
    return message_page("Logged in", f"The machine at {device.address} is logged in. You can close this page.")


_CODE = ("redirect_uri", "code_challenge", "code_challenge_method", "state")

OPERATIONS = (
    Operation(
        "GET",
        "/login",
        begin_login,
        "Log in with a browser, for a command on the same machine.",
        PUBLIC,
        {302: "The browser goes to the provider."},
        parameters=_CODE,
    ),
    Operation(
        "GET",
        "/login/callback",
        finish_login,
        "Return from the provider.",
        PUBLIC,
        {302: "The browser goes to the command.", 200: "The page for devices."},
        media=HTML,
        changes=True,
    ),
    Operation(
        "POST",
        "/login/token",
        issue_tokens,
        "Get the session of a login, or refresh it.",
        PUBLIC,
        {200: "The session.", 429: "Too many refused codes."},
        body=TokenRequest,
        form=True,
        changes=True,
        credential=True,
    ),
    Operation(
        "POST",
        "/login/exchange",
        exchange_token,
        "Exchange the OIDC token of a CI job for a session.",
        PUBLIC,
        {200: "The session.", 401: "The token is not valid."},
        body=ExchangeRequest,
        form=True,
        changes=True,
        credential=True,
    ),
    Operation(
        "POST",
        "/login/device",
        begin_device,
        "Begin the login of a machine without a browser.",
        PUBLIC,
        {200: "Its codes.", 429: "Too many machines wait."},
        body=DeviceRequest,
        optional_body=True,
        form=True,
    ),
    Operation(
        "GET",
        "/login/device",
        open_device_page,
        "Log in with a browser, and enter the code of a machine.",
        PUBLIC,
        {302: "The browser goes to the provider."},
        parameters=("user_code",),
    ),
    Operation(
        "POST",
        "/login/device/answer",
        answer_device,
        "Allow or refuse the login of a machine.",
        PUBLIC,
        {200: "A page.", 404: "No machine has this code."},
        body=DeviceAnswer,
        form=True,
        media=HTML,
        changes=True,
    ),
)
