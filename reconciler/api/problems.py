"""Errors as responses: the body is the same for every status (docs/http.md#errors)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from reconciler.errors import (
    DiskFull,
    NotFoundError,
    PushRefused,
    ReconcilerError,
    RecordsError,
    RefusedError,
    SourceEmpty,
    UsageError,
)

_STATUSES = (400, 401, 403, 404, 405, 409, 410, 413, 415, 429, 500, 503)
CODES: Mapping[int, str] = {status: HTTPStatus(status).phrase.replace(" ", "") for status in _STATUSES}
"""Status → the code of the body, which programs compare."""

MOST_BODY = 1 << 20
"""Bytes of the longest body of most requests."""
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
HTML = "text/html"


class Problem(Exception):
    """A refused request: the HTTP ``status``, a message for people, and details for programs."""

    def __init__(
        self, status: int, message: str, details: Any = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.details = details
        self.headers = headers

    @property
    def members(self) -> Mapping[str, str]:
        """More members of the body, which another standard wants."""
        return {}

    @property
    def is_audited(self) -> bool:
        """Whether the audit log has it where it ends an operation that changes something."""
        return True


class OAuthProblem(Problem):
    """A refused request for tokens, with the ``error`` of OAuth 2.0 (RFC 6749, 5.2, and RFC 8628, 3.5)."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(400, message)
        self._error = error

    @property
    def members(self) -> Mapping[str, str]:
        """The error and the message, as clients of OAuth 2.0 read them."""
        return {"error": self._error, "error_description": str(self)}

    @property
    def is_audited(self) -> bool:
        """Waiting is no event."""
        return self._error not in ("authorization_pending", "slow_down")


class UnfinishedRequest(Problem):
    """A client that left before its request was whole. The audit log has none: nothing was requested."""

    def __init__(self) -> None:
        super().__init__(400, "the connection ended before the body did")

    @property
    def is_audited(self) -> bool:
        """Never."""
        return False


def problem_of(error: Exception) -> Problem:
    """The problem that reports ``error`` of this program, of Starlette or of a handler; a bug says nothing else."""
    match error:
        case Problem():
            return error
        case ClientDisconnect():
            return UnfinishedRequest()
        case HTTPException():
            return Problem(error.status_code, error.detail, headers=error.headers)
        case NotFoundError():
            return Problem(404, str(error))
        case DiskFull() | RecordsError():
            return Problem(503, str(error))
        # A change that would leave no manifest is refused for good, so no client repeats it.
        case RefusedError() | PushRefused() | SourceEmpty():
            return Problem(409, str(error))
        case UsageError():
            return Problem(400, str(error))
        case ReconcilerError():
            return Problem(503, str(error))
    return Problem(500, "this is a fault of the server; its log has more under the id")


def problem_response(problem: Problem, request_id: str) -> Response:
    """The response for ``problem``."""
    return Response(problem_body(problem, request_id), problem.status, problem.headers, JSON)


def problem_body(problem: Problem, request_id: str) -> bytes:
    """``problem`` as JSON."""
    body = {
        "status": problem.status,
        "message": str(problem),
        "code": CODES[problem.status],
        "details": problem.details,
        "id": request_id,
        **problem.members,
    }
    return msgspec.json.encode(body)
