"""Why host names have no certificate: each reason once, at the workloads that it concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from reconciler.engines.host.dataplane.certificates.pem import PemCertificate
from reconciler.engines.host.dataplane.certificates.store import CertificateFolders, CertificateStore
from reconciler.engines.host.dataplane.unserved_routes import lacking_hosts
from reconciler.engines.workload.routing.build import GvcRouting, RoutingInput, ServedWorkload, build_table
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import read_domain
from reconciler.model.kinds.secret import SecretValue
from tests.support.clock import FakeClock

KEYS = [Key(Kind.WORKLOAD, "shop", f"w{number}") for number in range(8)]


class Proofs:
    """All domains are proven."""

    unproven: dict[str, str] = {}

    def want(self, domains: Collection[str]) -> None:
        """Nothing is to prove."""


class Issuer:
    """An order of one host has failed, another host has an expired certificate; no other order has begun."""

    problems = {"w0.apps.example": "the authority refused the order"}
    certificates = (PemCertificate(("w1.apps.example",), -100.0, -10.0, "", "issued", "1"),)

    def want(self, hosts: Mapping[str, str], dns: Collection[str] = ()) -> None:
        """Orders come later."""


def secrets(key: Key) -> SecretValue:
    """No domain names a secret."""
    raise KeyError(key)


def test_an_issued_certificate_whose_file_is_damaged_stays_while_the_next_one_is_ordered(tmp_path: Path) -> None:
    spec = {"workloadLink": "/org/acme/gvc/shop/workload/w0", "ports": [{"number": 443}]}
    domain = read_domain(msgspec.json.encode({"kind": "domain", "name": "shop.example", "spec": spec}))
    served = (ServedWorkload(KEYS[0], {8080: "http"}, ("0.0.0.0/0",)),)
    table = build_table(RoutingInput("here", "platform.test", served, {"shop": GvcRouting("alias")}, (domain,)))
    clock = FakeClock()
    end = clock.now() + 3600.0
    source = str(tmp_path / "acme/certificates/shop.example.pem")
    issued = PemCertificate(("shop.example",), 0.0, end, source, "pem", "1")

    class OrderingIssuer(Issuer):
        problems: dict[str, str] = {}
        wanted: Mapping[str, str] = {}
        wildcards = False

        def want(self, hosts: Mapping[str, str], dns: Collection[str] = ()) -> None:
            self.wanted = hosts

    def found(*certificates: PemCertificate) -> CertificateStore:
        """What another daemon finds, with these certificates."""
        folders = CertificateFolders(None, tmp_path / "former")
        store = CertificateStore(folders, secrets, clock, "platform.test", Proofs(), lambda _path, _why: None)
        issuer = OrderingIssuer()
        issuer.certificates = certificates
        store.use(issuer, "thumbprint")
        asyncio.run(store.update(table))
        assert issuer.wanted["shop.example"] == "shop.example", "it is ordered, or renewed"
        return store

    assert found().served.certificates == {}
    for certificates in ((issued,), (), ()):
        [match] = found(*certificates).served.certificates.values()
        assert match.certificate == issued
    clock.block(3600.0)
    assert found().served.certificates == {}


async def test_each_reason_is_one_event_and_a_workload_has_only_that_of_its_own_hosts(tmp_path: Path) -> None:
    spec = {"gvcLink": "/org/acme/gvc/shop", "ports": [{"number": 443}]}
    domain = read_domain(msgspec.json.encode({"kind": "domain", "name": "apps.example", "spec": spec}))
    served = tuple(ServedWorkload(key, {8080: "http"}, ("0.0.0.0/0",)) for key in KEYS)
    table = build_table(RoutingInput("here", "platform.test", served, {"shop": GvcRouting("alias")}, (domain,)))
    folders = CertificateFolders(None, tmp_path)
    store = CertificateStore(folders, secrets, FakeClock(), "platform.test", Proofs(), lambda _path, _why: None)
    store.use(Issuer(), "thumbprint")
    await store.update(table)
    failed, expired, awaited = sorted(store.served.missing["apps.example"], key=len)[:3]
    assert failed == "w0.apps.example is not served with TLS: the authority refused the order"
    assert "w1.apps.example is not served with TLS: its certificate expired at 19" in expired + awaited
    rest = "w2.apps.example, w3.apps.example, w4.apps.example, w5.apps.example, w6.apps.example and 1 more are"
    assert store.served.awaited == {f"{rest} not served with TLS: the certificate is not issued yet"}
    assert lacking_hosts(table, KEYS[3], store.served) == {"w3.apps.example": "the certificate is not issued yet"}
