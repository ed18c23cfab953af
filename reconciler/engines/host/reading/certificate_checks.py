"""The certificates of the ingresses of this host, in files and secrets: those that expire, and orders that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from reconciler.checks import Check, make_warning
from reconciler.clock import Clock
from reconciler.engines.engine_state import engine_conditions
from reconciler.engines.host.dataplane.acme.issuer import read_failures
from reconciler.engines.host.dataplane.acme.renewal import next_order
from reconciler.engines.host.dataplane.certificates.directory import CertificateDirectory
from reconciler.engines.host.dataplane.certificates.pem import CertificateError, PemCertificate, read_secret
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
from reconciler.times import format_iso_time

ABOUT = "certificates"

LATE_SECONDS = 3600.0
"""Seconds after which an order that is due and was not placed is no longer wanted."""


def check_certificates(
    settings: Settings, records: Records | None, reveal: SecretReader, clock: Clock
) -> Iterator[Check]:
    """Check the directories of certificates, the secrets that domains name, and the orders of each location."""
    now = clock.now()
    ingresses = {name: bound.ingress for name, bound in settings.locations.items() if bound.ingress is not None}
    for directory in sorted(
        {ingress.certificates for ingress in ingresses.values() if ingress.certificates is not None}
    ):
        yield from _check_files(directory, now)
    if ingresses and records is not None:
        yield from _check_secrets(records, reveal, now)
        yield from _check_domains(records)
    for location, ingress in sorted(ingresses.items()):
        if ingress.acme is not None:
            yield from _check_orders(find_directory(settings.state, location) / DATAPLANE / ACME, location, now)


def _check_files(directory: Path, now: float) -> Iterator[Check]:
    """Check the files of ``directory``. One whose names all have a certificate that is valid longer is not used."""
    stored = CertificateDirectory(directory)
    stored.refresh()
    for path, text in stored.problems.items():
        yield make_warning(ABOUT, f"{path} is not served: {text}", "replace it, or let the user of the daemon read it")
    newest: dict[str, PemCertificate] = {}
    for certificate in sorted(stored.certificates, key=lambda certificate: certificate.not_after):
        newest |= dict.fromkeys(certificate.names, certificate)
    for certificate in stored.certificates:
        names = [name for name in certificate.names if newest[name] is certificate]
        if names and expires_soon(certificate, now):
            advice = "replace the file; the daemon reads it within a minute, or on SIGHUP"
            yield make_warning(ABOUT, _describe_expiration(certificate, names, now), advice)


def _check_secrets(records: Records, reveal: SecretReader, now: float) -> Iterator[Check]:
    """Check the server certificates that domains name."""
    named: dict[Key, list[str]] = {}
    for record in records.applied.items(Kind.DOMAIN):
        links = {port.tls.server_certificate for port in read_domain(record.body).spec.ports}
        for link in filter(None, links):
            key = Key(Kind.SECRET, "", link.secret_link.rpartition("/")[2])
            named.setdefault(key, []).append(record.key.name)
    for key, domains in sorted(named.items()):
        try:
            certificate = read_secret(reveal(key), str(key))
        except (EngineError, CertificateError, SourceError) as error:
            message = f"{key} is not served for {', '.join(domains)}: {error}"
            yield make_warning(ABOUT, message, "correct the secret; the daemon reads it when it is applied")
            continue
        if expires_soon(certificate, now):
            yield make_warning(
                ABOUT, _describe_expiration(certificate, certificate.names, now), "commit another one to the secret"
            )


def _check_domains(records: Records) -> Iterator[Check]:
    """What the locations report of domains that do not work, as `reconciler get` shows it."""
    for record in records.applied.items(Kind.DOMAIN):
        for engine_condition in engine_conditions(record.state):
            if engine_condition.type.degrades:
                where = f"{record.key} has the condition {engine_condition.type} at {engine_condition.location}"
                message = f"{where}: {engine_condition.message}"
                yield make_warning(ABOUT, message, f"see `reconciler describe {record.key}`")


def _describe_expiration(certificate: PemCertificate, names: Iterable[str], now: float) -> str:
    """When a certificate expires, or expired."""
    verb = "expired" if certificate.not_after <= now else "expires"
    end = format_iso_time(certificate.not_after)
    return f"{certificate.source}: the certificate for {', '.join(names)} {verb} at {end}"


def _check_orders(directory: Path, location: str, now: float) -> Iterator[Check]:
    """Check the orders of a location. A failure of a host that no longer needs a certificate is not repeated."""
    stored = CertificateDirectory(directory / "certificates")
    stored.refresh()
    ends = {name: certificate.not_after for certificate in stored.certificates for name in certificate.names}
    for host, failure in sorted(read_failures(directory).items()):
        due = next_order(host, None, failure)
        if now > due + LATE_SECONDS:
            continue
        served = (
            f", and the former one is served until {format_iso_time(ends[host])}" if ends.get(host, 0.0) > now else ""
        )
        message = f"at {location}, the certificate for {host} could not be obtained: {failure.message}{served}"
        yield make_warning(ABOUT, message, f"correct the cause; the next order is at {format_iso_time(due)}")
