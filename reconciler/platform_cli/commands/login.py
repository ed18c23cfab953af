"""Logins: with a browser on this machine or another, by a token, or by the token of the first start."""

from __future__ import annotations

import base64
import hashlib
import http.server
import re
import secrets
import time
import webbrowser
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec.structs import replace

from reconciler.errors import RefusedError, UsageError
from reconciler.platform_cli.client import find_local_socket
from reconciler.platform_cli.commands.profile import delete_tokens
from reconciler.platform_cli.documents import read_hidden
from reconciler.platform_cli.keyring import KeyringError
from reconciler.platform_cli.profiles import DEFAULT, Profile
from reconciler.platform_cli.refreshing import with_token
from reconciler.platform_cli.refusals import ApiError
from reconciler.platform_cli.session import Session
from reconciler.times import parse_time

LOGIN_SECONDS = 300.0
"""How long a person has for the login in the browser."""
_ADDRESSES = ("http://", "https://", "unix://")
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._@]*")
"""Names of profiles that a login makes."""
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_PENDING, _SLOW_DOWN = "authorization_pending", "slow_down"
_SLOWER = 5.0
"""Seconds by which a pause grows when the server asks for that (RFC 8628)."""
_PAGE = "<!doctype html><meta charset=utf-8><title>platform</title><p>{}. You can close this page.</p>"


def log_in(
    session: Session,
    ref: str | None,
    device: bool | None,
    token_stdin: bool | None,
    keyring: bool | None,
    bootstrap: bool | None,
) -> None:
    """Log in, and store the result as a profile; with --org, --gvc and --endpoint as its defaults."""
    name, address = _resolve_login_target(session, ref)
    if keyring and not session.keyring.is_there():
        raise UsageError("there is no keyring: it needs secret-tool (libsecret-tools) and DBUS_SESSION_BUS_ADDRESS")
    session.use_profile(name)
    endpoint = address or session.setting("endpoint")
    session.use_endpoint(endpoint)
    profile = Profile(org=session.setting("org"), gvc=session.setting("gvc"), endpoint=endpoint)
    session.use_token("")
    if bootstrap:
        answer = session.client.request("POST", "/login/bootstrap", body={"token": read_hidden("Token")}).body
        profile = replace(profile, token=answer["token"], expires=parse_time(answer["expires"]))
    elif token_stdin:
        profile = replace(profile, token=read_hidden("Token"))
    else:
        profile = with_token(profile, _by_person(session, endpoint, device=bool(device)))
    profile = replace(profile, org=_verified_org(session, profile))
    in_file = _in_file(session, name, profile, keyring)
    session.change_profiles(lambda profiles: profiles.having(name, in_file))
    session.output.line(f"logged in; the profile {name} is stored")


def _in_file(session: Session, name: str, profile: Profile, keyring: bool | None) -> Profile:
    """The profile as its file has it; its tokens go into the keyring if that is ``keyring``, or (None) can be."""
    if keyring is False or not session.keyring.is_there():
        delete_tokens(session, name)
        return profile
    try:
        return session.keyring.put(name, profile)
    except KeyringError as error:
        if keyring:
            raise
        session.output.note(f"{error}. The tokens are in {session.profiles_file} now")
        return profile


def _resolve_login_target(session: Session, ref: str | None) -> tuple[str, str]:
    """The name of the profile, and the address if ``ref`` is one. Raises UsageError before anything is asked for."""
    name = session.by_flag("profile") or DEFAULT
    if ref and ref.startswith(_ADDRESSES):
        return name, ref.rstrip("/")
    name = ref or name
    if name in session.profiles.profiles or name == DEFAULT:
        return name, ""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is neither a profile nor an address; a name has letters, digits and -._@")
    if not (
        session.by_flag("endpoint") or session.environ.get("PLATFORM_ENDPOINT") or find_local_socket(session.environ)
    ):
        names = ", ".join(sorted(session.profiles.profiles)) or "none"
        raise UsageError(
            f"there is no profile {name!r} (there are: {names}). To make it: platform login {name} --endpoint "
            "https://HOST:PORT"
        )
    return name, ""


def _verified_org(session: Session, profile: Profile) -> str:
    """The org of the server, which accepts the new token. Raises RefusedError if it does not, or has another org."""
    checked = Session(
        {"token": profile.token, "endpoint": profile.endpoint, "insecure": session.by_flag("insecure")},
        session.environ,
    )
    try:
        org = str(checked.client.get("/whoami")["org"])
    except ApiError as error:
        if error.status != 401:
            raise
        address = checked.client.endpoint.url
        raise RefusedError(f"the server at {address} does not accept the token, so nothing is stored") from None
    finally:
        checked.close()
    if profile.org not in ("", org):
        raise RefusedError(f"the server has the org {org}, and not {profile.org}, so nothing is stored")
    return org


def log_out(session: Session, ref: str | None) -> None:
    """End the login at the server, and remove its token from the profile."""
    name = ref or session.profile_name
    session.use_profile(name)
    profile = session.profile
    if not profile.has_token:
        raise UsageError(f"the profile {name!r} has no token")
    try:
        session.client.request("DELETE", "/login")
    except KeyringError as error:
        session.output.note(f"the server did not end the login: {error}")
    except ApiError as error:
        # A key of a service account is no session, and an ended session is what was wanted.
        if error.status not in (400, 401):
            session.output.note(f"the server did not end the login: {error}")
    delete_tokens(session, name)
    bare = replace(profile, token="", refresh_token="", expires=0.0, keyring=False)
    session.change_profiles(lambda profiles: profiles.having(name, bare))
    session.output.line(f"logged out of the profile {name}")


def _by_person(session: Session, endpoint: str, *, device: bool) -> dict[str, Any]:
    """Let a person log in with a browser. Raises RefusedError, with the other ways, where people cannot log in."""
    try:
        return _by_device(session) if device else _by_browser(session, endpoint)
    except ApiError as error:
        if error.status != 404:
            raise
        raise RefusedError(
            f"{error}; log in with a token: platform login --token-stdin, or with the one of the daemon's first start: "
            "platform login --bootstrap --token-stdin < STATE/bootstrap-token"
        ) from None


def _by_device(session: Session) -> dict[str, Any]:
    """Let a person allow this machine on another one (RFC 8628)."""
    begun = session.client.request("POST", "/login/device", body={}).body
    session.output.note(f"Open {begun['verification_uri_complete']} and compare the code {begun['user_code']}")
    deadline = time.monotonic() + float(begun["expires_in"])
    form = {"grant_type": _DEVICE_GRANT, "device_code": begun["device_code"]}
    pause = float(begun["interval"])
    while time.monotonic() < deadline:
        time.sleep(pause)
        try:
            answer: dict[str, Any] = session.client.request("POST", "/login/token", body=form).body
            return answer
        except ApiError as error:
            if error.code not in (_PENDING, _SLOW_DOWN):
                raise
            pause += _SLOWER if error.code == _SLOW_DOWN else 0.0
    raise RefusedError("the login was not allowed in time; begin again: platform login --device")


def _by_browser(session: Session, endpoint: str) -> dict[str, Any]:
    """Let a person log in with the browser of this machine; its answer comes to a port of this machine alone."""
    if not endpoint.startswith("http"):
        raise UsageError("a login with a browser needs an address: --endpoint https://HOST:PORT")
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    digest = hashlib.sha256(verifier.encode()).digest()
    with _Waiting() as waiting:
        redirect_uri = f"http://127.0.0.1:{waiting.server_port}/callback"
        query = {
            "redirect_uri": redirect_uri,
            "code_challenge_method": "S256",
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
        }
        # A server without logins of people answers the browser alone, and nobody would come back.
        session.client.request("GET", "/login", query=query)
        url = f"{endpoint}/login?{urlencode(query)}"
        session.output.note(f"Log in with the browser: {url}")
        webbrowser.open(url)
        text = waiting.answer(state)
    form = {
        "grant_type": "authorization_code",
        "code": text,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
    }
    answer: dict[str, Any] = session.client.request("POST", "/login/token", body=form).body
    return answer


class _Waiting(http.server.HTTPServer):
    """A port of this machine where the browser returns."""

    timeout = 1.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Returned)
        self.query: dict[str, list[str]] = {}

    def take(self, query: dict[str, list[str]]) -> None:
        """Take what the browser brings."""
        self.query = query

    def answer(self, state: str) -> str:
        """The code that comes with ``state``. Raises RefusedError."""
        deadline = time.monotonic() + LOGIN_SECONDS
        while time.monotonic() < deadline:
            self.handle_request()
            if self.query.get("state") != [state]:
                continue  # not the browser that this command has opened
            if "error" in self.query:
                raise RefusedError(
                    f"the login was refused: {(self.query.get('error_description') or self.query['error'])[0]}"
                )
            return self.query["code"][0]
        raise RefusedError(
            f"no login came back in {LOGIN_SECONDS:.0f} s; without a browser here: platform login --device"
        )


class _Returned(http.server.BaseHTTPRequestHandler):
    """The request of the browser that returns."""

    timeout = 1.0
    """Browsers open connections that they may use later; such a one must not hold up the request."""
    server: _Waiting

    def do_GET(self) -> None:
        """Take the answer, and show a page."""
        url = urlsplit(self.path)
        if url.path != "/callback":
            self.send_error(404)
            return
        self.server.take(parse_qs(url.query))
        body = _PAGE.format("The login was refused" if "error" in self.server.query else "You are logged in").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log: the path has the code."""
