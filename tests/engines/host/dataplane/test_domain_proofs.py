"""Domains are proven by TXT records, which are looked up until they are there, and every day after that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engines import domain_proof
from reconciler.engines.host.dataplane.domain_proofs import DAY, SILENT, DomainProofs
from tests.support.clock import FakeClock
from tests.support.dns import NameServer, name_server

ORG = "acme"
MISSING = "the TXT record _reconciler-challenge.shop.example with the value org=acme does not exist"


@pytest.fixture(name="dns")
def server() -> Iterator[NameServer]:
    """A name server without records."""
    with name_server() as running:
        yield running


class ProofHarness:
    """The proofs of a location, its clock, and what it reported."""

    def __init__(self, path: Path, server: NameServer) -> None:
        self.clock = FakeClock(1_000_000.0)
        self.events: list[tuple[str, str]] = []
        self.changes = 0
        self._path = path / "proofs.json"
        self._server = server
        self.restart()

    def restart(self) -> None:
        """Go on as another daemon."""
        report = lambda *event: self.events.append(event)  # noqa: E731
        self.proofs = DomainProofs(self._path, ORG, self._server.address, self.clock, report, self._change)

    def check(self, *domains: str) -> dict[str, str]:
        """What is not proven of ``domains`` after a pass."""
        self.proofs.want(set(domains))
        asyncio.run(self.proofs.check())
        return self.proofs.unproven

    def _change(self) -> None:
        self.changes += 1


def test_a_domain_is_proven_as_soon_as_its_record_is_there(dns: NameServer, tmp_path: Path) -> None:
    location = ProofHarness(tmp_path, dns)
    assert location.check("shop.example") == {"shop.example": MISSING}
    dns.prove("shop.example", "another")
    assert location.check("shop.example") == {"shop.example": f"{MISSING}; another value is there"}
    dns.prove("shop.example", ORG)
    assert location.check("shop.example") == {}
    assert location.proofs.is_proven("shop.example")
    assert (location.changes, location.events) == (3, [])


def test_a_proven_domain_is_checked_again_after_a_day(dns: NameServer, tmp_path: Path) -> None:
    location = ProofHarness(tmp_path, dns)
    dns.prove("shop.example", ORG)
    location.check("shop.example")
    location.clock.jump(DAY - 1)
    location.restart()
    location.check("shop.example")
    assert len(dns.asked) == 1
    location.clock.jump(1)
    location.check("shop.example")
    assert len(dns.asked) == 2
    # A clock that was set back proves nothing.
    location.clock.jump(-3600)
    location.check("shop.example")
    assert len(dns.asked) == 3


def test_a_record_that_goes_is_an_event_and_a_problem_until_it_is_back(dns: NameServer, tmp_path: Path) -> None:
    location = ProofHarness(tmp_path, dns)
    dns.prove("shop.example", ORG)
    location.check("shop.example")
    dns.withdraw("shop.example")
    location.clock.jump(DAY)
    assert location.check("shop.example") == {"shop.example": MISSING}
    assert location.events == [("shop.example", f"{MISSING}; it was there before")]
    assert not location.proofs.is_proven("shop.example")
    location.restart()
    assert location.check("shop.example") == {"shop.example": MISSING}
    dns.prove("shop.example", ORG)
    assert location.check("shop.example") == {}
    assert len(location.events) == 1


def test_a_domain_stays_proven_while_dns_gives_no_answer(
    dns: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = ProofHarness(tmp_path, dns)
    dns.prove("shop.example", ORG)
    location.check("shop.example")
    monkeypatch.setattr(domain_proof, "SECONDS", 0.05)
    dns.is_silent = True
    location.clock.jump(2 * DAY)
    assert location.check("shop.example") == {}
    assert location.check("shop.example", "new.example").keys() == {"new.example"}
    assert "DNS gives no answer" in location.proofs.unproven["new.example"]
    assert location.proofs.is_proven("shop.example")
    assert location.events == []


def test_domains_without_an_answer_hold_up_no_other_one_for_long(
    dns: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domain_proof, "SECONDS", 0.05)
    location = ProofHarness(tmp_path, dns)
    dns.is_silent = True
    lame = [f"a{number}.example" for number in range(2 * SILENT)]
    location.check(*lame, "shop.example")
    # On a busy machine the time for a question may be over before it is sent.
    assert 1 <= len(set(dns.asked)) <= SILENT
    location.check(*lame, "shop.example")
    monkeypatch.setattr(domain_proof, "SECONDS", 30.0)
    dns.is_silent = False
    dns.prove("shop.example", ORG)
    location.check(*lame, "shop.example")
    assert location.proofs.is_proven("shop.example")


def test_a_damaged_file_costs_a_lookup(dns: NameServer, tmp_path: Path) -> None:
    (tmp_path / "proofs.json").write_text('{"seen": 1')
    dns.prove("shop.example", ORG)
    location = ProofHarness(tmp_path, dns)
    assert location.check("shop.example") == {}
    (tmp_path / "proofs.json").unlink()
    (tmp_path / "proofs.json").mkdir()
    location.clock.jump(DAY)
    assert location.check("shop.example") == {}
