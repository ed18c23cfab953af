"""Requests to the HTTP API: retried where that is safe, and with errors that name what helps."""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from reconciler import __version__
from reconciler.errors import ReconcilerError, UsageError
from reconciler.printable import printable_lines

RETRY_SECONDS = 10.0
"""How long a read is repeated while the server is not ready, and the longest ``Retry-After`` that is waited for."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
PAGE = 500
"""The most items that one request asks for."""
USER_AGENT = f"platform-cli/{__version__}"
_TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
_UNIX = "unix://"
_READS = ("GET", "HEAD")
_BUSY, _UNAVAILABLE = 429, 503

HIDDEN = "[hidden]"
_SECRET_FIELDS = frozenset({
    "access_token", "code_verifier", "data", "device_code", "password", "payload",
    "refresh_token", "registrationToken", "subject_token", "token",
})  # fmt: skip
"""Members of a body that hold a credential or the data of a secret."""
_SECRET_BY_PLACE = (("/secret", "diff"), ("/-key", "key"), ("/login", "code"))
"""Parts of a path, each with a member that is secret there."""


class ApiError(ReconcilerError):
    """The API refuses a request, or does not answer; ``status`` is 0 then. ``code`` is that of OAuth 2.0, else ""."""

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Answer(NamedTuple):
    """A response: its status, its decoded body (None if it has none), and its headers."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Endpoint(NamedTuple):
    """Where the API is, with which credential ("": that of the process), and for which profile errors give advice."""

    url: str
    token: str = ""
    insecure: bool = False
    profile: str = "default"


class Retries:
    """When a request is sent again: after ``429``, and if it is ``repeatable`` also after ``503`` and lost connections.

    It goes on for ``RETRY_SECONDS``.
    """

    def __init__(self, *, repeatable: bool) -> None:
        self._repeatable = repeatable
        self._deadline = time.monotonic() + RETRY_SECONDS
        self._pause = FIRST_PAUSE / 2

    def pause(self, response: httpx2.Response | None = None) -> float | None:
        """Seconds until the next try after ``response`` (None: the connection was lost); None: there is none."""
        left = self._deadline - time.monotonic()
        if response is not None and response.status_code == _BUSY:
            wait = max(_retry_after(response), FIRST_PAUSE)
            return wait if wait <= left else None
        if response is not None and response.status_code != _UNAVAILABLE:
            return None
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        return self._pause if self._repeatable and left > 0 else None


class Client:
    """Requests to one endpoint. ``debug`` shows each exchange on stderr, without credentials and secret values."""

    def __init__(self, endpoint: Endpoint, *, debug: bool = False) -> None:
        self._endpoint = endpoint
        self._debug = debug
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        if endpoint.token:
            headers["Authorization"] = f"Bearer {endpoint.token}"
        if endpoint.url.startswith(_UNIX):
            transport = httpx2.HTTPTransport(uds=endpoint.url.removeprefix(_UNIX), verify=False)
            self._http = httpx2.Client(
                transport=transport, base_url="http://localhost", headers=headers, timeout=_TIMEOUT
            )
            return
        scheme, host = urlsplit(endpoint.url)[:2]
        if scheme not in ("http", "https") or not host:
            raise UsageError(
                f"the endpoint {endpoint.url!r} is not an address such as https://HOST:PORT or unix:///PATH"
            )
        # A context for TLS takes 20 ms.
        verify: bool | ssl.SSLContext = False if endpoint.insecure or scheme == "http" else ssl.create_default_context()
        self._http = httpx2.Client(base_url=endpoint.url, headers=headers, timeout=_TIMEOUT, verify=verify)

    @property
    def endpoint(self) -> Endpoint:
        """Where it sends its requests."""
        return self._endpoint

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str, **query: str) -> Any:
        """The body of a read. Raises ApiError."""
        return self.request("GET", path, query=query).body

    def once(self, path: str, seconds: float) -> Any:
        """The body of a read that takes at most so long; None if it fails."""
        try:
            return _decoded(self._http.get(path, timeout=seconds))
        except httpx2.HTTPError:
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
            href = next((each["href"] for each in body.get("links", ()) if each["rel"] == "next"), None)

    def lines(self, path: str, query: Mapping[str, str]) -> Iterator[Any]:
        """The objects of a stream, as they come. Raises ApiError."""
        timeout = httpx2.Timeout(_TIMEOUT.connect, read=None)
        try:
            with self._http.stream("GET", path, params=query, timeout=timeout) as response:
                if response.status_code >= 400:
                    response.read()
                    self.show("GET", path, None, response)
                    self.answer(response)
                yield from map(json.loads, filter(None, response.iter_lines()))
        except (httpx2.HTTPError, ValueError) as error:
            raise self.unreachable(error) from None

    def request(
        self, method: str, path: str, *, body: Any = None, query: Mapping[str, str] | None = None, key: str = ""
    ) -> Answer:
        """One exchange. A change is repeated only with the idempotency ``key``. Raises ApiError."""
        headers = {"Idempotency-Key": key} if key else {}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["Content-Type"] = "application/json"
        retries = Retries(repeatable=method in _READS or bool(key) or path.endswith("/-query"))
        while True:
            try:
                response = self._http.request(method, path, content=content, params=query or None, headers=headers)
            except httpx2.HTTPError as error:
                final = isinstance(error, httpx2.ConnectError | httpx2.UnsupportedProtocol)
                if final or (pause := retries.pause()) is None:
                    raise self.unreachable(error) from None
            except (httpx2.InvalidURL, ValueError, UnicodeError):
                raise UsageError(f"{path!r} is not a path of the API") from None
            else:
                self.show(method, path, body, response)
                if (pause := retries.pause(response)) is None:
                    return self.answer(response)
            time.sleep(pause)

    def answer(self, response: httpx2.Response) -> Answer:
        """The content of ``response``. Raises ApiError if it is a refusal."""
        body = _decoded(response)
        if response.status_code < 400:
            return Answer(response.status_code, body, response.headers)
        raise self._refused(response, body if isinstance(body, dict) else {})

    def _refused(self, response: httpx2.Response, body: Mapping[str, Any]) -> ApiError:
        """The error for a refusal: what the server says, and what helps."""
        status, name = response.status_code, self._endpoint.profile
        message = str(body.get("message") or f"the server answers {status} {response.reason_phrase}".rstrip())
        if findings := _findings(body.get("details")):
            message = f"the change is refused:\n{findings}"
        if response.request.url.path.startswith("/login"):
            return ApiError(f"the login is refused: {message}", status, str(body.get("error") or ""))
        if status == 401:
            message = f"the credential of the profile {name!r} is not valid: {message}. Log in again: platform login"
            if not self._endpoint.token:
                message = f"the server at {self._endpoint.url} wants a credential. Log in: platform login {name}"
        elif status == 403:
            message = f"you may not do this: {message}. To see who may: platform KIND access-report REF"
        elif status in (_BUSY, _UNAVAILABLE):
            message = f"the server at {self._endpoint.url} is not ready: {message}. Try again in a moment"
        elif status >= 500:
            message = f"the server failed: {message} (request {body.get('id', '')})"
        elif not body:
            message = f"{self._endpoint.url} is not the API: {message}. To change the address: {_advice(name)}"
        return ApiError(message, status, str(body.get("error") or ""))

    def unreachable(self, error: Exception) -> ApiError:
        """The error for a server that does not answer: why, and what helps."""
        reason = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            text = f"the certificate of {self._endpoint.url} is not trusted: {reason}"
            return ApiError(f"{text}. Set SSL_CERT_FILE to its authority, or add --insecure")
        return ApiError(
            f"no server answers at {self._endpoint.url}: {reason}. Start the daemon with `api` in its settings, or "
            f"change the address: {_advice(self._endpoint.profile)}"
        )

    def show(self, method: str, path: str, body: Any, response: httpx2.Response) -> None:
        """Write an exchange to stderr if debugging is on, without credentials and secret values."""
        if not self._debug:
            return
        lines = [f"> {method} {response.request.url.raw_path.decode(errors='replace')}"]
        lines += [
            f"> {name}: {'[hidden]' if name == 'authorization' else value}"
            for name, value in response.request.headers.items()
        ]
        if body is not None:
            lines.append(f"> {json.dumps(mask_secrets(body, path))}")
        lines.append(f"< {response.status_code} {response.reason_phrase}")
        lines += [f"< {name}: {value}" for name, value in response.headers.items()]
        if response.content:
            found = _decoded(response)
            lines.append(f"< {json.dumps(mask_secrets(found, path)) if found is not None else '[not JSON]'}")
        sys.stderr.write(printable_lines("\n".join(lines)) + "\n")


def default_socket() -> str:
    """The endpoint of a daemon on this host with the usual state directory; "" if there is none."""
    path = "/var/lib/reconciler/api.sock"
    return f"{_UNIX}{path}" if os.path.exists(path) else ""


def _advice(profile: str) -> str:
    return f"platform profile update {profile} --endpoint URL"


def _findings(details: Any) -> str:
    """The findings of a refused change, a line each with its rule; "" if ``details`` has none."""
    found = details if isinstance(details, list) else []
    return "\n".join(
        f"  {each['path']}:{each['line']}:{each['column']}: {each['message']} [{each['rule']}]"
        for each in found
        if isinstance(each, dict) and {"path", "line", "column", "message", "rule"} <= each.keys()
    )


def _decoded(response: httpx2.Response) -> Any:
    try:
        return json.loads(response.content) if response.content else None
    except ValueError:
        return None


def _retry_after(response: httpx2.Response) -> float:
    """The seconds of the header ``Retry-After``; a date counts as a second."""
    text = response.headers.get("retry-after", "1")
    return float(text) if text.isdigit() else 1.0


def mask_secrets(value: Any, path: str) -> Any:
    """``value`` of an exchange at ``path``, each secret member replaced; a diff can show any file, so it is too."""
    if isinstance(value, list):
        return [mask_secrets(each, path) for each in value]
    if not isinstance(value, dict):
        return value
    hidden = {*_SECRET_FIELDS, *(name for place, name in _SECRET_BY_PLACE if place in path)}
    return {
        name: HIDDEN if name in hidden and isinstance(member, str | dict) else mask_secrets(member, path)
        for name, member in value.items()
    }
