"""The certificates of the ingresses of this host, in files and secrets: those that expire, and orders that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from reconciler.checks import Check, warning
from reconciler.clock import Clock
from reconciler.engines.engine_state import engine_conditions
from reconciler.engines.host.dataplane.acme.issuer import read_failures
from reconciler.engines.host.dataplane.acme.renewal import next_order
from reconciler.engines.host.dataplane.certificates.directory import CertificateDirectory
from reconciler.engines.host.dataplane.certificates.pem import Certificate, CertificateError, read_secret
from reconciler.engines.host.dataplane.certificates.selection import expires_soon
from reconciler.engines.host.dataplane.choice import DATAPLANE
from reconciler.engines.host.dataplane.secure_routes import ACME
from reconciler.engines.host.paths import find_directory
from reconciler.engines.protocol import SecretReader
from reconciler.errors import EngineError, SourceError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import read_domain
from reconciler.records.store import Records
from reconciler.settings import Settings
from reconciler.times import iso

ABOUT = "certificates"

LATE_SECONDS = 3600.0
"""Seconds after which an order that is due and was not placed is no longer wanted."""


def check_certificates(
    settings: Settings, records: Records | None, reveal: SecretReader, clock: Clock
) -> Iterator[Check]:
    """Check the directories of certificates, the secrets that domains name, and the orders of each location."""
    now = clock.now()
    ingresses = {name: bound.ingress for name, bound in settings.locations.items() if bound.ingress is not None}
    for directory in sorted({each.certificates for each in ingresses.values() if each.certificates is not None}):
        yield from _files(directory, now)
    if ingresses and records is not None:
        yield from _secrets(records, reveal, now)
        yield from _domains(records)
    for location, ingress in sorted(ingresses.items()):
        if ingress.acme is not None:
            yield from _orders(find_directory(settings.state, location) / DATAPLANE / ACME, location, now)


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
            advice = "replace the file; the daemon reads it within a minute, or on SIGHUP"
            yield warning(ABOUT, _expiration(each, names, now), advice)


def _secrets(records: Records, reveal: SecretReader, now: float) -> Iterator[Check]:
    """Check the server certificates that domains name."""
    named: dict[Key, list[str]] = {}
    for record in records.applied.items(Kind.DOMAIN):
        links = {each.tls.server_certificate for each in read_domain(record.body).spec.ports}
        for each in filter(None, links):
            key = Key(Kind.SECRET, "", each.secret_link.rpartition("/")[2])
            named.setdefault(key, []).append(record.key.name)
    for key, domains in sorted(named.items()):
        try:
            found = read_secret(reveal(key), str(key))
        except (EngineError, CertificateError, SourceError) as error:
            message = f"{key} is not served for {', '.join(domains)}: {error}"
            yield warning(ABOUT, message, "correct the secret; the daemon reads it when it is applied")
            continue
        if expires_soon(found, now):
            yield warning(ABOUT, _expiration(found, found.names, now), "commit another one to the secret")


def _domains(records: Records) -> Iterator[Check]:
    """What the locations report of domains that do not work, as `reconciler get` shows it."""
    for record in records.applied.items(Kind.DOMAIN):
        for found in engine_conditions(record.state):
            if found.type.degrades:
                message = f"{record.key} has the condition {found.type} at {found.location}: {found.message}"
                yield warning(ABOUT, message, f"see `reconciler describe {record.key}`")


def _expiration(certificate: Certificate, names: Iterable[str], now: float) -> str:
    """When a certificate expires, or expired."""
    verb = "expired" if certificate.not_after <= now else "expires"
    return f"{certificate.source}: the certificate for {', '.join(names)} {verb} at {iso(certificate.not_after)}"


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
