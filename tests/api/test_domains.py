"""Domains: one is added through the API only when its TXT record shows that it is the org's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.engines import domain_proof
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.dns import NameServer, name_server

DOMAINS = f"{ORG}/domain"
RECORD = "the TXT record _reconciler-challenge.{} with the value org=acme"


@pytest.fixture(scope="module")
def dns() -> Iterator[NameServer]:
    """The DNS server that the settings name."""
    with name_server() as server:
        yield server


@pytest.fixture(scope="module")
def sandbox(dns: NameServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with a domain in Git that is not proven."""
    domain = "kind: domain\nname: former.example.com\nspec: {gvcLink: //gvc/shop}\n"
    path = tmp_path_factory.mktemp("domains")
    with api_sandbox(path, {**FILES, "domain.yaml": domain}, domains={"resolver": dns.address}) as made:
        yield made


def create(sandbox: ApiSandbox, name: str, more: str = "", **spec: Any) -> tuple[int, str, str]:
    """Status and message of the creation of a domain, and the subject of the newest commit."""
    body = {"name": name, "spec": {"gvcLink": "//gvc/shop", **spec}}
    answer = sandbox.client().request("POST", f"{DOMAINS}{more}", json=body)
    newest = sandbox.repo.git("log", "-1", "--format=%s", "main").strip()
    return answer.status_code, answer.json().get("message", ""), newest


def test_a_domain_is_added_once_its_record_is_there(sandbox: ApiSandbox, dns: NameServer) -> None:
    name = "shop.example.com"
    expected = f"domain/{name} is not proven: {RECORD.format(name)} does not exist; publish it first"
    assert create(sandbox, name) == (400, expected, "Change")
    assert create(sandbox, name, "?dryRun=true")[0] == 400
    dns.prove(name, "other")
    status, message, _ = create(sandbox, name)
    assert (status, message.endswith("does not exist; another value is there; publish it first")) == (400, True)
    dns.texts[f"_reconciler-challenge.{name}"].append("org=acme")
    assert create(sandbox, name, "?dryRun=true") == (200, "", "Change")
    assert create(sandbox, name) == (201, "", f"Create domain/{name}")


def test_dns_that_does_not_answer_is_no_proof_and_no_refusal(
    sandbox: ApiSandbox, dns: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domain_proof, "SECONDS", 0.3)
    name = "silent.example.com"
    dns.prove(name)
    dns.is_silent = True
    status, message, newest = create(sandbox, name)
    dns.is_silent = False
    assert (status, message.startswith(RECORD.format(name) + " cannot be read: DNS gives no answer")) == (503, True)
    assert newest != f"Create domain/{name}"


def test_a_wrong_manifest_is_refused_without_a_lookup(sandbox: ApiSandbox, dns: NameServer) -> None:
    asked = len(dns.asked)
    status, message, _ = create(sandbox, "wrong.example.com", dnsMode="none")
    assert (status, message.startswith("the change is refused: ")) == (400, True)
    assert len(dns.asked) == asked


def test_a_domain_in_git_can_be_changed(sandbox: ApiSandbox, dns: NameServer) -> None:
    asked = len(dns.asked)
    answer = sandbox.client().request("PATCH", f"{DOMAINS}/former.example.com", json={"description": "Formerly"})
    assert answer.status_code == 200
    assert len(dns.asked) == asked
