"""The failures of requestRetryPolicy, and what HAProxy retries of them."""

from __future__ import annotations

from reconciler.engines.host.dataplane.protocol import Service
from reconciler.model.kinds.workload import Retries

_STATUSES = frozenset({"401", "403", "404", "408", "425", "500", "501", "502", "503", "504"})
"""The statuses that HAProxy can retry."""
_RETRIES = {
    "connect-failure": ("conn-failure",),
    "refused-stream": ("conn-failure",),
    "reset": ("empty-response",),
    "gateway-error": ("502", "503", "504"),
    "5xx": ("500", "501", "502", "503", "504", "empty-response"),
}
"""A failure of requestRetryPolicy → the words of HAProxy for it."""
_DEFAULT = frozenset(Retries().retry_on)
"""All services have these if they name none, so that those of gRPC mean nothing for services without gRPC."""
_LISTED = "retriable-status-codes"
"""The statuses that are listed beside it."""


def retry_words(service: Service) -> list[str]:
    """The words of HAProxy for the failures after which requests to ``service`` are tried again."""
    return sorted({word for name in service.retry_on for word in _words(name)})


def failures_without_retry(service: Service) -> list[str]:
    """The failures of requestRetryPolicy that HAProxy does not retry: it reads no status of gRPC, for example."""
    if service.protocol == "tcp" or not service.retries:
        return []
    if service.protocol != "grpc" and set(service.retry_on) == _DEFAULT:
        return []
    return [name for name in service.retry_on if name != _LISTED and not _words(name)]


def _words(name: str) -> tuple[str, ...]:
    return (name,) if name in _STATUSES else _RETRIES.get(name, ())
