"""The certificate of each host name: the exact one, then the one that is valid longest, never an expired one."""

from __future__ import annotations

from reconciler.engines.host.dataplane.certificates.pem import PemCertificate
from reconciler.engines.host.dataplane.certificates.selection import select_certificates

NOW = 1000.0


def certificate(source: str, *names: str, start: float = 0.0, end: float = 2000.0) -> PemCertificate:
    return PemCertificate(names, start, end, source, "", source)


def served(host: str, *certificates: PemCertificate) -> str:
    """The source of the certificate for ``host``, or the problem."""
    found = select_certificates([host], certificates, NOW)
    return found.serving[host].certificate.source if host in found.serving else found.problems[host]


def test_an_exact_name_is_better_than_a_wildcard() -> None:
    exact, wildcard = certificate("exact", "a.example"), certificate("wildcard", "*.example", end=9000)
    assert served("a.example", exact, wildcard) == "exact"
    assert served("b.example", exact, wildcard) == "wildcard"


def test_a_wildcard_is_for_one_label() -> None:
    wildcard = certificate("wildcard", "*.example")
    for host in ("a.b.example", "example"):
        assert served(host, wildcard) == f"no certificate is for {host}"
    assert served("*.example", wildcard) == "wildcard"


def test_the_longest_validity_wins() -> None:
    short, long = certificate("short", "a.example", end=1500), certificate("long", "a.example", end=1600)
    assert served("a.example", long, short) == served("a.example", short, long) == "long"


def test_an_expired_one_is_never_served_over_a_valid_one() -> None:
    expired = certificate("expired", "a.example", end=NOW)
    assert served("a.example", expired, certificate("wildcard", "*.example")) == "wildcard"
    assert served("a.example", expired) == "the certificate for a.example in expired expired at 1970-01-01T00:16:40Z"
    later = certificate("later", "a.example", start=1001, end=5000)
    assert served("a.example", later, expired).endswith("in later is not valid before 1970-01-01T00:16:41Z")
