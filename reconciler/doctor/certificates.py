"""The certificates of the ingresses of this host: those that expire soon, and orders that failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reconciler.doctor.check import Check, warning
from reconciler.engines.host.dataplane.acme.issuer import read_failures
from reconciler.engines.host.dataplane.acme.renewal import next_order
from reconciler.engines.host.dataplane.certificates.directory import CertificateDirectory
from reconciler.engines.host.dataplane.certificates.pem import Certificate
from reconciler.engines.host.dataplane.certificates.selection import expires_soon
from reconciler.engines.host.dataplane.choice import DATAPLANE
from reconciler.engines.host.dataplane.secure_routes import ACME
from reconciler.settings import Settings
from reconciler.times import iso

ABOUT = "certificates"

LATE_SECONDS = 3600.0
"""Seconds after which an order that is due and was not placed is no longer wanted."""


def check_certificates(settings: Settings, now: float) -> Iterator[Check]:
    """Check the directories of certificates, and the orders of each location; ``now`` is in seconds of the epoch."""
    ingresses = {name: bound.ingress for name, bound in settings.locations.items() if bound.ingress is not None}
    for directory in sorted({each.certificates for each in ingresses.values() if each.certificates is not None}):
        yield from _files(directory, now)
    for location, ingress in sorted(ingresses.items()):
        if ingress.acme is not None:
            yield from _orders(settings.state / "host" / location / DATAPLANE / ACME, location, now)


def _files(directory: Path, now: float) -> Iterator[Check]:
    """Check the files of ``directory``. One whose names all have a certificate that is valid longer is not used."""
    stored = CertificateDirectory(directory)
    stored.refresh()
    for path, found in stored.problems.items():
        yield warning(ABOUT, f"{path} is not served: {found}", "replace it, or let the user of the daemon read it")
    newest: dict[str, Certificate] = {}
    for each in sorted(stored.certificates, key=lambda each: each.not_after):
        newest |= dict.fromkeys(each.names, each)
    for each in stored.certificates:
        names = [name for name in each.names if newest[name] is each]
        if names and expires_soon(each, now):
            verb = "expired" if each.not_after <= now else "expires"
            message = f"{each.source}: the certificate for {', '.join(names)} {verb} at {iso(each.not_after)}"
            yield warning(ABOUT, message, "replace the file; the daemon reads it within a minute, or on SIGHUP")


def _orders(directory: Path, location: str, now: float) -> Iterator[Check]:
    """Check the orders of a location. A failure of a host that no longer needs a certificate is not repeated."""
    stored = CertificateDirectory(directory / "certificates")
    stored.refresh()
    ends = {name: each.not_after for each in stored.certificates for name in each.names}
    for host, failure in sorted(read_failures(directory).items()):
        due = next_order(host, None, failure)
        if now > due + LATE_SECONDS:
            continue
        served = f", and the former one is served until {iso(ends[host])}" if ends.get(host, 0.0) > now else ""
        message = f"at {location}, the certificate for {host} could not be obtained: {failure.message}{served}"
        yield warning(ABOUT, message, f"correct the cause; the next order is at {iso(due)}")
