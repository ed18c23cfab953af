"""Records of what was last applied and observed: one per resource, or per resource and location for placed kinds."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reconciler.model.key import Key
from reconciler.reasons import Reason


class Health(StrEnum):
    """The platform's health states (docs/platform/workload.md#health), and one more.

    Recorded: the engine of the location runs nothing, so nothing can be healthy.
    """

    LOADING = "Loading"
    HEALTHY = "Healthy"
    RECORDED = "Recorded"
    UNHEALTHY = "Unhealthy"
    DELETING = "Deleting"
    UNKNOWN = "Unknown"

    @property
    def is_good(self) -> bool:
        """Whether the resource is as desired, so that dependents need not wait."""
        return self is Health.HEALTHY or self is Health.RECORDED


class Record(msgspec.Struct, frozen=True, gc=False):
    """One applied resource at one location (``""`` for kinds without locations, or a workload without any yet).

    ``body`` is the desired body as it was applied, ``digest`` its digest, ``state`` what the engine observed, as JSON.
    ``version`` counts the versions (docs/platform/workload.md#versions). ``alias`` is set on GVCs only.
    """

    key: Key
    location: str
    source: str
    digest: str
    body: bytes
    version: int
    engine: str
    health: Health
    state: bytes = b"{}"
    alias: str = ""
    revision: str = ""
    applied_at: float = 0.0


class Failure(msgspec.Struct, frozen=True):
    """A failed step and the time of its next attempt (seconds since the epoch)."""

    key: Key
    location: str
    reason: Reason
    message: str
    attempts: int
    since: float
    next_attempt: float
    retry: bool = True
