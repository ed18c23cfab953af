"""The failures of requestRetryPolicy, and what HAProxy retries of them."""

from __future__ import annotations

from reconciler.engines.host.dataplane.protocol import Service
from reconciler.model.kinds.workload import Retries

_STATUSES = frozenset({"401", "403", "404", "408", "425", "500", "501", "502", "503", "504"})
"""The statuses that HAProxy can retry."""
_MORE_STATUSES = frozenset({"421", "429"})
"""Those that it can retry too from ``_MORE`` on."""
_MORE = (3, 1)
_NO_RESPONSE = ("conn-failure", "empty-response")
_RETRIES = {
    "connect-failure": ("conn-failure",),
    "reset-before-request": ("conn-failure",),
    "reset": _NO_RESPONSE,
    "gateway-error": ("502", "503", "504", *_NO_RESPONSE),
    "5xx": ("500", "501", "502", "503", "504", *_NO_RESPONSE),
}
"""A failure of requestRetryPolicy → the words of HAProxy for it.

HAProxy cannot tell a refused stream of HTTP/2 from one that ends while a replica works on its request, and this request
must not be repeated.
"""
_OF_GRPC = frozenset({"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"})
_OF_STREAMS = "refused-stream"
_DEFAULT = frozenset(Retries().retry_on)
"""All services have these if they name none, so that those of gRPC mean nothing for services without gRPC."""
_LISTED = "retriable-status-codes"
"""The statuses that are listed beside it."""

Version = tuple[int, int]


def retry_words(service: Service, version: Version) -> list[str]:
    """The words of HAProxy for the failures after which requests to ``service`` are tried again."""
    return sorted({word for name in service.retry_on for word in _get_retry_words(name, version)})


def failures_without_retry(service: Service, version: Version) -> list[str]:
    """The failures of requestRetryPolicy that HAProxy does not retry: it reads no status of gRPC, for example."""
    if service.protocol == "tcp" or not service.retries:
        return []
    without_effect = {_LISTED}
    if service.protocol not in ("http2", "grpc"):
        without_effect.add(_OF_STREAMS)
    if service.protocol != "grpc" and set(service.retry_on) == _DEFAULT:
        without_effect |= _OF_GRPC
    return [name for name in service.retry_on if name not in without_effect and not _get_retry_words(name, version)]


def _get_retry_words(name: str, version: Version) -> tuple[str, ...]:
    if name in _STATUSES or (name in _MORE_STATUSES and version >= _MORE):
        return (name,)
    return _RETRIES.get(name, ())
