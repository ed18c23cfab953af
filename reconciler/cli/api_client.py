"""Requests to the HTTP API at its socket in the state directory, for members of the group `readers`."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse
from typing import Any
from urllib.parse import urlencode

import msgspec

from reconciler.daemon.api_process import SOCKET
from reconciler.daemon.wake import address_of
from reconciler.errors import NotFoundError, RecordsError, RefusedError, UsageError
from reconciler.settings import Settings

_BAD_REQUEST, _NOT_FOUND = 400, 404
_SECONDS = 330.0
"""Seconds without a byte after which the daemon counts as hung: longer than it takes for any answer."""


class ApiClient:
    """Reads the org of ``settings``.

    Methods raise RecordsError, NotFoundError, UsageError and RefusedError, with the words of the API.

    ``headers`` are those of the last answer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.headers = HTTPMessage()

    def read(self, path: str, query: Mapping[str, object], media: str) -> str:
        """The answer to GET of ``path`` in the org, as ``media``; members of ``query`` that are empty are left out."""
        return b"".join(self.stream(path, query, media)).decode()

    def items(self, path: str, query: Mapping[str, object]) -> list[Any]:
        """The items of the list at ``path``."""
        found: list[Any] = msgspec.json.decode(self.read(path, query, "application/json"))["items"]
        return found

    def make_page_link(self) -> str:
        """The path of a link that logs this user in to the page once."""
        connection = _Connection(self._settings)
        try:
            connection.request("POST", "/login/link")
            response = connection.getresponse()
            _check_response(response)
            path: str = msgspec.json.decode(response.read())["path"]
        except (OSError, HTTPException) as error:
            raise RecordsError(f"the daemon at {self._settings.state} did not answer: {error}; try again") from None
        finally:
            connection.close()
        return path

    def stream(self, path: str, query: Mapping[str, object], media: str) -> Iterator[bytes]:
        """The lines of an answer as they come."""
        named = {name: value for name, value in query.items() if value not in (None, "") and value is not False}
        words = {name: str(value).lower() if value is True else str(value) for name, value in named.items()}
        target = f"/org/{self._settings.org}/{path}" + (f"?{urlencode(words)}" if words else "")
        connection = _Connection(self._settings)
        try:
            connection.request("GET", target, headers={"Accept": media})
            response = connection.getresponse()
            self.headers = response.headers
            _check_response(response)
            yield from response
        except (OSError, HTTPException) as error:
            state = self._settings.state
            raise RecordsError(f"the daemon at {state} did not finish its answer: {error}; try again") from None
        finally:
            connection.close()


class _Connection(HTTPConnection):
    def __init__(self, settings: Settings) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._settings = settings

    def connect(self) -> None:
        state, group = self._settings.state, self._settings.readers
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            with address_of(state, SOCKET) as address:
                self.sock.connect(address)
        except PermissionError:
            raise RecordsError(
                f"this user may not read {state}: run the command as root, or become a member of the group {group}"
            ) from None
        except OSError as error:
            raise RecordsError(
                f"no daemon answers readers at {state} ({error.strerror}); start it, or run the command as root"
            ) from None


def _check_response(response: HTTPResponse) -> None:
    """Raise the error that the ``response`` reports, if it does."""
    if response.status < 400:
        return
    content = response.read()
    try:
        message = str(msgspec.json.decode(content)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        message = f"the daemon answers {response.status} {response.reason}"
    raise {_BAD_REQUEST: UsageError, _NOT_FOUND: NotFoundError}.get(response.status, RefusedError)(message)
