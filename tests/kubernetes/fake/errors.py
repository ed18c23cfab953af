"""Failures of the API, with the words of kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

Object = dict[str, Any]
"""An object of the API, or a part of one: JSON as Python has it."""


class Cause(NamedTuple):
    """One field that is wrong: the reason, the message and the path of the field."""

    reason: str
    message: str
    field: str

    @property
    def text(self) -> str:
        """The cause in the message of its failure."""
        return f"{self.field}: {self.message}"


class ApiError(Exception):
    """The answer to a request that fails: a Status, or plain text where the server sends that."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.text = ""
        self.list_metadata: Object = {}
        self.retry_after = 0

    def status(self) -> Object:
        """The body."""
        body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": self.list_metadata, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body | {"code": self.code}


class Resource(NamedTuple):
    """A resource of a group and version: what a path of the API names."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    verbs: tuple[str, ...] = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    short: tuple[str, ...] = ()
    status: bool = False
    scale: bool = False
    custom: bool = False

    @property
    def api_version(self) -> str:
        """``apps/v1``; of the core group only the version."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """``deployments.apps``, as messages have it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def full_kind(self) -> str:
        """``Deployment.apps``, as messages about invalid objects have it."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def singular(self) -> str:
        """``deployment``."""
        return self.kind.lower()

    def details(self, name: str = "", kind: str = "") -> Object:
        """The details of a failure that concerns the object ``name``."""
        entries = {"name": name, "group": self.group, "kind": kind or self.plural}
        return {key: value for key, value in entries.items() if value}


def page_not_found(*, text: bool) -> ApiError:
    """A path that the server does not serve; outside of its groups it answers with ``text``."""
    error = ApiError(404, "NotFound", "the server could not find the requested resource", {})
    error.text = "404 page not found\n" if text else ""
    return error


def not_found(resource: Resource, name: str) -> ApiError:
    """An object that does not exist."""
    return ApiError(404, "NotFound", f'{resource.full_name} "{name}" not found', resource.details(name))


def already_exists(resource: Resource, name: str) -> ApiError:
    """A name that is in use."""
    return ApiError(409, "AlreadyExists", f'{resource.full_name} "{name}" already exists', resource.details(name))


def conflict(resource: Resource, name: str, why: str = "") -> ApiError:
    """A resourceVersion, or a precondition, that is not that of the object."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {resource.full_name} "{name}": {why}'
    return ApiError(409, "Conflict", message, resource.details(name))


def precondition_failed(resource: Resource, name: str, why: str) -> ApiError:
    """A precondition of a deletion that is not true."""
    message = f'Operation cannot be fulfilled on {resource.full_kind} "{name}": {why}'
    return ApiError(409, "Conflict", message, resource.details(name, resource.kind))


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiError:
    """Fields that the server refuses."""
    texts = [cause.text for cause in causes]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = resource.details(name, resource.kind)
    details["causes"] = [cause._asdict() for cause in causes]
    return ApiError(422, "Invalid", f'{resource.full_kind} "{name}" is invalid: {listed}', details)


def apply_conflict(causes: Iterable[Cause], message: str) -> ApiError:
    """Fields that other managers own."""
    return ApiError(409, "Conflict", message, {"causes": [cause._asdict() for cause in causes]})


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    """What authorization, quota or admission refuses."""
    subject = f'{resource.full_name} "{name}"' if name else resource.full_name
    details = resource.details(name)
    if causes:
        details["causes"] = [{key: value for key, value in cause._asdict().items() if value} for cause in causes]
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def bad_request(message: str) -> ApiError:
    """A request that the server cannot read."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """No token, or one that is not valid."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    """A method that the resource does not have."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def unsupported_media_type(resource: Resource) -> ApiError:
    """A body in a format that the server does not know."""
    if resource.custom:
        accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        return ApiError(415, "UnsupportedMediaType", text)
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def expired(message: str, continuation: str = "") -> ApiError:
    """A resourceVersion or continue token of which the server has no history any more."""
    error = ApiError(410, "Expired", message)
    error.list_metadata = {"continue": continuation} if continuation else {}
    return error


def too_large_version(asked: int, current: int) -> ApiError:
    """A resourceVersion that does not exist yet."""
    message = f"Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    details = {"causes": causes, "retryAfterSeconds": 1}
    error = ApiError(504, "Timeout", f"Timeout: {message}", details)
    error.retry_after = 1
    return error


def internal_error(why: str) -> ApiError:
    """A fault of the server, or of a webhook that it calls."""
    details = {"causes": [{"message": why}]}
    return ApiError(500, "InternalError", f"Internal error occurred: {why}", details)


def unavailable() -> ApiError:
    """A server that starts, or a group whose server is gone."""
    return ApiError(503, "ServiceUnavailable", "the server is currently unable to handle the request")


def too_many_requests(retry_after: int) -> ApiError:
    """A server that has too much to do, which it answers without a Status."""
    error = ApiError(429, "TooManyRequests", "Too many requests, please try again later.")
    error.text = "Too many requests, please try again later.\n"
    error.retry_after = retry_after
    return error
