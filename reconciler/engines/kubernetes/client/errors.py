"""Answers of the API server that are no success, as errors for people: the server's own words, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from reconciler.errors import EngineError
from reconciler.foreign_words import strip_variation
from reconciler.printable import escape_text
from reconciler.reasons import Reason

MAX_WORDS = 600
"""The most characters of a server's message."""


class Cause(NamedTuple):
    """A part of the reason of a refusal: ``field`` is a path such as ``.spec.replicas``."""

    reason: str
    message: str
    field: str


class ClusterError(EngineError):
    """The API server refuses a request, or does not answer.

    ``code`` is that of HTTP, 0 without an answer. ``retry_after`` are the seconds that the server asks to wait.
    """

    def __init__(
        self, message: str, *, reason: Reason, code: int = 0, retry: bool = True, causes: Sequence[Cause] = ()
    ) -> None:
        super().__init__(message, reason=reason, retry=retry)
        self.code = code
        self.causes = tuple(causes)
        self.retry_after = 0.0
        self.status_reason = ""


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: list[_Cause] = []
    kind: str = ""
    name: str = ""


class _Status(msgspec.Struct, frozen=True):
    message: str = ""
    reason: str = ""
    details: _Details | None = None
    code: int = 0


_QUOTA = "exceeded quota"
_ADMISSION = ("admission webhook", "failed calling webhook")


def explain_refusal(code: int, body: bytes, subject: str, *, retry_after: float = 0.0) -> ClusterError:
    """The error for an answer with ``code``; ``subject`` is what was asked for, such as ``apply Service web``."""
    status = _read_status(body)
    words = escape_text(strip_variation(status.message) or f"HTTP {code}")[:MAX_WORDS]
    causes = [Cause(cause.reason, cause.message, cause.field) for cause in (status.details or _Details()).causes]
    reason, retry, advice = _judge_answer(code, status)
    error = ClusterError(f"{subject}: {words}{advice}", reason=reason, code=code, retry=retry, causes=causes)
    error.retry_after = retry_after
    error.status_reason = status.reason
    return error


def _read_status(body: bytes) -> _Status:
    try:
        return msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        return _Status(message=body[:MAX_WORDS].decode("utf-8", "replace").strip())


class _Verdict(NamedTuple):
    reason: Reason
    retry: bool
    advice: str


def _judge_answer(code: int, status: _Status) -> _Verdict:
    """The reason of a refusal, whether another try can help, and what a person can do."""
    if any(words in status.message for words in _ADMISSION):
        # A webhook that does not answer is the cluster's trouble; one that denies is an answer.
        denied = "denied the request" in status.message
        return _Verdict(Reason.ADMISSION_REFUSED, not denied, "")
    if code == 403 and _QUOTA in status.message:
        return _Verdict(Reason.QUOTA_EXCEEDED, True, "")
    if code == 409 and any(cause.reason == "FieldManagerConflict" for cause in _list_causes(status)):
        advice = "; let the other program leave the field, or name it in `cluster.forceConflicts`"
        return _Verdict(Reason.FIELD_CONFLICT, True, advice)
    return _BY_CODE.get(code, _other_verdict(code))


def _list_causes(status: _Status) -> Sequence[_Cause]:
    return status.details.causes if status.details is not None else ()


def _other_verdict(code: int) -> _Verdict:
    return _Verdict(Reason.CLUSTER_FAILED, code >= 500, "")


_BY_CODE: dict[int, _Verdict] = {
    400: _Verdict(Reason.OBJECT_REFUSED, False, ""),
    401: _Verdict(Reason.CREDENTIALS_REFUSED, True, "; renew the credentials that the kubeconfig names"),
    403: _Verdict(Reason.CLUSTER_FORBIDDEN, True, "; `reconciler doctor` lists the rights that are missing"),
    404: _Verdict(Reason.NOT_FOUND, True, ""),
    409: _Verdict(Reason.CLUSTER_BUSY, True, ""),
    410: _Verdict(Reason.CLUSTER_BUSY, True, ""),
    422: _Verdict(Reason.OBJECT_REFUSED, False, ""),
    429: _Verdict(Reason.CLUSTER_BUSY, True, ""),
}


def explain_no_answer(error: Exception, server: str) -> ClusterError:
    """The error for a request that got no answer, or only a part of one."""
    words = escape_text(_get_words(error))[:MAX_WORDS]
    if "certificate has expired" in words or "alert certificate expired" in words:
        message = f"{server}: a certificate has expired ({words}); renew it"
        return ClusterError(message, reason=Reason.CREDENTIALS_REFUSED)
    if "certificate is not yet valid" in words:
        message = f"{server}: a certificate is not valid yet ({words}); compare the clocks of this host and the cluster"
        return ClusterError(message, reason=Reason.CREDENTIALS_REFUSED)
    return ClusterError(f"{server} does not answer: {words}", reason=Reason.CLUSTER_UNREACHABLE)


def _get_words(error: BaseException) -> str:
    """The innermost words: a failure to connect hides the one of the socket."""
    texts = []
    current: BaseException | None = error
    while current is not None:
        if text := str(current).strip():
            texts.append(text)
        current = current.__cause__ or current.__context__
    return texts[-1] if texts else type(error).__name__


def is_absent(error: EngineError) -> bool:
    """Whether ``error`` is the answer that an object, or its kind, does not exist."""
    return isinstance(error, ClusterError) and error.code == 404
