"""Selects the certificate of each host name: a pure function of the certificates, the names and the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from reconciler.engines.host.dataplane.certificates.pem import PemCertificate
from reconciler.times import format_iso_time, is_near_end


class TlsOptions(msgspec.Struct, frozen=True):
    """The TLS of a host name: the oldest version, the ciphers (none: all modern ones), and PEM of ``authorities``.

    With ``authorities``, clients need a certificate that one of them has signed.
    """

    oldest: str = "TLSv1.2"
    ciphers: tuple[str, ...] = ()
    authorities: str = ""


class CertificateMatch(NamedTuple):
    """A certificate for a host, and the one of its names that matches: the host or a wildcard."""

    name: str
    certificate: PemCertificate


class Selection(NamedTuple):
    """``serving`` maps host names to their certificates; ``problems`` maps others to the reason why they have none."""

    serving: dict[str, CertificateMatch]
    problems: dict[str, str]


def select_certificates(hosts: Iterable[str], certificates: Iterable[PemCertificate], now: float) -> Selection:
    """The best certificate for each of ``hosts``, which are lower-case; ``now`` is in seconds of the epoch.

    A host ``*.NAME`` needs a certificate for that wildcard. One for the name itself is better than a wildcard, then
    the one that is valid for the longest time. One that has expired, or is not valid yet, is never served.
    """
    by_name: dict[str, list[PemCertificate]] = {}
    for candidate in certificates:
        for name in candidate.names:
            by_name.setdefault(name, []).append(candidate)
    selection = Selection({}, {})
    for host in sorted(set(hosts)):
        names = (host, f"*.{host.partition('.')[2]}")
        usable = ((name, _select_best_certificate(by_name.get(name, ()), now)) for name in names)
        best = next(
            (CertificateMatch(name, certificate) for name, certificate in usable if certificate is not None), None
        )
        if best is not None:
            selection.serving[host] = best
        else:
            selection.problems[host] = _describe_problem(host, names, by_name, now)
    return selection


def expires_soon(certificate: PemCertificate, now: float) -> bool:
    """Whether ``certificate`` should have been replaced by now; one that is ordered is renewed long before."""
    return is_near_end(certificate.not_before, certificate.not_after, now)


def _select_best_certificate(certificates: Iterable[PemCertificate], now: float) -> PemCertificate | None:
    valid = (certificate for certificate in certificates if certificate.not_before <= now < certificate.not_after)
    return max(valid, key=lambda candidate: (candidate.not_after, candidate.digest), default=None)


def _describe_problem(
    host: str, names: tuple[str, str], by_name: Mapping[str, list[PemCertificate]], now: float
) -> str:
    certificates = [certificate for name in names for certificate in by_name.get(name, ())]
    if not certificates:
        return f"no certificate is for {host}"
    last = max(certificates, key=lambda candidate: candidate.not_after)
    if last.not_after <= now:
        return f"the certificate for {host} in {last.source} expired at {format_iso_time(last.not_after)}"
    return f"the certificate for {host} in {last.source} is not valid before {format_iso_time(last.not_before)}"
