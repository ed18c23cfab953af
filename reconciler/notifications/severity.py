"""How serious a message is. Rules of the settings choose by it, and receivers show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from reconciler.reasons import Reason


class Severity(StrEnum):
    """The words of PagerDuty, least serious first; Prometheus has the same but for ``error``."""

    INFO = "info"
    """Nothing is wrong."""
    WARNING = "warning"
    """Someone should look at it some time, or decide."""
    ERROR = "error"
    """Something does not work that people rely on."""
    CRITICAL = "critical"
    """Nothing works at a place, or data may be lost: someone is woken."""

    @property
    def rank(self) -> int:
        """0 for ``info``, one more for each next one."""
        return _ORDER.index(self)


_ORDER = tuple(Severity)

OF_REASONS: Mapping[str, Severity] = {
    Reason.DISK_FULL: Severity.CRITICAL,
    Reason.LOCATION_UNREACHABLE: Severity.CRITICAL,
    Reason.SECRET_LOST: Severity.CRITICAL,
    Reason.VOLUME_CHECK_FAILED: Severity.CRITICAL,
    Reason.CERTIFICATE_EXPIRING: Severity.WARNING,
    Reason.CERTIFICATE_FAILED: Severity.WARNING,
    Reason.DRIFT_DETECTED: Severity.WARNING,
    Reason.EXECUTION_FAILED: Severity.WARNING,
    Reason.HOST_DISK_LOW: Severity.WARNING,
    Reason.VOLUME_NEARLY_FULL: Severity.WARNING,
}
"""The severity of a trouble by the reason that begins it; others are errors."""


def grade_reason(reason: str) -> Severity:
    """The severity of a trouble that begins for ``reason``."""
    return OF_REASONS.get(reason, Severity.ERROR)


def choose_worst(severities: Iterable[Severity]) -> Severity:
    """The most serious of ``severities``; of none, ``info``."""
    return max(severities, key=lambda severity: severity.rank, default=Severity.INFO)
