"""What a location reports about a domain: its endpoints with the end of their certificates, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.dataplane.certificates.pem import PemCertificate
from reconciler.engines.host.dataplane.certificates.selection import CertificateMatch
from reconciler.engines.host.dataplane.certificates.store import Served
from reconciler.engines.host.dataplane.domains import DomainFacts, report_domains, report_without_ingress
from reconciler.engines.workload.routing.build import GvcRouting, RoutingInput, ServedWorkload, build_table
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import read_domain
from reconciler.model.record import Health, Record
from reconciler.times import format_iso_time
from tests.engines.host.kit import HostHarness, played
from tests.engines.host.test_from_zero import address_of, ask_for
from tests.support.cases import cases
from tests.support.clock import START

DAY = 86_400.0
NAME = "shop.example"


@pytest.mark.parametrize("case", cases("dataplane/domains.yaml"))
def test_a_location_reports_what_it_serves_of_a_domain(case: dict[str, Any]) -> None:
    links = {"workloadLink": "/org/acme/gvc/shop/workload/{}", "gvcLink": "/org/acme/gvc/{}"}
    spec = {name: links[name].format(value) if name in links else value for name, value in case["domain"].items()}
    domain = read_domain(msgspec.json.encode({"kind": "domain", "name": NAME, "spec": spec}))
    workloads = tuple(ServedWorkload(Key(Kind.WORKLOAD, "shop", name), {80: "http"}) for name in ("api", "web"))
    table = build_table(RoutingInput("here", "platform.test", workloads, {"shop": GvcRouting("a1")}, (domain,)))
    missing, problems = tuple(case.get("missing", ())), tuple(case.get("problems", ()))
    served = Served(
        {host: _match(host, *days) for host, days in case.get("certificates", {}).items()},
        missing={NAME: missing} if missing else {},
        unverified={NAME: case["unverified"]} if "unverified" in case else {},
        not_renewed=case.get("not_renewed", {}),
    )
    errors = {NAME: tuple(case.get("errors", ()))}
    facts = DomainFacts("here", START, table, served, {NAME: (*problems, *missing)}, errors)
    report = report_domains((domain,), facts)[NAME]
    assert {endpoint.url: endpoint.certificate_expires for endpoint in report.endpoints} == {
        url: format_iso_time(START + days * DAY) if days else "" for url, days in case["endpoints"].items()
    }
    assert {str(condition.type): condition.message for condition in report.conditions} == case["conditions"]


def test_a_domain_at_a_location_without_an_ingress_is_not_served(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await ask_for(host)
        await address_of(host)
        assert host.engine.domains() == {}
        for name, workload in ((NAME, "web"), ("other.example", "other")):
            spec = {"workloadLink": f"/org/acme/gvc/shop/workload/{workload}"}
            body = msgspec.json.encode({"kind": "domain", "name": name, "spec": spec})
            key = Key(Kind.DOMAIN, "", name)
            host.records.applied.put(Record(key, "", "shop", "1", body, 1, "recorded", Health.HEALTHY))
        host.engine.refresh()
        await host.engine.observe()
        assert host.engine.domains() == {Key(Kind.DOMAIN, "", NAME): report_without_ingress("here")}

    played(tmp_path, story)


def _match(host: str, start: float, end: float) -> CertificateMatch:
    return CertificateMatch(host, PemCertificate((host,), START + start * DAY, START + end * DAY, "file", "", host))
