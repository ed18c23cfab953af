"""Faults that a test scripts."""

from __future__ import annotations

import threading
from fnmatch import fnmatch
from typing import NamedTuple

from tests.kubernetes.fake import errors
from tests.kubernetes.fake.errors import ApiError


class Fault(NamedTuple):
    """What happens to the next requests that ``match``.

    That is a pattern for ``list deployments.apps`` or ``GET /apis/apps/*``.

    ``status`` is answered; ``cut`` is the part of the body, from 0 to 1, after which the connection ends; ``delay`` are
    seconds before the answer; ``stall`` never answers; ``drop`` ends the connection without an answer.
    """

    match: str
    status: int = 0
    retry_after: int = 0
    message: str = ""
    cut: float | None = None
    delay: float = 0.0
    stall: bool = False
    drop: bool = False


class Faults:
    """The faults that are left."""

    def __init__(self) -> None:
        self._faults: list[tuple[Fault, int]] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault, times: int) -> None:
        """Let ``fault`` happen ``times`` times; -1 is always."""
        with self._lock:
            self._faults.append((fault, times))

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()

    def take(self, *names: str) -> Fault | None:
        """The first fault for a request with these names."""
        with self._lock:
            for number, (fault, times) in enumerate(self._faults):
                if any(fnmatch(name, fault.match) for name in names):
                    self._faults[number : number + 1] = [(fault, times - 1)] if times != 1 else []
                    return fault
        return None


def error_of(fault: Fault) -> ApiError:
    """The answer of a fault with a status."""
    error = _error_of(fault)
    if fault.message:
        error.message, error.text = fault.message, ""
    error.retry_after = error.retry_after or fault.retry_after
    return error


def _error_of(fault: Fault) -> ApiError:
    if fault.status == 429:
        return errors.too_many_requests(fault.retry_after or 1)
    if fault.status == 401:
        return errors.unauthorized()
    if fault.status == 410:
        return errors.expired(fault.message or "The resourceVersion for the provided list is too old.")
    if fault.status == 500:
        return errors.internal_error(fault.message or "etcdserver: request timed out")
    if fault.status == 503:
        return errors.unavailable()
    if fault.status == 504:
        return ApiError(504, "Timeout", "Timeout: request did not complete within the allotted timeout", {})
    reason = {403: "Forbidden", 404: "NotFound", 409: "Conflict"}.get(fault.status, "")
    return ApiError(fault.status, reason, fault.message or "scripted", {})
