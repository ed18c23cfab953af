"""Requests to the HTTP API: retried where that is safe, and with errors that name what helps."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from reconciler import __version__
from reconciler.errors import UsageError
from reconciler.platform_cli.refusals import ApiError, findings_of, refused_change
from reconciler.platform_cli.retries import BUSY, FIRST_PAUSE, UNAVAILABLE, RequestRetries
from reconciler.platform_cli.transport import TROUBLES, UNIX, Response, Transport
from reconciler.printable import escape_text, printable_lines

START_SECONDS = 3.0
"""How long the connection is tried while no program listens: a daemon that restarts takes so long."""
PAGE = 500
"""The most items that one request asks for."""
USER_AGENT = f"platform-cli/{__version__}"
TEXT = "text/plain"
_READS = ("GET", "HEAD")
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""How OpenSSL names an answer that is not TLS; it depends on its version."""

HIDDEN = "[hidden]"
_SECRET_FIELDS = frozenset(
    {
        "access_token",
        "code_verifier",
        "data",
        "device_code",
        "password",
        "payload",
        "refresh_token",
        "registrationToken",
        "subject_token",
        "token",
    }
)
"""Members of a body that hold a credential or the data of a secret."""
_SECRET_BY_PLACE = (("/secret", "diff"), ("/-key", "key"), ("/login", "code"))
"""Parts of a path, each with a member that is secret there."""


class Body(dict[str, Any]):
    """An object that the server sent. A missing member raises ApiError: the server has another version."""

    def __missing__(self, name: str) -> Any:
        raise ApiError(
            f"the answer of the server has no {name!r}, so its version does not fit this command, {__version__}: "
            "install the version that `reconciler --version` shows there"
        )


class ApiAnswer(NamedTuple):
    """A response: its status, its decoded body (None if it has none), and its headers."""

    status: int
    body: Any
    headers: Mapping[str, str]


class TextAnswer(NamedTuple):
    """The text of an answer, and its headers."""

    text: str
    headers: Mapping[str, str]


class Sending(NamedTuple):
    """A request: ``content`` is what is sent, ``body`` the value that it means."""

    method: str
    target: str
    headers: Mapping[str, str]
    content: bytes | None = None
    body: Any = None


class ApiEndpoint(NamedTuple):
    """Where the API is, with which credential ("": that of the process), and for which profile errors give advice.

    An origin is the flag or the environment variable that has a value in place of the profile, else "".
    """

    url: str
    token: str = ""
    insecure: bool = False
    profile: str = "default"
    token_origin: str = ""
    url_origin: str = ""

    @property
    def advice(self) -> str:
        """How a person changes the address."""
        if self.url_origin:
            return f"{self.url_origin}{'=' if self.url_origin.isupper() else ' '}URL"
        return f"platform profile update {self.profile} --endpoint URL"

    def explain_unauthorized(self, reason: str) -> str:
        """The message for a credential that the server refuses for a ``reason``."""
        if not self.token:
            return f"the server at {self.url} wants a credential. Log in: platform login {self.profile}"
        if self.token_origin:
            return (
                f"the credential of {self.token_origin} is not valid: {reason}. Replace it, or leave it out and "
                f"log in: platform login {self.profile}"
            )
        return (
            f"the credential of the profile {self.profile!r} is not valid: {reason}. Log in again: "
            f"platform login {self.profile}"
        )


class Client:
    """Requests to one endpoint. ``debug`` shows each exchange on stderr, without credentials and secret values.

    ``verbose`` shows a line for each.
    """

    def __init__(self, endpoint: ApiEndpoint, *, debug: bool = False, verbose: bool = False) -> None:
        self._endpoint = endpoint
        self._debug = debug
        self._verbose = verbose
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        if endpoint.token:
            if not (endpoint.token.isascii() and endpoint.token.isprintable()):
                raise UsageError("the credential has characters that none has, such as a line break")
            headers["Authorization"] = f"Bearer {endpoint.token}"
        self._http = Transport(endpoint.url, headers, insecure=endpoint.insecure)

    @property
    def endpoint(self) -> ApiEndpoint:
        """Where it sends its requests."""
        return self._endpoint

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str, **query: str) -> Any:
        """The body of a read. Raises ApiError."""
        return self.request("GET", path, query=query).body

    def once(self, path: str, seconds: float) -> Any:
        """The body of a read in which each wait takes at most so long; None if it fails."""
        try:
            return _decode_response(self._http.send("GET", path, {}, None, seconds))
        except TROUBLES:
            return None

    def items(self, path: str, limit: int = 0, query: Mapping[str, Any] | None = None) -> Iterator[list[Any]]:
        """The pages of a collection, or of what a ``query`` finds, up to ``limit`` items; 0: all. Raises ApiError."""
        left = limit if limit > 0 else sys.maxsize
        href: str | None = path
        first = {"limit": str(min(left, PAGE))}
        while href and left > 0:
            body = self.request("GET" if query is None else "POST", href, body=query, query=first).body
            items = body["items"][:left]
            left -= len(items)
            yield items
            first = {}
            href = next((value["href"] for value in body.get("links", ()) if value["rel"] == "next"), None)

    def lines(self, path: str, query: Mapping[str, str]) -> Iterator[Any]:
        """The objects of a stream, as they come. Raises ApiError."""
        target = _build_request_target(path, query)
        retries = RequestRetries(repeatable=True)
        while True:
            self._connect()
            try:
                with self._http.stream(target) as (response, lines):
                    if response.status < 400:
                        yield from map(json.loads, filter(None, map(bytes.strip, lines)))
                        return
            except (*TROUBLES, ValueError) as error:
                raise self.unreachable(error) from None
            self.show("GET", target, None, response)
            if (pause := retries.pause(response)) is None:
                self.answer(response, path)
            else:
                time.sleep(pause)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        key: str = "",
        seen: str = "",
    ) -> ApiAnswer:
        """One exchange; ``seen`` is the ETag of what it changes. It is repeated only with the idempotency ``key``.

        Raises ApiError.
        """
        headers = {"Idempotency-Key": key} if key else {}
        if seen:
            headers["If-Match"] = seen
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["Content-Type"] = "application/json"
        repeatable = method in _READS or bool(key) or path.endswith("/-query")
        sending = Sending(method, _build_request_target(path, query or {}), headers, content, body)
        return self.answer(self._exchange(sending, repeatable=repeatable), path)

    def text(self, path: str, media: str = TEXT, **query: str) -> TextAnswer:
        """What the API shows people, or another form of it. Raises ApiError."""
        response = self._exchange(
            Sending("GET", _build_request_target(path, query), {"Accept": media}), repeatable=True
        )
        self.answer(response, path)
        if not response.headers.get("content-type", "").startswith(media):
            raise ApiError(f"the server does not answer in the form {media}, so its version does not fit this command")
        return TextAnswer(response.content.decode(errors="replace"), response.headers)

    def _exchange(self, sending: Sending, *, repeatable: bool) -> Response:
        """The answer, a refusal too. Raises ApiError without one."""
        retries = RequestRetries(repeatable=repeatable)
        while True:
            self._connect()
            try:
                response = self._http.send(*sending[:4])
            except TROUBLES as error:
                if (pause := retries.pause()) is None:
                    raise self.unreachable(error) from None
            else:
                self.show(sending.method, sending.target, sending.body, response)
                if (pause := retries.pause(response)) is None:
                    return response
            time.sleep(pause)

    def _connect(self) -> None:
        """Connect, and try again for a while if no program listens. Raises ApiError."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self._http.connect()
            except (ConnectionRefusedError, FileNotFoundError) as error:
                if time.monotonic() > deadline:
                    raise self.unreachable(error) from None
            except TROUBLES as error:
                raise self.unreachable(error) from None
            time.sleep(FIRST_PAUSE)

    def answer(self, response: Response, path: str) -> ApiAnswer:
        """The content of ``response`` to a request at ``path``. Raises ApiError if it is a refusal."""
        body = _decode_response(response)
        if response.status < 400:
            return ApiAnswer(response.status, Body(body) if isinstance(body, dict) else body, response.headers)
        raise self._make_refusal(response, path, body if isinstance(body, dict) else {})

    def _make_refusal(self, response: Response, path: str, body: Mapping[str, Any]) -> ApiError:
        """The error for a refusal: what the server says, and what helps."""
        status = response.status
        message = str(body.get("message") or f"the server answers {status} {response.reason}".rstrip())
        if findings := findings_of(body.get("details")):
            return refused_change(findings, status)
        if versions := _versions_of(body.get("details")):
            return ApiError(f"{message}\n{versions}", status)
        if path.startswith("/login"):
            return ApiError(f"the login is refused: {message}", status, str(body.get("error") or ""))
        if status == 401:
            message = self._endpoint.explain_unauthorized(message)
        elif status == 403:
            # Not every refusal is for a permission that is missing.
            advice = ". To see who may: platform KIND access-report REF" if "has no permission" in message else ""
            message = f"you may not do this: {message}{advice}"
        elif status in (BUSY, UNAVAILABLE):
            message = f"the server at {self._endpoint.url} is not ready: {message}. Try again in a moment"
        elif status >= 500:
            message = f"the server failed: {message} (request {body.get('id', '')})"
        elif not body:
            message = f"{self._endpoint.url} is not the API: {message}. To change the address: {self._endpoint.advice}"
        return ApiError(message, status, str(body.get("error") or ""))

    def unreachable(self, error: Exception) -> ApiError:
        """The error for a server that does not answer: why, and what helps."""
        reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            text = f"the certificate of {self._endpoint.url} is not trusted: {reason}"
            return ApiError(f"{text}. Set SSL_CERT_FILE to its authority, or add --insecure")
        if any(text in reason for text in _NO_TLS):
            return ApiError(f"the server at {self._endpoint.url} does not speak TLS: write http:// if that is wanted")
        if isinstance(error, HTTPException | ConnectionResetError) and self._endpoint.url.startswith("http:"):
            reason += "; if it speaks TLS, write https://"
        if proxy := self._http.proxy():
            return ApiError(
                f"no server answers at {self._endpoint.url} through the proxy {proxy.host}:{proxy.port}: {reason}. "
                "If it needs none, add its host to NO_PROXY"
            )
        return ApiError(
            f"no server answers at {self._endpoint.url}: {reason}. Start the daemon with `api` in its settings, or "
            f"change the address: {self._endpoint.advice}"
        )

    def show(self, method: str, target: str, body: Any, response: Response) -> None:
        """Write an exchange to stderr if debugging is on, without credentials and secret values."""
        if self._verbose and not self._debug:
            sys.stderr.write(escape_text(f"{method} {target}: {response.status} {response.reason}") + "\n")
        if not self._debug:
            return
        lines = [f"> {method} {target}"]
        lines += [
            f"> {name.lower()}: {HIDDEN if name.lower().endswith('authorization') else value}"
            for name, value in response.sent.items()
        ]
        if body is not None:
            lines.append(f"> {json.dumps(mask_secrets(body, target))}")
        lines.append(f"< {response.status} {response.reason}")
        lines += [f"< {name}: {value}" for name, value in response.headers.items()]
        if response.content:
            content = _decode_response(response)
            lines.append(f"< {json.dumps(mask_secrets(content, target)) if content is not None else '[not JSON]'}")
        sys.stderr.write(printable_lines("\n".join(lines)) + "\n")


_SOCKET = "api.sock"


def find_local_socket(environ: Mapping[str, str]) -> str:
    """The endpoint of a daemon on this host; "" if there is none.

    It is that of the settings that ``$RECONCILER_SETTINGS`` names, of what `reconciler up` runs here, of the usual
    state directory, or of the settings of the service.
    """
    for state in _list_states(environ):
        with suppress(OSError):
            if (state / _SOCKET).exists():
                return f"{UNIX}{state / _SOCKET}"
    return ""


def _list_states(environ: Mapping[str, str]) -> Iterator[Path]:
    """The state directories of daemons that this command may mean, the first one first."""
    from reconciler.local_state import find_settings_here

    if named := environ.get("RECONCILER_SETTINGS"):
        yield from _read_state(Path(named))
        return
    if (file := find_settings_here()) is not None:
        yield from _read_state(file)
    yield Path("/var/lib/reconciler")
    yield from _read_state(Path("/etc/reconciler/settings.yaml"))


def _read_state(file: Path) -> Iterator[Path]:
    """The state directory that the settings of a daemon in ``file`` name; nothing where they cannot be read."""
    from reconciler.documents.limits import read_within
    from reconciler.documents.reader import parse_documents

    try:
        documents = parse_documents(read_within(file)).documents
    except (OSError, UsageError):
        return
    state = documents[0].value.get("state") if documents and isinstance(documents[0].value, dict) else None
    if isinstance(state, str):
        yield file.parent / state


def _build_request_target(path: str, query: Mapping[str, str]) -> str:
    """The target of a request for ``path``, which can have a query already. Raises UsageError."""
    if not path.startswith("/"):
        raise UsageError(f"{path!r} is not a path of the API")
    target = quote(path, safe="/%?&=+,:;@!$'()*~[]")
    return f"{target}{'&' if '?' in path else '?'}{urlencode(query)}" if query else target


def _decode_response(response: Response) -> Any:
    try:
        return json.loads(response.content) if response.content else None
    except ValueError:
        return None


def mask_secrets(value: Any, path: str) -> Any:
    """``value`` of an exchange at ``path``, each secret member replaced; a diff can show any file, so it is too."""
    if isinstance(value, list):
        return [mask_secrets(item, path) for item in value]
    if not isinstance(value, dict):
        return value
    hidden = {*_SECRET_FIELDS, *(name for prefix, name in _SECRET_BY_PLACE if prefix in path)}
    return {
        name: HIDDEN if name in hidden and isinstance(member, str | dict) else mask_secrets(member, path)
        for name, member in value.items()
    }


def _versions_of(details: Any) -> str:
    """The difference from what is there to what the caller wanted, in a conflict with others; "" for anything else."""
    if not isinstance(details, dict) or not isinstance(details.get("yours"), str):
        return ""
    import difflib

    theirs, yours = (str(details.get(name) or "").splitlines(keepends=True) for name in ("theirs", "yours"))
    return "".join(difflib.unified_diff(theirs, yours, "there now", "yours")).rstrip("\n")
