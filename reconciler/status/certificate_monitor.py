"""Reports that the certificate by which the HTTP API is served expires soon, and that it no longer does."""

from __future__ import annotations

from pathlib import Path

from reconciler.clock import Clock
from reconciler.logs import log
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.conditions import HOST, ScopeCondition
from reconciler.records.tables.events import NewEvent
from reconciler.settings import Settings
from reconciler.status.conditions import make_condition
from reconciler.times import format_iso_time, is_near_end

CHECK_SECONDS = 3600.0
"""Seconds between checks."""


class CertificateMonitor:
    """Compares the end of the certificate in ``api.tls`` with the time."""

    def __init__(self, records: Records, settings: Settings, clock: Clock) -> None:
        tls = settings.api.tls if settings.api is not None else None
        self._file = tls.certificate if tls is not None else None
        self._records = records
        self._keep = settings.events.keep
        self._clock = clock

    @property
    def interval(self) -> float:
        """The seconds between two checks; 0 without such a certificate."""
        return CHECK_SECONDS if self._file is not None else 0.0

    def check(self) -> None:
        """Report a change by a condition, an event and a line of the log. Raises RecordsError.

        Of a file that cannot be read, nothing is known: what was reported stays.
        """
        conditions = self._records.conditions.get(HOST)
        former = next((one for one in conditions if one.type == ConditionType.CERTIFICATE_EXPIRING), None)
        if self._file is None:
            if former is not None:
                self._end(former, "the settings no longer have a certificate of the API")
            return
        try:
            message = describe_expiring(self._file, self._clock.now())
        except (OSError, ValueError):
            return
        if message:
            self._begin(former, message)
        elif former is not None:
            self._end(former, f"the certificate of the API, {self._file}, no longer expires soon")

    def _begin(self, former: ScopeCondition | None, message: str) -> None:
        condition = make_condition(ConditionType.CERTIFICATE_EXPIRING, True, Reason.CERTIFICATE_EXPIRING, message)
        if former is not None and former.condition == condition:
            return
        with self._records.transaction():
            self._records.conditions.set(HOST, condition)
            self._append(Reason.CERTIFICATE_EXPIRING, message)
        log().warning("api", message=message)

    def _end(self, former: ScopeCondition, message: str) -> None:
        with self._records.transaction():
            self._records.conditions.drop(HOST, ConditionType(former.type))
            self._append(Reason.CERTIFICATE_RENEWED, message)
        log().info("api", message=message)

    def _append(self, reason: Reason, message: str) -> None:
        self._records.events.append_many([NewEvent("", reason, message)])
        self._records.events.trim(self._keep)


def describe_expiring(file: Path, now: float) -> str:
    """A sentence about the first certificate in ``file`` if it expires soon, else "". Raises OSError and ValueError."""
    from cryptography.x509 import load_pem_x509_certificates

    certificate = load_pem_x509_certificates(file.read_bytes())[0]
    begin, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    if not is_near_end(begin, end, now):
        return ""
    expires = "expired" if end <= now else "expires"
    return (
        f"the certificate of the API, {file}, {expires} at {format_iso_time(end)}; replace the file, which is watched"
    )
